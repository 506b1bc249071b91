"""Exact numbers of products of nonzero numbers in a linear operation, from counts of nonzero inputs.

A nonzero input takes part in as many products as it meets nonzero weights, its fan-out. The products of a call are
therefore the sum over input cells of (frames in which the cell is nonzero) x (its fan-out): one pass over the input,
and one frame's worth of work for the fan-outs, in which borders, strides, dilation and groups are what they are.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from snnlib.backends import native

# Elements looked at at once, which stay in the cache.
_BLOCK = 1 << 17
# Elements that torch counts before the kernel is called.
_SMALL = 1 << 15
# Cells of a frame whose counts stay in the cache.
_CELLS = 1 << 12
# Frames that are worth a thread of their own.
_FRAMES = 64


@dataclass(frozen=True)
class Products:
    """Of one linear operation: products with two nonzero factors, all products, and what the input was like.

    Args:
        effective: products whose factors both are nonzero.
        dense: all products.
        unit: whether all inputs are -1, 0 or 1, so that a product needs no multiplication.
        inputs: number of input elements.
        nonzero: how many of them are nonzero.
    """

    effective: int
    dense: int
    unit: bool
    inputs: int
    nonzero: int


@dataclass(frozen=True)
class Counts:
    """Nonzero elements of frames `[B, ...]`: per cell `[...]` in float64, and whether all are -1, 0 or 1."""

    per_cell: Tensor
    unit: bool

    @property
    def total(self) -> int:
        """Nonzero elements."""
        return int(self.per_cell.sum())


def nonzero_counts(frames: Tensor) -> Counts:
    """Nonzero elements of each cell over dimension 0."""
    with _unseen(frames):
        return _cell_counts(frames)


def _unseen(x: Tensor) -> AbstractContextManager[Any]:
    """Keeps a dispatch mode, which costs ten times what a small operation does, from seeing how a tensor is counted."""
    plain = type(x) in (Tensor, nn.Parameter)
    return torch._C._DisableTorchDispatch() if plain else nullcontext()


def _cell_counts(frames: Tensor) -> Counts:
    if frames.is_contiguous():
        counts, unit = _row_counts(frames.view(len(frames), math.prod(frames.shape[1:])))
        return Counts(counts.view(frames.shape[1:]), unit)
    order = sorted(range(1, frames.dim()), key=frames.stride, reverse=True)
    ordered = frames.permute(0, *order)
    counts, unit = _row_counts(ordered.flatten(1))
    per_cell = counts.view(ordered.shape[1:]).permute([order.index(dim) for dim in range(1, frames.dim())])
    return Counts(per_cell, unit)


def _row_counts(rows: Tensor) -> tuple[Tensor, bool]:
    """Nonzero elements of each column, in float64, and whether all are -1, 0 or 1."""
    frames, cells = rows.shape
    if not rows.numel() or 1 not in (rows.stride(1), cells) or not native.has_kernel("count_nonzero", rows):
        return _plain_counts(rows)
    parts = max(1, min(torch.get_num_threads(), frames // _FRAMES))
    counts = torch.empty(parts, cells, dtype=torch.int64)
    kernel = native.kernel("count_nonzero", rows)
    assert kernel is not None
    code, addresses = native.DTYPE_CODES[rows.dtype], (rows.data_ptr(), counts.data_ptr())
    unit = bool(kernel(code, frames, cells, rows.stride(0), parts, *addresses))
    return (counts[0] if parts == 1 else counts.sum(0)).double(), unit


def _plain_counts(rows: Tensor) -> tuple[Tensor, bool]:
    """The same in torch, block by block."""
    counts = torch.zeros(rows.shape[1], dtype=torch.float64, device=rows.device)
    unit = True
    for block in torch.split(rows, max(1, _BLOCK // max(rows.shape[1], 1))):
        nonzero = block.ne(0).to(torch.float32)
        # A product with ones sums many times faster than sum(0); exact, as a block has fewer than 2**24 rows.
        counts += torch.mv(nonzero.t(), nonzero.new_ones(len(nonzero)))
        unit = unit and torch.equal(block.abs().to(torch.float32), nonzero)
    return counts, unit


def nonzero(x: Tensor) -> int:
    """Nonzero elements of a tensor."""
    if not x.numel():
        return 0
    with _unseen(x):
        if x.numel() < _SMALL:
            return int(torch.count_nonzero(x))
        if x.dim() < 2:
            return _cell_counts(x.reshape(1, -1)).total
        # Many small frames where that needs no copy, whose counts stay in the cache.
        frames = x
        while frames.dim() > 2 and frames.shape[1:].numel() > _CELLS:
            if frames.stride(0) != frames.shape[1] * frames.stride(1):
                break
            frames = frames.flatten(0, 1)
        return _cell_counts(frames).total


class ConvolutionMap(NamedTuple):
    """Connections of a convolution: arguments of `aten::convolution`, with the sizes of a frame `[C, ...]`."""

    frame: Sequence[int]
    out_frame: Sequence[int]
    stride: Sequence[int]
    padding: Sequence[int]
    dilation: Sequence[int]
    transposed: bool
    output_padding: Sequence[int]
    groups: int

    def fan_out(self, weight: Tensor) -> Tensor:
        """Nonzero weights that each input cell `[C, ...]` meets, in float64."""
        # Outputs of a group are alike here: one stands for all, with the sum of their weights.
        binary = weight.ne(0)
        if self.transposed:
            sums = binary.sum(1, keepdim=True)
        else:
            sums = binary.view(self.groups, -1, *weight.shape[1:]).sum(1)
        ones = torch.ones(1, self.groups, *self.out_frame[1:], dtype=torch.float64, device=weight.device)
        like = torch.zeros(1, *self.frame, dtype=torch.float64, device=weight.device)
        # The adjoint of the convolution, of outputs that are all ones.
        options = (
            self.stride,
            self.padding,
            self.dilation,
            self.transposed,
            self.output_padding,
            self.groups,
        )
        fan_out: Tensor = torch.ops.aten.convolution_backward(
            ones, like, sums.double(), None, *options, [True, False, False]
        )[0]
        return fan_out[0]

    def dense_fan_out(self, shape: Sequence[int]) -> Tensor:
        """All weights, of this shape, that each input cell `[C, ...]` meets, in float64: a product over the axes."""
        outputs = shape[1] if self.transposed else shape[0] // self.groups
        fan_out = torch.full((self.frame[0],), float(outputs), dtype=torch.float64)
        axes = zip(
            self.frame[1:],
            self.out_frame[1:],
            shape[2:],
            *(_per_axis(value, len(self.frame) - 1) for value in (self.stride, self.padding, self.dilation)),
            strict=True,
        )
        for axis in axes:
            fan_out = fan_out[..., None] * _met_along(*axis, self.transposed)
        return fan_out


@functools.cache
def _met_along(
    size: int, out_size: int, taps: int, stride: int, padding: int, dilation: int, transposed: bool
) -> Tensor:
    """Taps that each place of an axis of the input meets, in float64."""
    # The wider side of the map as seen from each place of the other one, tap by tap.
    small, large = (size, out_size) if transposed else (out_size, size)
    places = np.arange(small)[:, None] * stride + np.arange(taps) * dilation - padding
    inside = (places >= 0) & (places < large)
    met = inside.sum(1) if transposed else np.bincount(places[inside], minlength=large)
    return torch.from_numpy(met.astype(np.float64))


def _per_axis(value: Sequence[int], axes: int) -> list[int]:
    return list(value) * axes if len(value) == 1 else list(value)


@dataclass(frozen=True)
class FanOut:
    """The fan-outs of a convolution's input.

    Args:
        per_cell: nonzero weights that each cell meets `[C, ...]`, in float64.
        table: the same, int32 `[..., C]`, for kernels.
        dense: all weights that the cells of a frame meet.
        cells: of a frame; zeros that belong to the convolution, as "same" adds them, are none.
    """

    per_cell: Tensor
    table: Tensor
    dense: int
    cells: int

    @staticmethod
    def of(weight: Tensor, how: ConvolutionMap, space: Sequence[int]) -> FanOut:
        """Those of a weight, for frames of which this part are inputs."""
        full = _dense_fan_outs(how, tuple(weight.shape), tuple(space), weight.device)
        if nonzero(weight) == weight.numel():
            return full
        per_cell = how.fan_out(weight)
        return replace(full, per_cell=per_cell, table=_as_table(per_cell))

    def products(self, frames: int, effective: int, nonzero: int, unit: bool) -> Products:
        """Products of so many frames."""
        return Products(effective, frames * self.dense, unit, frames * self.cells, nonzero)


# They follow from the geometry alone, so that a net without zero weights works them out in its first profile only.
@functools.lru_cache(maxsize=16)
def _dense_fan_outs(
    how: ConvolutionMap, shape: tuple[int, ...], space: tuple[int, ...], device: torch.device
) -> FanOut:
    everywhere = how.dense_fan_out(shape)
    dense = everywhere[(slice(None), *(slice(size) for size in space))]
    table = _as_table(everywhere).to(device)
    return FanOut(everywhere.to(device), table, int(dense.sum()), dense.numel())


def _as_table(per_cell: Tensor) -> Tensor:
    return per_cell.movedim(0, -1).to(torch.int32).contiguous()


def of_cells(counts: Counts, frames: int, fan_out: FanOut) -> Products:
    """Products of frames `[B, ...]`, from the counts and the fan-outs of their cells."""
    effective = int((counts.per_cell * fan_out.per_cell).sum())
    return fan_out.products(frames, effective, counts.total, counts.unit)


def matrix_counts(matrix: Tensor) -> Counts:
    """Nonzero elements of `[..., m, k]` over m, one number per leading dimension and k `[..., k]`, flat."""
    return nonzero_counts(matrix.transpose(-1, -2).reshape(-1, matrix.shape[-2]).t())


def of_matrices(left: Counts, right: Counts, rows: int, columns: int, input_is: str) -> Products:
    """Products of `[..., m, k] @ [..., k, n]` from `matrix_counts` of the first and of the second's transpose.

    Args:
        left, right: the counts.
        rows: m.
        columns: n.
        input_is: which factor is the input: `"left"`, `"right"`, or `"both"` as in attention, where it is enough that
            one of them has no elements but -1, 0 and 1.
    """
    length = left.per_cell.numel()
    counts, lines = (right, columns) if input_is == "right" else (left, rows)
    return Products(
        effective=int((left.per_cell * right.per_cell).sum()),
        dense=length * rows * columns,
        unit=left.unit or right.unit if input_is == "both" else counts.unit,
        inputs=length * lines,
        nonzero=counts.total,
    )
