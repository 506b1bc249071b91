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
from snnlib.backends.arguments import LayerArgs
from snnlib.backends.cpu_memory import dense_strides
from snnlib.backends.geometry import GROUP, ConvOptions, Geometry, block_channels, geometry
from snnlib.backends.memo import once
from snnlib.backends.native import state_dtype
from snnlib.ops.sequence_layout import outer_dims, outer_strides

# Channels whose weights under one tap lie next to each other: few enough for the second cache, and whole lines of it.
_PIECE = 128
# A weight that lies in one piece.
_ONE_BLOCK = {"block": 1 << 62, "block_stride": 0}
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
    shape = *x.shape[:2], channels, *space
    return allocation(shape, x, x.dtype if dtype is None else dtype, outer_dims(x))()


def allocation(
    shape: Sequence[int], x: Tensor, dtype: torch.dtype, outer: tuple[int, int] = (0, 1)
) -> Callable[[], Tensor]:
    """Returns a function that allocates a channels-last sequence or state, whose outermost dimensions are `outer`."""
    # No view of another tensor, as autograd lets nobody write into a view that comes out of a function.
    return cpu_memory.allocation(shape, _order(shape, outer), x, dtype)


def _order(shape: Sequence[int], outer: tuple[int, int]) -> tuple[int, ...]:
    return *outer, *range(3, len(shape)), 2


@once
def lies_in_order(tensor: Tensor, like: Tensor | None = None) -> bool:
    """Returns whether a state, or a sequence with time and batch in the order of `like`, is channels-last.

    Strides of dimensions of size 1 are ignored.
    """
    outer = (0, 1) if like is None else outer_dims(like)
    strides = zip(
        tensor.shape, tensor.stride(), dense_strides(tensor.shape, _order(tensor.shape, outer)), strict=True
    )
    return all(stride == wanted for size, stride, wanted in strides if size > 1)


def laid_out(sequence: Tensor, dtype: torch.dtype, like: Tensor) -> Tensor:
    """Returns a sequence in this dtype, channels-last and in the order of time and batch of `like`."""
    if sequence.dtype == dtype and lies_in_order(sequence, like):
        return sequence
    return allocation(sequence.shape, sequence, dtype, outer_dims(like))().copy_(sequence)


def laid_out_state(state: Tensor, dtype: torch.dtype) -> Tensor:
    """Returns a state in this dtype and channels-last, copied if necessary."""
    if state.dtype == dtype and lies_in_order(state):
        return state
    return allocation(state.shape, state, dtype)().copy_(state)


