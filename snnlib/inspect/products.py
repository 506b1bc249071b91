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
from dataclasses import dataclass
from typing import Any, NamedTuple

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


def nonzero(x: Tensor) -> int:
    """Nonzero elements of a tensor."""
    if x.numel() < _SMALL or x.dim() < 2:
        with _unseen(x):
            return int(torch.count_nonzero(x))
    # Many small frames where that needs no copy, whose counts stay in the cache.
    while x.shape[1:].numel() > _CELLS and x.dim() > 2 and x.stride(0) == x.shape[1] * x.stride(1):
        x = x.flatten(0, 1)
    return nonzero_counts(x).total


def nonzero_counts(frames: Tensor) -> Counts:
    """Nonzero elements of each cell over dimension 0."""
    with _unseen(frames):
        # Cells in the order in which they lie in memory.
        order = sorted(range(1, frames.dim()), key=frames.stride, reverse=True)
        ordered = frames if frames.is_contiguous() else frames.permute(0, *order)
        counts, unit = _row_counts(ordered.reshape(len(frames), math.prod(ordered.shape[1:])))
        per_cell = counts.view(ordered.shape[1:])
        if ordered is not frames:
            per_cell = per_cell.permute([order.index(dim) for dim in range(1, frames.dim())])
        return Counts(per_cell, unit)


def _unseen(x: Tensor) -> AbstractContextManager[Any]:
    """Keeps a dispatch mode, which costs ten times what a small operation does, from seeing how a tensor is counted."""
    plain = type(x) in (Tensor, nn.Parameter)
    return torch._C._DisableTorchDispatch() if plain else nullcontext()


def _row_counts(rows: Tensor) -> tuple[Tensor, bool]:
    """Nonzero elements of each column, in float64, and whether all are -1, 0 or 1."""
    frames, cells = rows.shape
    kernel = native.kernel("count_nonzero", rows) if rows.numel() else None
    if kernel is None or 1 not in (rows.stride(1), cells):
        return _plain_counts(rows)
    parts = max(1, min(torch.get_num_threads(), frames // _FRAMES))
    counts = torch.empty(parts, cells, dtype=torch.int64)
    sizes = {"frames": frames, "cells": cells, "frame_stride": rows.stride(0), "parts": parts}
    unit = bool(kernel(dtype=native.DTYPE_CODES[rows.dtype], **sizes, elements=rows, counts=counts))
    return counts.sum(0).double(), unit


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

    def fan_out(self, met: Tensor) -> Tensor:
        """Weights that each input cell `[C, ...]` meets, in float64, of those that `met` marks."""
        # Outputs of a group are alike here: one stands for all, with the sum of their weights.
        by_group = met.view(self.groups, -1, *met.shape[1:])
        sums = met.sum(1, keepdim=True) if self.transposed else by_group.sum(1)
        ones = torch.ones(1, self.groups, *self.out_frame[1:], dtype=torch.float64, device=met.device)
        like = torch.zeros(1, *self.frame, dtype=torch.float64, device=met.device)
        # The adjoint of the convolution, of outputs that are all ones.
        fan_out: Tensor = torch.ops.aten.convolution_backward(
            ones, like, sums.double(), None, *self[2:], [True, False, False]
        )[0]
        return fan_out[0]


@dataclass(frozen=True)
class FanOut:
    """The fan-outs of a convolution's input.

    Args:
        per_cell: nonzero weights that each cell meets `[C, ...]`, in float64.
        dense: all weights that the cells of a frame meet.
        cells: of a frame; zeros that belong to the convolution, as "same" adds them, are none.
    """

    per_cell: Tensor
    dense: int
    cells: int

    @staticmethod
    def of(weight: Tensor, how: ConvolutionMap, space: Sequence[int]) -> FanOut:
        """Those of a weight, for frames of which this part are inputs."""
        everywhere = _fan_out_of_all(how, tuple(weight.shape), weight.device)
        inputs = everywhere[(slice(None), *(slice(size) for size in space))]
        per_cell = everywhere if nonzero(weight) == weight.numel() else how.fan_out(weight.ne(0))
        return FanOut(per_cell, int(inputs.sum()), inputs.numel())

    @functools.cached_property
    def table(self) -> Tensor:
        """Fan-outs of the cells in int32 `[..., C]`, for kernels."""
        return self.per_cell.movedim(0, -1).to(torch.int32).contiguous()

    def products(self, frames: int, effective: int, nonzero: int, unit: bool) -> Products:
        """Products of so many frames."""
        return Products(effective, frames * self.dense, unit, frames * self.cells, nonzero)

    def products_of(self, frames: Tensor) -> Products:
        """Products of frames `[B, C, ...]`."""
        counts = nonzero_counts(frames)
        effective = int((counts.per_cell * self.per_cell).sum())
        return self.products(len(frames), effective, counts.total, counts.unit)


# It follows from the geometry alone, so that a net without zero weights works it out in its first profile only.
@functools.lru_cache(maxsize=16)
def _fan_out_of_all(how: ConvolutionMap, shape: tuple[int, ...], device: torch.device) -> Tensor:
    return how.fan_out(torch.ones(shape, device=device))


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
