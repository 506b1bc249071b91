"""How many products of nonzero numbers a linear operation has, exactly, from counts of nonzero inputs.

A nonzero input takes part in as many products as it meets nonzero weights, its fan-out. The products of a call are
therefore the sum over input cells of (frames in which the cell is nonzero) x (its fan-out): one pass over the input,
and one frame's worth of work for the fan-outs, in which borders, strides, dilation and groups are what they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

# Elements looked at at once, which stay in the cache.
_BLOCK = 1 << 17


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
    order = sorted(range(1, frames.dim()), key=frames.stride, reverse=True)
    ordered = frames.permute(0, *order)
    rows = ordered.flatten(1)
    counts = torch.zeros(rows.shape[1], dtype=torch.float64, device=frames.device)
    unit = True
    for block in torch.split(rows, max(1, _BLOCK // max(rows.shape[1], 1))):
        nonzero = block.ne(0).to(torch.float32)
        # A product with ones sums many times faster than sum(0); exact, as a block has fewer than 2**24 rows.
        counts += torch.mv(nonzero.t(), nonzero.new_ones(len(nonzero)))
        unit = unit and torch.equal(block.abs().to(torch.float32), nonzero)
    per_cell = counts.view(ordered.shape[1:]).permute([order.index(dim) for dim in range(1, frames.dim())])
    return Counts(per_cell, unit)


class ConvolutionMap(NamedTuple):
    """How a convolution connects cells: arguments of `aten::convolution`, with the sizes of a frame `[C, ...]`."""

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
        if int(weight.count_nonzero()) == weight.numel():
            return self.dense_fan_out(weight)
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

    def dense_fan_out(self, weight: Tensor) -> Tensor:
        """All weights that each input cell `[C, ...]` meets, in float64: the product of what each axis has."""
        outputs = weight.shape[1] if self.transposed else len(weight) // self.groups
        fan_out = torch.full((self.frame[0],), float(outputs), dtype=torch.float64, device=weight.device)
        axes = zip(
            self.frame[1:],
            self.out_frame[1:],
            weight.shape[2:],
            *(_per_axis(value, len(self.frame) - 1) for value in (self.stride, self.padding, self.dilation)),
            strict=True,
        )
        for size, out_size, taps, stride, padding, dilation in axes:
            # The wider side of the map as seen from each place of the other one, tap by tap.
            small, large = (size, out_size) if self.transposed else (out_size, size)
            steps = torch.arange(taps, device=weight.device) * dilation - padding
            places = torch.arange(small, device=weight.device)[:, None] * stride + steps
            inside = (places >= 0) & (places < large)
            met = inside.sum(1) if self.transposed else places[inside].bincount(minlength=large)
            fan_out = fan_out[..., None] * met.double()
        return fan_out


def _per_axis(value: Sequence[int], axes: int) -> list[int]:
    return list(value) * axes if len(value) == 1 else list(value)


def of_cells(counts: Counts, frames: int, fan_out: Tensor, dense_fan_out: Tensor) -> Products:
    """Products of frames `[B, ...]`, from the counts and the fan-outs of their cells.

    The cells of `dense_fan_out` may be fewer along space: the others are zeros that belong to the convolution.
    """
    cells = dense_fan_out.numel()
    return Products(
        effective=int((counts.per_cell * fan_out).sum()),
        dense=frames * int(dense_fan_out.sum()),
        unit=counts.unit,
        inputs=frames * cells,
        nonzero=counts.total,
    )


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
