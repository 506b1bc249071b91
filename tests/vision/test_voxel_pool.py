"""Voxel pooling: worked vectors, a plain loop, dropped points, cell counts, reductions, gradients, messages."""

import math
from collections import defaultdict
from typing import Any

import pytest
import torch
from compare import assert_close
from torch import Tensor

import snnlib
from snnlib import functional as F

UNIT = [(0, 2, 1), (0, 2, 1)]
POINTS = torch.tensor([[0.2, 0.1], [1.9, 0.4], [-0.3, 0.2], [1.2, 0.9], [0.7, 1.5], [2.0, 0.0]])
VALUES = torch.arange(1.0, 7.0).unsqueeze(1)
REDUCE = {"sum": sum, "mean": lambda values: sum(values) / len(values), "max": max}
TOLERANCE = {torch.float64: 1e-14, torch.float32: 1e-6, torch.bfloat16: 2**-8, torch.float16: 2**-10}


def _loop(
    features: Tensor, points: Tensor, bounds: list[Any], batch: Tensor, size: int, reduce: str
) -> Tensor:
    """Pools point by point, in Python's float64."""
    cells = [round((high - low) / step) for low, high, step in bounds]
    members = defaultdict(list)
    for p, point in enumerate(points.double().tolist()):
        if all(low <= value < high for value, (low, high, _) in zip(point, bounds, strict=True)):
            index = [math.floor((v - low) / step) for v, (low, _, step) in zip(point, bounds, strict=True)]
            members[(int(batch[p]), *index)].append(features[p].double())
    grid = torch.zeros(size, features.shape[1], *cells, dtype=torch.float64)
    for (item, *index), rows in members.items():
        for channel in range(features.shape[1]):
            grid[(item, channel, *index)] = REDUCE[reduce]([row[channel] for row in rows])
    return grid


def _scene(rng: torch.Generator, count: int, channels: int) -> tuple[Tensor, Tensor, Tensor]:
    """Points on a grid of 1/8, many on the edges of cells, some outside."""
    points = torch.randint(-12, 30, (count, 3), generator=rng) / 8
    return (torch.randn(count, channels, generator=rng), points, torch.randint(0, 3, (count,), generator=rng))


BOUNDS = [(-1, 2, 0.5), (0, 3, 1), (0.25, 2.25, 0.25)]


def test_half_open_unit_cells() -> None:
    """Truncation would put the point at -0.3 into cell 0, and 2.0 is outside, as is what lies a range below."""
    features = VALUES.clone().requires_grad_()
    grid = F.voxel_pool(features, POINTS, UNIT)
    assert grid.tolist() == [[[[1, 5], [6, 0]]]]
    grid.backward(torch.tensor([[[[1.0, 2], [3, 4]]]]))
    assert features.grad.flatten().tolist() == [1, 3, 0, 3, 2, 0]
    assert not F.voxel_pool(torch.ones(2, 1), torch.tensor([[-30.0], [29.0]]), [(-10, 10, 20)]).any()


@pytest.mark.parametrize(
    ("bound", "cells"),
    [
        ((0, 0.3, 0.1), 3),
        ((0, 0.6, 0.2), 3),
        ((0, 0.7, 0.1), 7),
        ((-50, 50, 0.5), 200),
        ((-10, 10, 20), 1),
        ((0, 1, 1 / 3), 3),
        ((4, 45, 1), 41),
    ],
)
def test_number_of_cells_is_not_truncated(bound: tuple[float, float, float], cells: int) -> None:
    assert snnlib.vision.voxel.voxel_cells([bound]) == snnlib.VoxelPool([bound]).cells == (cells,)
    low, _, step = bound
    centres = low + step * (torch.arange(cells).unsqueeze(1) + 0.5)
    assert torch.equal(F.voxel_pool(torch.ones(cells, 1), centres, [bound]), torch.ones(1, 1, cells))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_ends_of_a_decimal_range(dtype: torch.dtype) -> None:
    """0.7 rounds down in float32: as a number it is below the bound."""
    ends = torch.tensor([[-0.3], [0.7]], dtype=dtype)
    grid = F.voxel_pool(torch.tensor([[1.0], [2.0]]), ends, [(-0.3, 0.7, 0.1)])
    assert grid.tolist() == [[[1, 0, 0, 0, 0, 0, 0, 0, 0, 0]]]


