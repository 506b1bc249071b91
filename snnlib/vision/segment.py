"""Sums over segments: rows of a tensor added up by an integer per row."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from snnlib.checks import check_count, check_device, check_floating, check_integers, check_rank

__all__ = ["segment_sum"]


class SegmentSums(NamedTuple):
    """Result of `segment_sum`: sums `[S, ...]` and the rank `[S]` that each belongs to, ascending."""

    sums: Tensor
    ranks: Tensor


def check_below(name: str, ids: Tensor, count: int, but: int | None = None) -> None:
    """Raise ValueError unless all `ids` lie in `[0, count)` or equal `but`.

    Reads the values, so it waits for a GPU. A compiled graph goes without: there the indexing itself checks.
    """
    if torch.compiler.is_compiling():
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


def sum_rows(x: Tensor, segments: Tensor, count: int) -> Tensor:
    """Returns sums `[count, ...]` of the rows of each segment, added in float64 in their order, not rounded."""
    sums = x.new_zeros(count, *x.shape[1:], dtype=torch.float64)
    return sums.index_add(0, segments.long(), x.double())


def segment_sum(x: Tensor, ranks: Tensor, *, assume_sorted: bool = False) -> SegmentSums:
    """Sum the rows of equal rank: `sums[s] = sum over { i : ranks[i] = r_s } of x[i]`.

    `r_0 < r_1 < ...` are the distinct ranks, so neither ranks nor rows need any order, and permuting both together
    changes rounding at most. `dL/dx[i] = dL/dsums[s(i)]`. Sums are taken in float64 and rounded once: the error does
    not grow with the number of rows, and NaN and infinity stay in their segment. Repeated calls give the same bits; on
    a GPU with `torch.use_deterministic_algorithms(True)`. With `segment_sum_dense` nothing has to be sought.

    Args:
        x: rows `[N]` or `[N, ...]`, any floating dtype.
        ranks: one integer per row `[N]`, any values; rows of equal rank are added.
        assume_sorted: raise where ranks descend.

    Returns:
        `SegmentSums(sums, ranks)`: `[S, ...]` in the dtype of x, and `[S]`, ascending. S depends on the values, so
        a GPU is waited for.

    Raises:
        TypeError: x is not a floating-point tensor or `ranks` not an integer tensor.
        ValueError: lengths differ; `assume_sorted` and ranks that descend.

    Source: voxel pooling of Philion and Fidler, "Lift, Splat, Shoot", ECCV 2020, section 4.2, without the prefix sum.

    >>> import torch, snnlib
    >>> x = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0])
    >>> snnlib.functional.segment_sum(x, torch.tensor([2, 5, 2, 7, 7]))
    SegmentSums(sums=tensor([4., 2., 9.]), ranks=tensor([2, 5, 7]))
    """
    _check_rows(x, "ranks", ranks)
    descends = ranks[1:] < ranks[:-1]
    if assume_sorted and bool(descends.any()):
        at = int(descends.nonzero()[0]) + 1
        raise ValueError(
            f"ranks: expected ascending ranks with assume_sorted, got {int(ranks[at])} after "
            f"{int(ranks[at - 1])} at {at}"
        )
    distinct, segments = torch.unique(ranks, return_inverse=True)
    return SegmentSums(sum_rows(x, segments, len(distinct)).to(x.dtype), distinct)


def segment_sum_dense(x: Tensor, segments: Tensor, num_segments: int) -> Tensor:
    """Sum the rows of each of a known number of segments: `sums[s] = sum over { i : segments[i] = s } of x[i]`.

    As `segment_sum`, with `segments` in `[0, num_segments)` for the ranks, and a row for every s, zero where a segment
    is empty.

    Raises:
        ValueError: as in `segment_sum`; a segment out of range, `num_segments` no integer >= 0.

    >>> import torch, snnlib
    >>> x = torch.tensor([[1.0, 10.0], [2.0, 20.0], [3.0, 30.0]])
    >>> snnlib.vision.segment.segment_sum_dense(x, torch.tensor([2, 0, 2]), 3).tolist()
    [[2.0, 20.0], [0.0, 0.0], [4.0, 40.0]]
    """
    _check_rows(x, "segments", segments)
    check_count("num_segments", num_segments, least=0)
    check_below("segments", segments, num_segments)
    return sum_rows(x, segments, num_segments).to(x.dtype)
