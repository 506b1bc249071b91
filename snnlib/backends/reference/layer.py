"""Convolution and neurons of one state, with a record of near-threshold steps.

Equations: cpp/include/snnlib/layer/rows.h.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from snnlib.backends.arguments import LayerArgs, LinearKernel
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
    steps = linear.recorded(current, neuron, call.time_dim)
    out.copy_(pool_spikes(steps.spikes, call.pool))
    if final is not None:
        final.copy_(steps.final)
    if bits is None:
        return steps.compared.new_empty(1, 0)
    entry = torch.ones_like(steps.compared, dtype=torch.bool)
    if COMPACT[KINDS[flags.kind]]:
        entry = (steps.spikes > 0) | (steps.argument <= 1)
    return write_entries(entry, [steps.compared], call.band, call.time_dim, bits, starts)


def backward(
    call: LayerArgs,
    neuron: LinearKernel,
    record: tuple[Tensor, Tensor, Tensor],
    grad_output: Tensor,
    grad_state: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """dL/dW, dL/dx and dL/dstate in the state's dtype: the dense adjoint, then torch's convolution gradients."""
    x, weight, time_dim, flags = call.x, call.weight, call.time_dim, neuron.options
    dtype, shape = state_dtype(x), (*x.shape[:2], len(weight), *call.geometry.space)
    entry, (compared,) = read_entries(*record, shape, call.band, time_dim)
    q = _spread(grad_output.to(dtype), shape, call.pool)
    rows = linear.Rows(neuron.constants.to(dtype), x.dim() - 1)
    # Gradient that comes back to the state from later steps.
    g = grad_state[0].to(dtype) if grad_state is not None else q.new_zeros(shape[1 - time_dim], *shape[2:])
    adjoint = torch.empty_like(q)
    columns = [tensor.unbind(time_dim) for tensor in (q, entry, compared.to(dtype))]
    for t in reversed(range(q.shape[time_dim])):
        q_t, entry_t, level = (column[t] for column in columns)
        fired = rows.fired(level, flags) & entry_t
        slope = rows.slope(level, flags)
        carry = torch.where(fired, rows.keep[0], 1.0)
        if not flags.detach_reset:
            h = level if flags.graded else level + rows.threshold
            carry = carry + slope * (rows.reset([h], 0) - h)
        lam = torch.where(entry_t, slope * q_t + carry * g, g)
        adjoint.select(time_dim, t).copy_(lam * rows.b[0])
        g = lam * rows.a[0][0] if flags.through_time else torch.zeros_like(lam)
    return *convolution_backward(adjoint, x, weight, call.options), g.unsqueeze(0)


def _spread(grad: Tensor, shape: Sequence[int], pool: Sequence[int]) -> Tensor:
    """The gradient of a mean in equal parts to the cells of its window; zero for cells of no window."""
    spread = (grad / (pool[0] * pool[1])).repeat_interleave(pool[0], -2).repeat_interleave(pool[1], -1)
    missing = [size - other for size, other in zip(shape[-2:], spread.shape[-2:], strict=True)]
    return F.pad(spread, (0, missing[1], 0, missing[0]))
