"""Points with features to grids: sums, means or maxima over the points of each cell."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, get_args

import torch
from torch import Tensor

from snnlib.checks import check_choice, check_count, check_device, check_floating, check_integers, check_rank
from snnlib.vision.segment import check_below, sum_rows

__all__ = ["voxel_pool"]

Bounds = Sequence[tuple[float, float, float]]
Reduce = Literal["sum", "mean", "max"]


def voxel_cells(bounds: Bounds) -> tuple[int, ...]:
    """Number of cells of each axis: `(high - low) / step`, rounded, so that `(0, 0.7, 0.1)` has 7.

    Raises:
        ValueError: no axis; an axis that is not `low < high` and `step > 0`, all finite; a range that is no whole
            number of steps (to 1e-6 of a cell).

    >>> import snnlib
    >>> snnlib.vision.voxel.voxel_cells([(-50, 50, 0.5), (0, 0.7, 0.1)])
    (200, 7)
    """
    if len(bounds) == 0:
        raise ValueError("bounds: expected (low, high, step) for at least one axis, got none")
    cells = []
    for axis, bound in enumerate(bounds):
        three = not isinstance(bound, (int, float)) and len(bound) == 3
        low, high, step = bound if three else (math.nan, math.nan, math.nan)
        if not (-math.inf < low < high < math.inf and 0 < step < math.inf):
            raise ValueError(
                f"bounds[{axis}]: expected finite (low, high, step) with low < high and step > 0, got {bound}"
            )
        count = (high - low) / step
        if round(count) < 1 or abs(count - round(count)) > 1e-6:
            raise ValueError(
                f"bounds[{axis}]: expected a whole number of steps, got {bound}: {count:g} steps"
            )
        cells.append(round(count))
    return tuple(cells)


def _cell_of(points: Tensor, bounds: Bounds, batch: Tensor, cells: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Flat cell of each point in the grids of all items, and whether the point lies within the bounds: `[P]` each."""
    flat, inside = batch.long(), torch.ones_like(batch, dtype=torch.bool)
    for column, (low, high, _), count in zip(points.unbind(-1), bounds, cells, strict=True):
        # False for NaN.
        inside &= (column >= low) & (column < high)
        # Not negative inside, where truncation is floor. Half precision has fewer numbers than a large grid has cells.
        index = (column.double() - low) * (count / (high - low))
        flat = flat * count + index.clamp(0, count - 1).long()
    return flat, inside


def _check_points(features: Tensor, points: Tensor, axes: int, batch: Tensor | None) -> None:
    check_floating("features", features)
    check_rank("features", features, "[P, C]", exactly=2)
    if not isinstance(points, Tensor) or points.is_complex() or points.dtype == torch.bool:
        raise TypeError(
            f"points: expected a tensor of real numbers, got {getattr(points, 'dtype', type(points))}"
        )
    check_device("points", points, features)
    if points.shape != (features.shape[0], axes):
        raise ValueError(
            f"points: expected [P, D] = {(features.shape[0], axes)}, one row per feature and one column per axis "
            f"of bounds, got shape {tuple(points.shape)}"
        )
    if batch is None:
        return
    check_integers("batch", batch)
    check_device("batch", batch, features)
    if batch.shape != features.shape[:1]:
        raise ValueError(f"batch: expected [P] = [{features.shape[0]}], got shape {tuple(batch.shape)}")


def voxel_pool(
    features: Tensor,
    points: Tensor,
    bounds: Bounds,
    batch: Tensor | None = None,
    batch_size: int | None = None,
    *,
    reduce: Reduce = "sum",
) -> Tensor:
    """Pool the features of points over the cells of a grid.

    Point p lies in cell `i_d = floor((points[p, d] - low_d) / step_d)` of axis d if `low_d <= points[p, d] < high_d`
    for all d: cells are half open. `grid[b, :, i]` is the sum, mean or maximum of `features[p]` over the points of
    item b in cell i; empty cells are 0. Points outside and points with NaN take no part: their features get gradient
    0. The gradient of a feature is that of its cell (`"sum"`), divided by the cell's number of points (`"mean"`), or
    shared equally by the largest (`"max"`); points get none. Order of points, accuracy and NaN in features as in
    `segment_sum_dense`.

    With points `(t, p, y, x)` and learned features, events become a grid `[B, C, T, 2, H, W]`.

    Args:
        features: `[P, C]`, any floating dtype.
        points: coordinates `[P, D]`, real numbers or integers, in the units of `bounds`. Cells are computed in float64;
            ends of the range are compared in the dtype of `points`.
        bounds: `(low, high, step)` of each of the D axes, a whole number of steps: see `voxel_cells`.
        batch: item of each point in `[0, B)`, integers `[P]`. Default: all in item 0.
        batch_size: number of items B. Default `batch.max() + 1`, which waits for a GPU; 1 without `batch`.
        reduce: `"sum"` (default), `"mean"` or `"max"`.

    Returns:
        Grid `[B, C, *cells]` in the dtype of `features`, channels last in memory.

    Raises:
        TypeError: wrong dtype; the message names the argument.
        ValueError: wrong shape, bounds, reduction, or batch index out of range.

    Source: Philion and Fidler, "Lift, Splat, Shoot", ECCV 2020; for events Gehrig et al., "End-to-End Learning of
    Representations for Asynchronous Event-Based Data", ICCV 2019.

    >>> import torch, snnlib
    >>> points = torch.tensor([[0.2, 0.1], [1.9, 0.4], [-0.3, 0.2], [1.2, 0.9], [0.7, 1.5], [2.0, 0.0]])
    >>> features = torch.tensor([[1.0], [2.0], [3.0], [4.0], [5.0], [6.0]])
    >>> snnlib.functional.voxel_pool(features, points, [(0, 2, 1), (0, 2, 1)]).tolist()
    [[[[1.0, 5.0], [6.0, 0.0]]]]
    """
    cells = voxel_cells(bounds)
    check_choice("reduce", reduce, *get_args(Reduce))
    _check_points(features, points, len(cells), batch)
    if batch is None:
        batch = torch.zeros(points.shape[0], dtype=torch.int64, device=points.device)
        batch_size = 1 if batch_size is None else batch_size
    elif batch_size is None:
        batch_size = int(batch.max()) + 1 if batch.numel() else 0
    check_count("batch_size", batch_size, least=0)
    check_below("batch", batch, batch_size)
    flat, inside = _cell_of(points, bounds, batch, cells)
    total = batch_size * math.prod(cells)
    # A further cell takes the points that are dropped.
    index = torch.where(inside, flat, total)
    if reduce == "max":
        # The dropped ones share a cell: NaN there would reach their gradients.
        values = torch.where(inside.unsqueeze(1), features, 0)
        grid = features.new_zeros(total + 1, features.shape[1]).scatter_reduce(
            0, index.unsqueeze(1).expand_as(values), values, "amax", include_self=False
        )
    else:
        grid = sum_rows(features, index, total + 1)
        if reduce == "mean":
            grid = grid / sum_rows(torch.ones_like(index), index, total + 1).clamp(min=1).unsqueeze(1)
    return grid[:total].to(features.dtype).reshape(batch_size, *cells, features.shape[1]).movedim(-1, 1)
