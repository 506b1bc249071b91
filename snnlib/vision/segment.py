"""Sums over segments: rows of a tensor added up by an integer per row."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import FunctionCtx

from snnlib.checks import check_device, check_floating, check_rank

# Values added one after the other before partial sums are taken: bounds the rounding error to 256 units in the last
# place whatever the number of rows, and shares a long segment among threads.
_PIECE = 256
# Rows of this many values and more are sorted and gathered; narrower ones are not worth the sort.
_WIDE = 8


class SegmentSums(NamedTuple):
    """Result of `segment_sum`: sums `[S, ...]` and the rank `[S]` that each belongs to, ascending."""

    sums: Tensor
    ranks: Tensor


def check_integers(name: str, tensor: Tensor) -> None:
    """Raise TypeError unless `tensor` holds integers."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{name}: expected a torch.Tensor, got {type(tensor).__name__}")
    if tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool:
        raise TypeError(f"{name}: expected an integer dtype, got {tensor.dtype}")


def check_count(name: str, count: int) -> None:
    """Raise ValueError unless `count` is an integer >= 0."""
    if not isinstance(count, (int, torch.SymInt)) or count < 0:
        raise ValueError(f"{name}: expected an integer >= 0, got {count!r}")


def check_below(name: str, ids: Tensor, count: int, but: int | None = None) -> None:
    """Raise ValueError unless all `ids` lie in `[0, count)` or equal `but`.

    Reads the values, so it waits for a GPU. A compiled graph goes without: there the indexing itself checks.
    """
    if torch.compiler.is_compiling() or ids.numel() == 0:
        return
    low, high = (int(bound) for bound in ids.aminmax())
    if low >= 0 and high < count:
        return
    # Small integers would be compared with a count that wraps.
    ids = ids.long()
    outside = (ids < 0) | (ids >= count)
    if but is not None:
        outside &= ids != but
    if bool(outside.any()):
        where = tuple(outside.nonzero()[0].tolist())
        raise ValueError(f"{name}: expected integers in [0, {count}), got {int(ids[where])} at {where}")


def _check_rows(x: Tensor, name: str, ids: Tensor) -> None:
    check_floating("x", x)
    check_rank("x", x, "[N] or [N, ...]", at_least=1)
    check_integers(name, ids)
    check_device(name, ids, x)
    if ids.shape != x.shape[:1]:
        raise ValueError(f"{name}: expected one integer per row of x, [{x.shape[0]}], got {tuple(ids.shape)}")


def _rows(x: Tensor) -> Tensor:
    """Rows as a matrix `[N, D]` in float32, or float64 for float64."""
    rows = x.reshape(x.shape[0], math.prod(x.shape[1:]))
    return rows.to(torch.promote_types(x.dtype, torch.float32))


def _sort(ids: Tensor) -> tuple[Tensor, Tensor]:
    """Sorted ids, int32 where they fit, and their order: equal ids stay in theirs."""
    if ids.numel():
        # Keys of 32 bits sort faster than of 64.
        low, high = ids.aminmax()
        if int(low) >= -(2**31) and int(high) < 2**31:
            ids = ids.int()
    ordered, order = ids.sort(stable=True)
    return ordered, order


def _add_runs(rows: Tensor, order: Tensor, lengths: Tensor) -> Tensor:
    """Sums of consecutive runs of `rows[order]`, long runs in pieces: `[S, D]`."""
    if rows.numel() == 0:
        return rows.new_zeros(lengths.shape[0], rows.shape[1])
    starts = lengths.cumsum(0) - lengths
    pieces = (lengths + _PIECE - 1) // _PIECE
    if int(pieces.max()) == 1:
        return F.embedding_bag(order, rows, starts, mode="sum")
    run = torch.repeat_interleave(pieces)
    piece = torch.arange(run.shape[0], device=run.device)
    nth = piece - (pieces.cumsum(0) - pieces)[run]
    return _add_runs(F.embedding_bag(order, rows, starts[run] + nth * _PIECE, mode="sum"), piece, pieces)