@pytest.mark.parametrize("reduce", REDUCE)
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_against_a_plain_loop(dtype: torch.dtype, reduce: Any, rng: torch.Generator) -> None:
    features, points, batch = _scene(rng, 400, 2)
    features = features.to(dtype)
    expected = _loop(features, points, BOUNDS, batch, 4, reduce)
    for positions in (points, points.double(), points.half()):
        grid = F.voxel_pool(features, positions, BOUNDS, batch, 4, reduce=reduce)
        assert grid.dtype == dtype
        assert_close(grid, expected, TOLERANCE[dtype])
        assert torch.equal(snnlib.VoxelPool(BOUNDS, reduce)(features, positions, batch, 4), grid)
    assert torch.equal(F.voxel_pool(features, points, BOUNDS, batch, reduce=reduce), grid[:3])


def test_events_have_integer_coordinates(rng: torch.Generator) -> None:
    """`(t, p, y, x)` to `[B, C, T, 2, H, W]`; times of a whole day in microseconds lose nothing."""
    day = 86_400_000_000
    t = torch.randint(0, 6, (50,), generator=rng) * 10_000 + torch.randint(0, 2, (50,), generator=rng) * 9_999
    p, y, x = torch.randint(0, 2, (50,)), torch.randint(0, 3, (50,)), torch.randint(0, 4, (50,))
    bounds = [(day, day + 60_000, 10_000), (0, 2, 1), (0, 3, 1), (0, 4, 1)]
    grid = F.voxel_pool(torch.ones(50, 1), torch.stack((t + day, p, y, x), 1), bounds)
    expected = torch.zeros(1, 1, 6, 2, 3, 4)
    for e in range(50):
        expected[0, 0, t[e] // 10_000, p[e], y[e], x[e]] += 1
    assert torch.equal(grid, expected)


@pytest.mark.parametrize("reduce", REDUCE)
def test_dropped_points_have_no_gradient(reduce: Any) -> None:
    """Outside, NaN and infinite positions; their features may be NaN."""
    nan, inf = torch.nan, torch.inf
    points = torch.tensor([[0.5, 0.5], [nan, 0.5], [0.5, nan], [inf, 0.5], [0.5, -inf], [9, 9], [1.5, 1.5]])
    features = torch.tensor([[1.0], [nan], [nan], [nan], [nan], [nan], [2.0]], requires_grad=True)
    grid = F.voxel_pool(features, points, UNIT, reduce=reduce)
    assert grid.tolist() == [[[[1, 0], [0, 2]]]]
    grid.sum().backward()
    assert features.grad.flatten().tolist() == [1, 0, 0, 0, 0, 0, 1]


@pytest.mark.parametrize("reduce", REDUCE)
def test_nan_stays_in_its_voxel(reduce: Any) -> None:
    features = VALUES.repeat(1, 3)
    features[0] = torch.nan
    grid = F.voxel_pool(features, POINTS, UNIT, reduce=reduce)
    assert grid[:, :, 0, 0].isnan().all()
    assert grid.isnan().sum() == 3


def test_a_million_points(rng: torch.Generator) -> None:
    """Few cells: a running float32 sum is off by more than 1e-5."""
    features = torch.rand(1_000_000, 3, generator=rng)
    points = torch.rand(1_000_000, 1, generator=rng) * 4
    for bounds in ([(0, 4, 4)], [(0, 4, 2**-15)]):
        grid = F.voxel_pool(features, points, bounds)[0].double()
        cells = grid.shape[-1]
        index = (points.double().flatten() * cells / 4).long()
        expected = torch.zeros(cells, 3, dtype=torch.float64).index_add(0, index, features.double()).T
        assert ((grid - expected).abs() <= 1e-5 * expected).all()


@pytest.mark.parametrize("reduce", REDUCE)
def test_no_points_and_silent_features(reduce: Any) -> None:
    empty = torch.zeros(0, 5, requires_grad=True)
    grid = F.voxel_pool(empty, torch.zeros(0, 2), UNIT, reduce=reduce)
    assert torch.equal(grid, torch.zeros(1, 5, 2, 2))
    grid.sum().backward()
    none = torch.zeros(0, dtype=torch.int64)
    assert F.voxel_pool(empty, torch.zeros(0, 2), UNIT, none, 3, reduce=reduce).shape == (3, 5, 2, 2)
    assert F.voxel_pool(empty, torch.zeros(0, 2), UNIT, none, reduce=reduce).shape == (0, 5, 2, 2)
    silent = torch.zeros(6, 5, requires_grad=True)
    grid = F.voxel_pool(silent, POINTS, UNIT, reduce=reduce)
    assert not grid.any()
    grid.square().sum().backward()
    assert torch.equal(silent.grad, torch.zeros(6, 5))


def test_gradients_of_the_reductions() -> None:
    features = torch.tensor([[1.0], [4], [4], [2]], requires_grad=True)
    points = torch.tensor([[0.1], [0.2], [0.3], [1.5]])
    expected = {"sum": [3, 3, 3, 5], "mean": [1, 1, 1, 5], "max": [0, 1.5, 1.5, 5]}
    for reduce, gradient in expected.items():
        grid = F.voxel_pool(features, points, [(0, 2, 1)], reduce=reduce)  # type: ignore[arg-type]
        (g,) = torch.autograd.grad(grid, features, torch.tensor([[[3.0, 5.0]]]))
        assert g.flatten().tolist() == gradient


@pytest.mark.parametrize("reduce", REDUCE)
def test_gradcheck(reduce: Any, rng: torch.Generator) -> None:
    features, points, batch = _scene(rng, 12, 2)
    features = features.double().requires_grad_()
    assert torch.autograd.gradcheck(
        lambda x: F.voxel_pool(x, points, BOUNDS, batch, 3, reduce=reduce).square(), features
    )


def test_layer_says_what_it_does() -> None:
    layer = snnlib.VoxelPool([(0, 0.7, 0.1), [-1, 1, 1]], reduce="max")
    assert repr(layer) == "VoxelPool(bounds=((0, 0.7, 0.1), (-1, 1, 1)), cells=(7, 2), reduce=max)"
    assert not layer.state_dict()


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        ([], "bounds: expected .* for at least one axis, got none"),
        ((0, 2, 1), r"bounds\[0\]: expected finite \(low, high, step\) .* got 0"),
        ([(0, 1)], r"bounds\[0\]: expected finite \(low, high, step\) .* got \(0, 1\)"),
        ([(0, 2, 1), (1, 1, 1)], r"bounds\[1\]: .* got \(1, 1, 1\)"),
        ([(0, 1, 0)], r"bounds\[0\]: .* got \(0, 1, 0\)"),
        ([(0, math.inf, 1)], r"bounds\[0\]: .* got \(0, inf, 1\)"),
        ([(0, 1, 0.3)], r"bounds\[0\]: expected a whole number of steps, got \(0, 1, 0.3\): 3.33333 steps"),
        ([(0, 1, 2)], r"bounds\[0\]: expected a whole number of steps, got \(0, 1, 2\): 0.5 steps"),
        ([(0, 1, 1e9)], r"bounds\[0\]: expected a whole number of steps"),
    ],
    ids=str,
)
def test_wrong_bounds(bounds: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        snnlib.VoxelPool(bounds)
    with pytest.raises(ValueError, match=message):
        F.voxel_pool(VALUES, POINTS, bounds)


BATCH = torch.zeros(6, dtype=torch.int64)


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"features": VALUES.long()}, TypeError, "features: expected a floating dtype, got torch.int64"),
        ({"features": VALUES[:, 0]}, ValueError, r"features: expected \[P, C\], got shape \(6,\)"),
        ({"points": POINTS > 0}, TypeError, "points: expected a tensor of real numbers, got torch.bool"),
        ({"points": [0.0]}, TypeError, "points: expected a tensor of real numbers, got <class 'list'>"),
        ({"points": POINTS[:5]}, ValueError, r"points: expected \[P, D\] = \(6, 2\), .* got shape \(5, 2\)"),
        ({"points": POINTS[:, :1]}, ValueError, r"points: .* got shape \(6, 1\)"),
        ({"points": POINTS.to("meta")}, ValueError, "points: expected a tensor on cpu, got one on meta"),
        ({"batch": BATCH.float()}, TypeError, "batch: expected an integer dtype, got torch.float32"),
        ({"batch": BATCH[:5]}, ValueError, r"batch: expected \[P\] = \[6\], got shape \(5,\)"),
        ({"batch": BATCH - 1}, ValueError, r"batch: expected integers in \[0, 2\), got -1 at \(0,\)"),
        ({"batch": BATCH + 2}, ValueError, r"batch: expected integers in \[0, 2\), got 2 at \(0,\)"),
        (
            {"batch": None, "batch_size": 0},
            ValueError,
            r"batch: expected integers in \[0, 0\), got 0 at \(0,\)",
        ),
        ({"batch_size": -1}, ValueError, "batch_size: expected an integer >= 0, got -1"),
        ({"reduce": "prod"}, ValueError, "reduce: expected one of sum, mean, max, got 'prod'"),
    ],
    ids=str,
)
def test_wrong_arguments(changed: dict[str, Any], error: type[Exception], message: str) -> None:
    arguments = {"features": VALUES, "points": POINTS, "bounds": UNIT, "batch": BATCH, "batch_size": 2}
    with pytest.raises(error, match=message):
        F.voxel_pool(**arguments | changed)
