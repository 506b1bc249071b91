"""Convolution and neurons of one state with a record of entries.

Equations: cpp/include/snnlib/kernels/linear_adjoint.h.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from snnlib.backends.native import state_dtype
from snnlib.backends.reference import linear
from snnlib.backends.reference.linear import Flags
from snnlib.backends.reference.srm_conv import Options, convolve, pool_spikes, read_entries, write_entries
from snnlib.backends.reference.surrogate import KINDS, SHAPES

# Shapes of surrogates that are exactly zero away from the threshold.
COMPACT = ("triangle", "rectangle")


def forward(
    x: Tensor,
    weight: Tensor,
    coefficients: Tensor,
    state: Tensor | None,
    options: Options,
    pool: Sequence[int],
    flags: Flags,
    time_dim: int,
    band: int,
    outputs: tuple[Tensor, Tensor | None, Tensor | None, Tensor],
) -> Tensor:
    """Fills (pooled spikes, state, bits, starts) and returns u of every entry `[1, entries]`."""
    out, final, bits, starts = outputs
    current = convolve(x, weight, options)
    spikes, u, last = linear.distances(current, coefficients, state, flags, time_dim)
    out.copy_(pool_spikes(spikes, pool))
    if final is not None:
        final.copy_(last)
    if bits is None:
        return u.new_empty(1, 0)
    entry = torch.ones_like(u, dtype=torch.bool)
    if KINDS[flags.kind] in COMPACT:
        scale = linear.per_neuron(coefficients, -1, u)
        entry = (spikes > 0) | ((u * scale).abs() <= 1)
    return write_entries(entry, [u], band, time_dim, bits, starts)


def backward(
    grad_output: Tensor,
    x: Tensor,
    weight: Tensor,
    coefficients: Tensor,
    record: tuple[Tensor, Tensor, Tensor],
    options: Options,
    pool: Sequence[int],
    flags: Flags,
    band: int,
    time_dim: int,
    grad_state: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """dL/dW, dL/dx and dL/dstate in the state's dtype: the dense adjoint, then torch's convolution gradients."""
    dtype = state_dtype(x)
    stride, padding, dilation, _ = options
    sizes = zip(x.shape[3:], weight.shape[2:], stride, padding, dilation, strict=True)
    space = [(size + 2 * zeros - gap * (taps - 1) - 1) // step + 1 for size, taps, step, zeros, gap in sizes]
    shape = (*x.shape[:2], weight.shape[0], *space)
    entry, (u,) = read_entries(*record, shape, band, time_dim)
    q = _spread(grad_output.to(dtype), shape, pool)
    rows = {name: linear.per_neuron(coefficients, row, u) for row, name in enumerate(linear.row_names(1))}
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
    return *convolution_backward(adjoint, x, weight, options), g.unsqueeze(0)


def _spread(grad: Tensor, shape: Sequence[int], pool: Sequence[int]) -> Tensor:
    """The gradient of a mean in equal parts to the cells of its window; zero for cells of no window."""
    spread = (grad / (pool[0] * pool[1])).repeat_interleave(pool[0], -2).repeat_interleave(pool[1], -1)
    missing = [size - other for size, other in zip(shape[-2:], spread.shape[-2:], strict=True)]
    return F.pad(spread, (0, missing[1], 0, missing[0]))


def convolution_backward(
    signal: Tensor, x: Tensor, weight: Tensor, options: Options
) -> tuple[Tensor, Tensor]:
    """dL/dW and dL/dx of a signal in the state's dtype."""
    stride, padding, dilation, groups = options
    dtype = state_dtype(x)
    zeros = [0] * len(stride)
    grad_x, grad_weight, _ = torch.ops.aten.convolution_backward(
        signal.to(dtype).flatten(0, 1),
        x.to(dtype).flatten(0, 1),
        weight.to(dtype),
        None,
        stride,
        padding,
        dilation,
        False,
        zeros,
        groups,
        [True, True, False],
    )
    return grad_weight, grad_x.reshape(x.shape)
