"""Convolution and neurons of one state, with a record of near-threshold steps.

Equations: cpp/include/snnlib/layer/rows.h.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from snnlib.backends.arguments import LayerArgs, LinearKernel, row_names
from snnlib.backends.native import state_dtype
from snnlib.backends.reference import linear
from snnlib.backends.reference.srm_conv import (
    convolution_backward,
    convolve,
    pool_spikes,
    read_entries,
    write_entries,
)
from snnlib.backends.surrogate import COMPACT, KINDS, SHAPES


def forward(
    call: LayerArgs,
    neuron: LinearKernel,
    out: Tensor,
    final: Tensor | None,
    bits: Tensor | None,
    starts: Tensor,
) -> Tensor:
    """Fills pooled spikes, and state and bits if requested; returns u at near-threshold steps `[1, entries]`."""
    current, flags = convolve(call.x, call.weight, call.options), neuron.options
    spikes, u, last = linear.distances(current, neuron, call.time_dim)
    out.copy_(pool_spikes(spikes, call.pool))
    if final is not None:
        final.copy_(last)
    if bits is None:
        return u.new_empty(1, 0)
    entry = torch.ones_like(u, dtype=torch.bool)
    if COMPACT[KINDS[flags.kind]]:
        scale = linear.per_neuron(neuron.constants, -1, u)
        entry = (spikes > 0) | ((u * scale).abs() <= 1)
    return write_entries(entry, [u], call.band, call.time_dim, bits, starts)


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
    entry, (u,) = read_entries(*record, shape, call.band, time_dim)
    q = _spread(grad_output.to(dtype), shape, call.pool)
    rows = {name: linear.per_neuron(neuron.constants, row, u) for row, name in enumerate(row_names(1))}
    # What comes back to the state from later steps.
    g = grad_state[0].to(dtype) if grad_state is not None else q.new_zeros(shape[1 - time_dim], *shape[2:])
    adjoint = torch.empty_like(q)
    shape_of = SHAPES[KINDS[flags.kind]]
    columns = [tensor.unbind(time_dim) for tensor in (q, entry, u.to(dtype))]
    for t in reversed(range(q.shape[time_dim])):
        q_t, entry_t, u_t = (column[t] for column in columns)
        fired = (u_t > 0 if flags.strict else u_t >= 0) & entry_t
        slope = rows["height"] * shape_of((u_t * rows["scale"]).abs())
        carry = torch.where(fired, rows["keep0"], 1.0)
        if not flags.detach_reset:
            h = u_t + rows["threshold"]
            carry = carry + slope * (rows["keep0"] * h + rows["offset0"] - h)
        lam = torch.where(entry_t, slope * q_t + carry * g, g)
        adjoint.select(time_dim, t).copy_(lam * rows["b0"])
        g = lam * rows["a00"] if flags.through_time else torch.zeros_like(lam)
    return *convolution_backward(adjoint, x, weight, call.options), g.unsqueeze(0)


def _spread(grad: Tensor, shape: Sequence[int], pool: Sequence[int]) -> Tensor:
    """The gradient of a mean in equal parts to the cells of its window; zero for cells of no window."""
    spread = (grad / (pool[0] * pool[1])).repeat_interleave(pool[0], -2).repeat_interleave(pool[1], -1)
    missing = [size - other for size, other in zip(shape[-2:], spread.shape[-2:], strict=True)]
    return F.pad(spread, (0, missing[1], 0, missing[0]))