def output_shape(x: Tensor, g: Geometry, pool: Sequence[int]) -> tuple[int, ...]:
    """Returns the shape of the output: spikes after pooling."""
    space = g.space[-2:]
    height, width = (size // window for size, window in zip(space, pool, strict=True))
    if height == 0 or width == 0:
        raise ValueError(f"kernel_size: expected windows that fit into {tuple(space)}, got {tuple(pool)}")
    return *x.shape[:2], g.channels, *g.space[:-2], height, width


def empty_output(x: Tensor, g: Geometry, pool: Sequence[int]) -> Tensor:
    """Allocates the output of the forward pass."""
    return allocation(output_shape(x, g, pool), x, x.dtype, outer_dims(x))()


def empty_state(x: Tensor, g: Geometry, variables: int) -> Tensor:
    """Allocates the state of the neurons `[K, N, C, ...]`."""
    return allocation((variables, g.batch, g.channels, *g.space), x, state_dtype(x))()


def empty_grad_state(x: Tensor, g: Geometry, variables: int, needed: bool) -> Tensor:
    """Allocates dL/dstate of the neurons, without elements if it is not needed."""
    return empty_state(x, g, variables) if needed else x.new_empty(0, dtype=state_dtype(x))


def no_gradient(x: Tensor, weight: Tensor, options: Sequence[Any]) -> Tensor:
    """Returns a zero gradient in the shape of the output for (stride, padding, dilation, groups, pool)."""
    *map_, pool = options
    return empty_output(x, geometry(x, weight, ConvOptions(*map_)), pool).zero_()


def bits_shape(x: Tensor, g: Geometry) -> tuple[int, ...]:
    """Returns the shape of the record's spike bits: 16-bit words of each row of neurons."""
    return (*x.shape[:2], g.height, -(-g.row // GROUP))


def elements(place: int, dtype: torch.dtype) -> dict[str, Any]:
    """Returns `Elements` of cpp/include/snnlib/core/dtype.h, with a slot for the tensor."""
    return {"data": native.slot(place), "dtype": native.DTYPE_CODES[dtype]}


def input_sequence(x: Tensor, place: int) -> dict[str, Any]:
    """Returns `InputSequence` of cpp/include/snnlib/layer/layer.h, with a slot for the tensor."""
    strides = x.stride()
    named = {"step": strides[0], "batch": strides[1], "channel": strides[2]}
    return {**named, "height": strides[-2], "width": strides[-1], "elements": elements(place, x.dtype)}


def frame_order(x: Tensor) -> dict[str, int]:
    """Returns `FrameOrder` of cpp/include/snnlib/layer/layer.h for sequences in the order of time and batch of x."""
    return dict(zip(("step_stride", "batch_stride"), outer_strides(x, 1), strict=True))


def _padded(floats: int) -> int:
    return -(-floats // GROUP) * GROUP


def weight_rows(
    call: LayerArgs, by_scatter: bool, place: int, *, back: bool = False
) -> dict[str, Any] | None:
    """Returns `WeightCopy` of cpp/include/snnlib/layer/weight_copy.h, with a slot for the weight `[O, C, kh, kw]`.

    The copy has the order in which `scatter` (by event) or `gather` read it, or with `back` that of the transposed
    convolution. None for convolutions without an event-driven kernel.
    """
    g, (gap_h, gap_w, *_) = call.geometry, call.options.dilation
    if g.unsupported:
        return None
    size, strides, first = list(call.weight.shape), list(call.weight.stride()), 0
    if back:
        size[:2], strides[:2] = size[1::-1], strides[1::-1]
        first, strides[3] = (size[3] - 1) * strides[3], -strides[3]
    outputs, inputs, width = *size[:2], g.kernel_w
    if by_scatter:
        row = _padded(width * outputs)
        to_first, kernel_row, column = (width - 1) * outputs, inputs * row, -outputs
    else:
        row = _padded(outputs)
        to_first, kernel_row, column = 0, width * inputs * row, inputs * row
    return {
        "from": elements(place, call.weight.dtype),
        "to": None,
        "size": size,
        "from_first": first,
        "from_stride": strides,
        "to_first": to_first,
        "to_stride": [1, row, gap_h * kernel_row, gap_w * column],
        **_ONE_BLOCK,
        "floats": g.kernel_h * kernel_row,
        "scale": 1.0,
    }


def weight_gradient(call: LayerArgs, by_inputs: bool, place: int) -> dict[str, Any] | None:
    """Returns `WeightCopy` from the kernels' gradient to `[O, C, kh, kw]`, with slots for this and for its factor.

    None as from `weight_rows`.
    """
    g, (gap_h, gap_w, *_) = call.geometry, call.options.dilation
    if g.unsupported:
        return None
    size, first, blocks = list(call.weight.shape), 0, _ONE_BLOCK
    if by_inputs:
        _, inputs, height, width, block = gradient_rows(g, by_inputs)
        first, strides = (width - 1) * block, [1, height * width * block, width * block, -block]
        blocks = {"block": block, "block_stride": inputs * strides[1]}
    else:
        _, outputs, row = gradient_rows(g, by_inputs)
        strides = [row, 1, outputs * row, size[1]]
    return {
        "from": None,
        "to": native.slot(place),
        "size": size,
        "from_first": first,
        "from_stride": [*strides[:2], gap_h * strides[2], gap_w * strides[3]],
        "to_first": 0,
        "to_stride": list(empty_gradient(call.weight).stride()),
        **blocks,
        "floats": math.prod(size),
        "scale": native.slot(place + 1),
    }


def tap_piece(channels: int) -> int:
    """Returns the number of output channels of a slice of `tap_rows`."""
    return math.gcd(_padded(channels), _PIECE)


def tap_rows(weight: Tensor, piece: int) -> Tensor:
    """Returns a weight `[O, C, kh, kw]` as float32 rows `[slices, kh, kw, C, piece]`, padded to whole groups."""
    rows = _whole_groups(_by_tap(weight.to(torch.float32)))
    return rows.view(*rows.shape[:-1], rows.shape[-1] // piece, piece).movedim(3, 0).contiguous()


def _whole_groups(rows: Tensor) -> Tensor:
    # Padding by nothing would copy.
    missing = -rows.shape[-1] % GROUP
    return F.pad(rows, (0, missing)) if missing else rows


def is_channels_last(weight: Tensor) -> bool:
    """Returns whether a weight `[O, C, kh, kw]` has its inputs next to each other, and not its kernel elements."""
    return (
        weight.ndim == 4
        and not weight.is_contiguous()
        and weight.is_contiguous(memory_format=torch.channels_last)
    )


def in_layout_of(weight: Tensor, grad: Tensor) -> Tensor:
    """Returns a gradient, or a copy, in the layout of its weight, which torch would else copy it into."""
    last = is_channels_last(weight)
    return grad.contiguous(memory_format=torch.channels_last if last else torch.contiguous_format)


def empty_gradient(weight: Tensor) -> Tensor:
    """Allocates the gradient of a weight in float32, in the weight's layout."""
    layout = torch.channels_last if is_channels_last(weight) else torch.contiguous_format
    return torch.empty(weight.shape, dtype=torch.float32, memory_format=layout)


def _by_tap(weight: Tensor) -> Tensor:
    """Returns `[kh, kw, C, O]`, by a matrix transposition where weights are many: others take torch longer."""
    if weight.numel() < _SMALL:
        return weight.permute(2, 3, 1, 0)
    outputs, inputs, *taps = weight.shape
    if is_channels_last(weight):
        return weight.permute(0, 2, 3, 1).flatten(1).t().contiguous().view(*taps, inputs, outputs)
    matrix = weight.flatten(1).t().contiguous()
    return matrix.view(inputs, *taps, outputs).movedim(0, 2)


def from_tap_rows(rows: Tensor, weight: Tensor) -> Tensor:
    """Returns a gradient in the layout of its weight `[O, C, kh, kw]` from one of rows `[kh, kw, C, O]`."""
    *taps, inputs, outputs = rows.shape
    if is_channels_last(weight):
        return rows.flatten(0, 2).t().contiguous().view(outputs, *taps, inputs).permute(0, 3, 1, 2)
    matrix = rows.movedim(2, 0).flatten(0, 2).t().contiguous()
    return matrix.view(outputs, inputs, *taps)


def gradient_rows(g: Geometry, by_inputs: bool) -> tuple[int, ...]:
    """Returns the shape of a weight gradient in the kernels."""
    if not by_inputs:
        return g.kernel_h, g.channels, _padded(g.kernel_w * g.in_channels)
    block = block_channels(g)
    return _padded(g.channels) // block, g.in_channels, g.kernel_h, g.kernel_w, block
