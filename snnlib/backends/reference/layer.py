"""Convolution and neurons of one or two linear states, with a record of near-threshold steps.

Equations: cpp/include/snnlib/layer/adjoint.h.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from snnlib.backends.arguments import LayerArgs, LinearKernel
from snnlib.backends.flags import Flags
from snnlib.backends.native import state_dtype
from snnlib.backends.reference import linear
from snnlib.backends.reference.srm_conv import (
    convolution_backward,
    convolve,
    pool_spikes,
    read_entries,
    write_entries,
)
from snnlib.backends.surrogate import COMPACT, KINDS


def forward(
    call: LayerArgs,
    neuron: LinearKernel,
    out: Tensor,
    final: Tensor | None,
    bits: Tensor | None,
    starts: Tensor,
) -> Tensor:
    """Fills pooled spikes, and state and bits if requested; returns what is kept of entries, `[1, entries]`."""
    current, flags = convolve(call.x, call.weight, call.options), neuron.options
    steps = linear.recorded(current, neuron)
    out.copy_(pool_spikes(steps.spikes, call.pool))
    if final is not None:
        final.copy_(steps.final)
    if bits is None:
        return steps.compared.new_empty(1, 0)
    entry = torch.ones_like(steps.compared, dtype=torch.bool)
    if COMPACT[KINDS[flags.kind]]:
        entry = (steps.spikes > 0) | (steps.argument <= 1)
    return write_entries(entry, [steps.compared], call.band, bits, starts)


def backward(
    call: LayerArgs,
    neuron: LinearKernel,
    record: tuple[Tensor, Tensor, Tensor],
    grad_output: Tensor,
    grad_state: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """dL/dW, dL/dx and dL/dstate in the state's dtype: the dense adjoint, then torch's convolution gradients."""
    x, weight, flags = call.x, call.weight, neuron.options
    dtype, shape = state_dtype(x), (*x.shape[:2], len(weight), *call.geometry.space)
    entry, (compared,) = read_entries(*record, shape, call.band)
    q = _spread(grad_output.to(dtype), shape, call.pool)
    rows = linear.Rows(neuron.constants.to(dtype), x.dim() - 1)
    # dL/dy that comes back to the states from later steps.
    states = range(rows.states)
    g = [q.new_zeros(shape[1:]) for _ in states]
    if grad_state is not None:
        g = list(grad_state.to(dtype).unbind(0))
    adjoint = torch.empty_like(q)
    columns = [tensor.unbind() for tensor in (q, entry, compared.to(dtype))]
    for t in reversed(range(len(q))):
        q_t, entry_t, level = (column[t] for column in columns)
        fired = rows.fired(level, flags) & entry_t
        after = [sum((rows.p[i] * g[i] for i in states[1:]), g[0]), *g[1:]]
        through = _through(rows, level, flags)
        lam = []
        for i in states:
            slope = rows.slope(level, flags)
            slope = slope * rows.c[i] if rows.states > 1 else slope
            now = slope * q_t
            for k in states:
                stays = rows.keep[i] if i == k else -rows.r[i] if k == 0 else torch.zeros_like(rows.keep[i])
                carry = torch.where(fired, stays, float(i == k)) + slope * through[k]
                now = now + carry * after[k]
            lam.append(torch.where(entry_t, now, after[i]))
        adjoint[t] = sum((rows.b[i] * lam[i] for i in states[1:]), rows.b[0] * lam[0])
        g = [sum((rows.a[i][j] * lam[i] for i in states[1:]), rows.a[0][j] * lam[0]) for j in states]
        if not flags.through_time:
            g = [torch.zeros_like(part) for part in g]
    return *convolution_backward(adjoint, x, weight, call.options), torch.stack(g)


def _through(rows: linear.Rows, level: Tensor, flags: Flags) -> list[Tensor]:
    """Derivatives of the states after a step by its spike, whose reset is detached or of the compared state alone."""
    found = [torch.zeros_like(level)] * rows.states
    if not flags.detach_reset:
        h = level if flags.graded else level + rows.threshold
        others = [torch.zeros_like(h)] * (rows.states - 1)
        found = [rows.reset([h, *others], i) - part for i, part in enumerate([h, *others])]
    if rows.states > 1 and not flags.detach_jump:
        jumps = [rows.j[0], *(rows.j[i] - rows.p[i] * rows.j[0] for i in range(1, rows.states))]
        found = [part + jump for part, jump in zip(found, jumps, strict=True)]
    return found


def _spread(grad: Tensor, shape: Sequence[int], pool: Sequence[int]) -> Tensor:
    """The gradient of a mean in equal parts to the cells of its window; zero for cells of no window."""
    spread = (grad / (pool[0] * pool[1])).repeat_interleave(pool[0], -2).repeat_interleave(pool[1], -1)
    missing = [size - other for size, other in zip(shape[-2:], spread.shape[-2:], strict=True)]
    return F.pad(spread, (0, missing[1], 0, missing[0]))