class _RunSum(torch.autograd.Function):
    """`_add_runs` with its gradient: each row gets that of its run."""

    @staticmethod
    def forward(rows: Tensor, order: Tensor, lengths: Tensor) -> Tensor:
        return _add_runs(rows, order, lengths)

    @staticmethod
    def setup_context(ctx: FunctionCtx, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
        _, order, lengths = inputs
        ctx.save_for_backward(order, lengths)

    @staticmethod
    def backward(ctx: FunctionCtx, g: Tensor) -> tuple[Tensor, None, None]:
        order, lengths = ctx.saved_tensors  # type: ignore[attr-defined]
        run_in_order = torch.repeat_interleave(lengths, output_size=order.shape[0])
        run = torch.empty_like(run_in_order).scatter_(0, order, run_in_order)
        return g.index_select(0, run), None, None


def segment_sum(x: Tensor, ranks: Tensor, *, assume_sorted: bool = False) -> SegmentSums:
    """Sum the rows of equal rank: `sums[s] = sum over { i : ranks[i] = r_s } of x[i]`.

    `r_0 < r_1 < ...` are the distinct ranks, so neither ranks nor rows need any order, and permuting both together
    changes rounding at most. `dL/dx[i] = dL/dsums[s(i)]`. Sums are taken segment by segment, in float32 for half
    inputs, and in pieces where a segment is long: the error does not grow with the number of rows, NaN and infinity
    stay in their segment, and repeated calls give the same bits. With `segment_sum_dense` nothing has to be sought.

    Args:
        x: rows `[N]` or `[N, ...]`, any floating dtype.
        ranks: one integer per row `[N]`, any values; rows of equal rank are added.
        assume_sorted: raise instead of sorting where ranks descend. Sorted ranks are noticed and cost no sort
            in either case.

    Returns:
        `SegmentSums(sums, ranks)`: `[S, ...]` in the dtype of x, and `[S]`, ascending. S depends on the values, so
        a GPU is waited for.

    Raises:
        TypeError: x is no floating tensor or `ranks` none of integers.
        ValueError: lengths differ; `assume_sorted` and ranks that descend.

    Source: voxel pooling of Philion and Fidler, "Lift, Splat, Shoot", ECCV 2020, section 4.2, without the prefix sum.

    >>> import torch, snnlib
    >>> x = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0])
    >>> snnlib.functional.segment_sum(x, torch.tensor([2, 5, 2, 7, 7]))
    SegmentSums(sums=tensor([4., 2., 9.]), ranks=tensor([2, 5, 7]))
    """
    _check_rows(x, "ranks", ranks)
    dtype = ranks.dtype
    descends = ranks[1:] < ranks[:-1]
    if not bool(descends.any()):
        order = torch.arange(ranks.shape[0], device=ranks.device)
    elif assume_sorted:
        at = int(descends.nonzero()[0]) + 1
        raise ValueError(
            f"ranks: expected ascending ranks with assume_sorted, got {int(ranks[at])} after "
            f"{int(ranks[at - 1])} at {at}"
        )
    else:
        ranks, order = _sort(ranks)
    distinct, lengths = torch.unique_consecutive(ranks, return_counts=True)
    distinct = distinct.to(dtype)
    sums: Tensor = _RunSum.apply(_rows(x), order, lengths)  # type: ignore[no-untyped-call]
    return SegmentSums(sums.to(x.dtype).reshape(distinct.shape[0], *x.shape[1:]), distinct)


def segment_sum_dense(x: Tensor, segments: Tensor, num_segments: int) -> Tensor:
    """Sum the rows of each of a known number of segments: `sums[s] = sum over { i : segments[i] = s } of x[i]`.

    As `segment_sum`, with a row for every s, zero where a segment is empty. Wide rows are sorted by segment and added
    in float32, narrow ones (fewer than 8 values) and those of a compiled graph are scattered in float64.

    Args:
        x: rows `[N]` or `[N, ...]`, any floating dtype.
        segments: integers in `[0, num_segments)`, `[N]`.
        num_segments: number of segments S.

    Returns:
        Sums `[S, ...]` in the dtype of x.

    Raises:
        TypeError: x is no floating tensor or `segments` none of integers.
        ValueError: lengths differ, a segment out of range, `num_segments` no integer >= 0.

    >>> import torch, snnlib
    >>> x = torch.tensor([[1.0, 10.0], [2.0, 20.0], [3.0, 30.0]])
    >>> snnlib.functional.segment_sum_dense(x, torch.tensor([2, 0, 2]), 3).tolist()
    [[2.0, 20.0], [0.0, 0.0], [4.0, 40.0]]
    """
    _check_rows(x, "segments", segments)
    check_count("num_segments", num_segments)
    check_below("segments", segments, num_segments)
    rows = _rows(x)
    if rows.shape[1] >= _WIDE and rows.dtype == torch.float32 and not torch.compiler.is_compiling():
        _, order = _sort(segments)
        lengths = torch.bincount(segments, minlength=num_segments)
        sums: Tensor = _RunSum.apply(rows, order, lengths)  # type: ignore[no-untyped-call]
    else:
        sums = rows.new_zeros(num_segments, rows.shape[1], dtype=torch.float64)
        sums = sums.index_add(0, segments.long(), rows.double())
    return sums.to(x.dtype).reshape(num_segments, *x.shape[1:])
