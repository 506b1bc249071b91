"""Layouts of sequences, states and weights for the kernels of a convolution.

Kernels read contiguous kernel elements only. A dilated kernel gets zeros between its elements, and the gradients at
these zeros are dropped.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from snnlib.backends import cpu_memory, native
from snnlib.backends.geometry import GROUP, ConvOptions, Geometry, block_channels, geometry
from snnlib.backends.native import state_dtype

# Channels whose weights under one tap lie next to each other: few enough for the second cache, and whole lines of it.
_PIECE = 128
# Weights below which one copy of a view takes less time than a transposition and its three views.
_SMALL = 1 << 14


def kernel(name: str, x: Tensor, **others: Tensor | None) -> Callable[..., Any] | None:
    """Returns the compiled function; None if the reference has to run."""
    # Kernels compute in float32, gradient checks in float64.
    return None if x.dtype == torch.float64 else native.kernel(name, x, **others)


def empty_sequence(
    x: Tensor, channels: int, space: Sequence[int], dtype: torch.dtype | None = None
) -> Tensor:
    """Allocates a sequence `[T, N, C, ...]` with x's first two dimensions."""
    return _empty((*x.shape[:2], channels, *space), x, dtype)


def _empty(shape: Sequence[int], x: Tensor, dtype: torch.dtype | None) -> Tensor:
    # No view of another tensor, as autograd lets nobody write into a view that comes out of a function.
    return cpu_memory.empty_permuted(shape, _order(shape), x, dtype)


def _order(shape: Sequence[int]) -> tuple[int, ...]:
    return 0, 1, *range(3, len(shape)), 2


def lies_in_order(tensor: Tensor) -> bool:
    """Returns whether a sequence or state is channels-last; strides of dimensions of size 1 are ignored."""
    strides = zip(
        tensor.shape,
        tensor.stride(),
        cpu_memory.dense_strides(tensor.shape, _order(tensor.shape)),
        strict=True,
    )
    return all(stride == wanted for size, stride, wanted in strides if size > 1)


