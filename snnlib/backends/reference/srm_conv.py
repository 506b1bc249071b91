"""Convolutions, pools and records of layers. Equations: cpp/include/snnlib/layer/adjoint.h."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from snnlib.backends.native import state_dtype
from snnlib.checks import require

# Stride, padding and dilation by space axis; groups.
Options = tuple[Sequence[int], Sequence[int], Sequence[int], int]


def convolve(x: Tensor, weight: Tensor, options: Options) -> Tensor:
    """Returns currents of a spike tensor `[T, N, C, ...]` in the state's dtype, summed in the kernels' order."""
    stride, padding, dilation, groups = options
    dtype = state_dtype(x)
    # F.pad counts axes from the last one.
    wide = F.pad(x.to(dtype), [zeros for axis in reversed(padding) for zeros in (axis, axis)])
    # A group's input channels meet all output channels of the group.
    outputs, inputs, *kernel = weight.shape
    wide = wide.reshape(*x.shape[:2], groups, 1, inputs, *wide.shape[3:])
    weight = weight.to(dtype).reshape(groups, outputs // groups, inputs, *kernel, *(1 for _ in kernel))
    # Without input channels there is nothing to add: the shape is that of one tap of zeros.
    if inputs == 0:
        wide, weight, inputs = (
            F.pad(wide, [0] * (2 * len(kernel)) + [0, 1]),
            F.pad(weight, [0] * (4 * len(kernel)) + [0, 1]),
            1,
        )
    current: Tensor | float = 0.0
    for place in itertools.product(*(range(taps) for taps in kernel)):
        seen, tap = wide, weight
        axes = zip(place, kernel, stride, dilation, strict=True)
        for axis, (i, taps, step, gap) in enumerate(axes, start=5):
            last = wide.shape[axis] - 1 - gap * (taps - 1 - i)
            seen = seen.index_select(axis, torch.arange(gap * i, last + 1, step, device=x.device))
            tap = tap.select(3, i)
        for c in range(inputs):
            current = current + seen[:, :, :, :, c] * tap[:, :, c]
    assert isinstance(current, Tensor)
    return current.flatten(2, 3)


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


def _window_sums(spikes: Tensor, pool: Sequence[int]) -> Tensor:
    height, width = (size // window for size, window in zip(spikes.shape[-2:], pool, strict=True))
    inside = spikes[..., : height * pool[0], : width * pool[1]]
    return inside.reshape(*spikes.shape[:-2], height, pool[0], width, pool[1]).sum((-3, -1))


def pool_spikes(spikes: Tensor, pool: Sequence[int]) -> Tensor:
    """Mean of every window over the last two axes; windows do not overlap."""
    return _window_sums(spikes, pool) / (pool[0] * pool[1])


def shared_out(grad_output: Tensor, fired: Tensor, pool: Sequence[int]) -> Tensor:
    """dL/ds: the gradient of a window in equal parts to its spikes."""
    share = grad_output / _window_sums(fired.to(grad_output.dtype), pool)
    spread = share.repeat_interleave(pool[0], -2).repeat_interleave(pool[1], -1)
    missing = [size - other for size, other in zip(fired.shape[-2:], spread.shape[-2:], strict=True)]
    return torch.where(fired, F.pad(spread, (0, missing[1], 0, missing[0])), 0.0)


def _rows(sequence: Tensor) -> Tensor:
    """`[T, N, rows, W * C]` of a spike tensor `[T, N, C, ..., W]`, as the kernels see it."""
    return sequence.movedim(2, -1).flatten(-2).flatten(2, -2)


def _tasks(rows: Tensor, band: int) -> Iterator[Tensor]:
    """The part `[T, band, W * C]` of rows that each task of the kernels sees, in their order."""
    for sample in rows.unbind(1):
        yield from torch.split(sample, band, 1)


def write_entries(entry: Tensor, values: Sequence[Tensor], band: int, bits: Tensor, starts: Tensor) -> Tensor:
    """Fills `bits` and `starts`; returns values at recorded steps `[values, entries]`, in the kernels' order."""
    marked = _rows(entry)
    columns = [_tasks(_rows(value), band) for value in values]
    masks = list(_tasks(marked, band))
    parts = [torch.stack(task)[:, mask] for mask, *task in zip(masks, *columns, strict=True)]
    if masks:
        starts[1 : len(masks) + 1] = torch.stack([mask.sum() for mask in masks]).cumsum(0)
    in_words = F.pad(marked, (0, -marked.shape[3] % 16)).reshape(*bits.shape, 16)
    # Bit 15 is the sign of an int16.
    bits.copy_((in_words * (1 << torch.arange(16, device=bits.device))).sum(4))
    return torch.cat(parts, 1) if parts else values[0].new_empty(len(values), 0)


def read_entries(
    bits: Tensor, record: Tensor, starts: Tensor, shape: Sequence[int], band: int
) -> tuple[Tensor, list[Tensor]]:
    """Returns (recorded steps, their values) as tensors `[T, N, C, ...]` of this shape; values are 0 elsewhere."""
    channels, space = shape[2], shape[3:]
    row = space[-1] * channels
    unpacked = (bits.long().unsqueeze(4) >> torch.arange(16, device=bits.device) & 1).flatten(3).bool()
    marked, behind = unpacked[..., :row], unpacked[..., row:].any()
    values = [torch.zeros(marked.shape, dtype=record.dtype, device=record.device) for _ in record]
    masks = list(_tasks(marked, band))
    if masks:
        counts = torch.stack([mask.sum() for mask in masks])
        require(
            (counts == starts[: len(masks) + 1].diff()) & ~behind,
            lambda: ValueError("bits: expected as many spikes of each task as starts says, got others"),
        )
        order = torch.cat([mask.flatten() for mask in masks])
        for rows, column in zip(values, record, strict=True):
            filled = torch.zeros_like(order, dtype=record.dtype).masked_scatter_(order, column)
            pieces = torch.split(filled, [mask.numel() for mask in masks])
            for part, piece in zip(_tasks(rows, band), pieces, strict=True):
                part.copy_(piece.view(part.shape))
    marked, *values = (
        rows.reshape(*shape[:2], *space, channels).movedim(-1, 2) for rows in (marked, *values)
    )
    return marked, values