def laid_out(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """Returns a sequence or a state in this dtype and channels-last, copied if necessary."""
    if tensor.dtype == dtype and lies_in_order(tensor):
        return tensor
    return _empty(tensor.shape, tensor, dtype).copy_(tensor)


def output_shape(x: Tensor, g: Geometry, pool: Sequence[int]) -> tuple[int, ...]:
    """Returns the shape of the output: spikes after pooling."""
    space = g.space[-2:]
    height, width = (size // window for size, window in zip(space, pool, strict=True))
    if height == 0 or width == 0:
        raise ValueError(f"kernel_size: expected windows that fit into {tuple(space)}, got {tuple(pool)}")
    return *x.shape[:2], g.channels, *g.space[:-2], height, width


def empty_output(x: Tensor, g: Geometry, pool: Sequence[int]) -> Tensor:
    """Allocates the output of the forward pass."""
    return _empty(output_shape(x, g, pool), x, None)


def empty_state(x: Tensor, g: Geometry, variables: int) -> Tensor:
    """Allocates the state of the neurons `[K, N, C, ...]`."""
    return _empty((variables, g.batch, g.channels, *g.space), x, state_dtype(x))


def empty_grad_state(x: Tensor, g: Geometry, variables: int, needed: bool) -> Tensor:
    """Allocates dL/dstate of the neurons, without elements if it is not needed."""
    return empty_state(x, g, variables) if needed else x.new_empty(0, dtype=state_dtype(x))


def no_gradient(x: Tensor, weight: Tensor, options: Sequence[Any], time_dim: int) -> Tensor:
    """Returns a zero gradient in the shape of the output for (stride, padding, dilation, groups, pool)."""
    *map_, pool = options
    return empty_output(x, geometry(x, weight, ConvOptions(*map_), time_dim), pool).zero_()


def empty_bits(x: Tensor, g: Geometry, keep: bool) -> Tensor:
    """Allocates the record's spike bits, without elements unless they are saved."""
    if not keep:
        return x.new_empty(0, dtype=torch.int16)
    shape = bits_shape(x, g)
    return cpu_memory.empty_permuted(shape, range(len(shape)), x, torch.int16)


def bits_shape(x: Tensor, g: Geometry) -> tuple[int, ...]:
    """Returns the shape of the record's spike bits: 16-bit words of each row of neurons."""
    return (*x.shape[:2], g.height, -(-g.row // GROUP))


def elements(tensor: Tensor | None) -> dict[str, Any]:
    """Returns `Elements` of cpp/include/snnlib/core/dtype.h."""
    return {"data": tensor, "dtype": 0 if tensor is None else native.DTYPE_CODES[tensor.dtype]}


def input_sequence(x: Tensor, time_dim: int) -> dict[str, Any]:
    """Returns `InputSequence` of cpp/include/snnlib/layer/layer.h."""
    strides = x.stride()
    named = {"step": strides[time_dim], "batch": strides[1 - time_dim], "channel": strides[2]}
    return {**named, "height": strides[-2], "width": strides[-1], "elements": elements(x)}


def frame_order(g: Geometry, time_dim: int) -> dict[str, int]:
    """Returns `FrameOrder` of cpp/include/snnlib/layer/layer.h for an output in the input's time layout."""
    step, batch = (g.batch, 1) if time_dim == 0 else (1, g.steps)
    return {"step_stride": step, "batch_stride": batch}


def _padded(floats: int) -> int:
    return -(-floats // GROUP) * GROUP


def kernel_rows(weight: Tensor, dilation: Sequence[int], by_scatter: bool) -> Tensor:
    """Returns a weight `[O, C, kh, kw]` in float32, in the order in which `scatter` (by event) or `gather` read it."""
    by_tap = _by_tap(_spread(weight.to(torch.float32), dilation))
    rows = by_tap.flip(1).transpose(1, 2).flatten(2) if by_scatter else by_tap.flatten(1, 2)
    return _whole_groups(rows).contiguous()


def tap_rows(weight: Tensor) -> Tensor:
    """Returns a weight `[O, C, kh, kw]` as float32 rows `[slices, kh, kw, C, O / slices]`, padded to whole groups."""
    rows = _whole_groups(_by_tap(weight.to(torch.float32)))
    piece = math.gcd(rows.shape[-1], _PIECE)
    return rows.view(*rows.shape[:-1], rows.shape[-1] // piece, piece).movedim(3, 0).contiguous()


def _whole_groups(rows: Tensor) -> Tensor:
    # Padding by nothing would copy.
    missing = -rows.shape[-1] % GROUP
    return F.pad(rows, (0, missing)) if missing else rows


def _by_tap(weight: Tensor) -> Tensor:
    """Returns `[kh, kw, C, O]`, by a matrix transposition where weights are many: others take torch longer."""
    if weight.numel() < _SMALL:
        return weight.permute(2, 3, 1, 0)
    outputs, inputs, *taps = weight.shape
    matrix = weight.flatten(1).t().contiguous()
    return matrix.view(inputs, *taps, outputs).movedim(0, 2)


def from_tap_rows(rows: Tensor) -> Tensor:
    """Returns `[O, C, kh, kw]` from a gradient `[kh, kw, C, O]`."""
    *taps, inputs, outputs = rows.shape
    matrix = rows.movedim(2, 0).flatten(0, 2).t().contiguous()
    return matrix.view(outputs, inputs, *taps)


def _spread(weight: Tensor, dilation: Sequence[int]) -> Tensor:
    if max(dilation) == 1:
        return weight
    sizes = ((taps - 1) * step + 1 for taps, step in zip(weight.shape[2:], dilation, strict=True))
    wide = weight.new_zeros(*weight.shape[:2], *sizes)
    wide[..., :: dilation[0], :: dilation[1]] = weight
    return wide


def gradient_rows(g: Geometry, by_inputs: bool) -> tuple[int, ...]:
    """Returns the shape of a weight gradient in the kernels."""
    if not by_inputs:
        return g.kernel_h, g.channels, _padded(g.kernel_w * g.in_channels)
    block = block_channels(g)
    return _padded(g.channels) // block, g.in_channels, g.kernel_h, g.kernel_w, block


def from_gradient_rows(rows: Tensor, g: Geometry, dilation: Sequence[int], by_inputs: bool) -> Tensor:
    """`[O, C, kh, kw]`"""
    if by_inputs:
        wide = rows.flip(3).permute(0, 4, 1, 2, 3).flatten(0, 1)[: g.channels]
    else:
        total = rows[:, :, : g.kernel_w * g.in_channels]
        wide = total.reshape(g.kernel_h, g.channels, g.kernel_w, g.in_channels).permute(1, 3, 0, 2)
    return wide[..., :: dilation[0], :: dilation[1]].contiguous()
