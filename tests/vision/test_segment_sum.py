"""Segment sums: worked vectors, float64 and numpy oracles, any order, long segments, NaN, gradients, messages."""

from typing import Any

import numpy as np
import pytest
import torch
from compare import assert_bits, assert_close
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from snnlib import functional as F
from snnlib.vision import segment

TOLERANCE = {torch.float64: 1e-14, torch.float32: 1e-6, torch.bfloat16: 2**-8, torch.float16: 2**-10}


def _oracle(x: Tensor, ranks: Tensor) -> tuple[Tensor, Tensor]:
    distinct, inverse = np.unique(ranks.numpy(), return_inverse=True)
    sums = np.zeros((len(distinct), *x.shape[1:]))
    np.add.at(sums, inverse, x.double().numpy())
    return torch.from_numpy(sums), torch.from_numpy(distinct)


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_nan_and_infinity_stay_in_their_segment(value: float) -> None:
    x = torch.tensor([value, 1, 2, 3]).unsqueeze(1).repeat(1, 3)
    ranks = torch.tensor([0, 0, 1, 1])
    for sums in (F.segment_sum(x, ranks).sums, segment.segment_sum_dense(x, ranks, 3)[:2]):
        assert not sums[0].isfinite().any()
        assert (sums[1] == 5).all()


def test_no_rows_and_rows_without_values() -> None:
    x = torch.zeros(0, 9, requires_grad=True)
    none = torch.zeros(0, dtype=torch.int64)
    sums, ranks = F.segment_sum(x, none)
    assert sums.shape == (0, 9) and ranks.shape == (0,)
    dense = segment.segment_sum_dense(x, none, 4)
    assert torch.equal(dense, torch.zeros(4, 9))
    (sums.sum() + dense.sum()).backward()
    assert x.grad.shape == (0, 9)
    sums, ranks = F.segment_sum(torch.zeros(3, 0), torch.tensor([4, 1, 4]))
    assert sums.shape == (2, 0) and ranks.tolist() == [1, 4]
    assert segment.segment_sum_dense(torch.zeros(3, 0), torch.tensor([1, 1, 0]), 5).shape == (5, 0)


@pytest.mark.parametrize("shape", [(), (1,), (7,), (8,), (3, 5)], ids=str)
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_against_numpy(dtype: torch.dtype, shape: tuple[int, ...], rng: torch.Generator) -> None:
    x = torch.randn(600, *shape, generator=rng, dtype=torch.float64).to(dtype)
    segments = torch.randint(0, 40, (600,), generator=rng)
    expected, distinct = _oracle(x, segments * 1009 - 7000)
    sums, ranks = F.segment_sum(x, segments * 1009 - 7000)
    assert torch.equal(ranks, distinct)
    assert sums.dtype == dtype
    assert_close(sums, expected, TOLERANCE[dtype])
    dense = segment.segment_sum_dense(x, segments, 40)
    assert dense.dtype == dtype
    assert_close(dense, expected, TOLERANCE[dtype])


@given(st.lists(st.tuples(st.integers(-(2**62), 2**62), st.integers(-1000, 1000)), max_size=60), st.randoms())
def test_order_of_rows_plays_no_part(rows: list[tuple[int, int]], random: Any) -> None:
    """Small integers have exact sums."""

    def sums(pairs: list[tuple[int, int]]) -> dict[int, float]:
        x = torch.tensor([value for _, value in pairs], dtype=torch.float32)
        ranks = torch.tensor([rank for rank, _ in pairs], dtype=torch.int64)
        result = F.segment_sum(x, ranks)
        assert result.ranks.tolist() == sorted({rank for rank, _ in pairs})
        return dict(zip(result.ranks.tolist(), result.sums.tolist(), strict=True))

    expected: dict[int, float] = {}
    for rank, value in rows:
        expected[rank] = expected.get(rank, 0) + value
    shuffled = random.sample(rows, len(rows))
    assert sums(rows) == sums(shuffled) == expected


@pytest.mark.parametrize("width", [1, 8], ids=["narrow", "wide"])
@pytest.mark.parametrize("segments", [1, 3, 100_000])
def test_error_does_not_grow_with_the_number_of_rows(segments: int, width: int, rng: torch.Generator) -> None:
    """A running float32 sum loses 1e-2 of the sum of a million times 0.1, a prefix sum 1e-2 of small segments."""
    rows = 1_000_000 // width
    ids = torch.randint(0, segments, (rows,), generator=rng)
    for x in (torch.rand(rows, width, generator=rng), torch.full((rows, width), 0.1)):
        expected = torch.zeros(segments, width, dtype=torch.float64).index_add(0, ids, x.double())
        dense = segment.segment_sum_dense(x, ids, segments)
        assert ((dense - expected).abs() <= 1e-5 * expected).all()
        # Compact sums leave empty segments out.
        sums, ranks = F.segment_sum(x, ids)
        assert ((sums - expected[ranks]).abs() <= 1e-5 * expected[ranks]).all()


def test_large_neighbours_do_not_disturb_small_segments(rng: torch.Generator) -> None:
    x = torch.rand(1000, generator=rng)
    x[0] = 1e8
    ranks = torch.arange(1000) // 10
    expected = x.double().reshape(100, 10).sum(1)
    assert_close(F.segment_sum(x, ranks).sums[1:], expected[1:], 1e-6)


def test_half_precision_sums_in_float32() -> None:
    """70 000 ones: a float16 sum stops at 2048, a float16 prefix sum overflows."""
    x = torch.ones(70_000, 3, dtype=torch.float16)
    ranks = torch.arange(70_000) // 1000
    assert (F.segment_sum(x, ranks).sums == 1000).all()
    assert (segment.segment_sum_dense(x, ranks, 70) == 1000).all()


def test_same_bits_in_every_call_and_with_every_number_of_threads(rng: torch.Generator) -> None:
    x = torch.randn(40_000, 3, generator=rng)
    ids = torch.randint(0, 50, (40_000,), generator=rng)
    results = []
    for number in (1, 2, 3):
        torch.set_num_threads(number)
        results.append((F.segment_sum(x, ids).sums, segment.segment_sum_dense(x, ids, 50)))
    for result in results[1:]:
        assert_bits(result[0], results[0][0])
        assert_bits(result[1], results[0][1])


def test_views_are_read_as_they_are(rng: torch.Generator) -> None:
    x = torch.randn(30, 24, generator=rng)[::2, ::2]
    ids = torch.randint(0, 4, (30,), generator=rng)[::2]
    assert_bits(
        segment.segment_sum_dense(x, ids, 4), segment.segment_sum_dense(x.contiguous(), ids.contiguous(), 4)
    )
    assert_bits(F.segment_sum(x, ids).sums, F.segment_sum(x.contiguous(), ids.contiguous()).sums)


@pytest.mark.parametrize("assume_sorted", [False, True])
def test_gradients_of_both_orders(assume_sorted: bool, rng: torch.Generator) -> None:
    x = torch.randn(9, 2, generator=rng, dtype=torch.float64, requires_grad=True)
    ranks = torch.tensor([5, -1, 5, 5, 9, -1, 9, 30, 5])
    ranks = ranks.sort().values if assume_sorted else ranks

    def square(rows: Tensor) -> Tensor:
        return F.segment_sum(rows, ranks, assume_sorted=assume_sorted).sums.square()

    assert torch.autograd.gradcheck(square, x)
    assert torch.autograd.gradgradcheck(square, x)


def test_gradient_of_dense_sums(rng: torch.Generator) -> None:
    """Rows get the gradient of their segment, in the second order too."""
    x = torch.randn(700, 3, generator=rng, requires_grad=True)
    ids = torch.randint(0, 2, (700,), generator=rng) * 2
    g = torch.randn(4, 3, generator=rng)
    sums = segment.segment_sum_dense(x, ids, 4)
    (first,) = torch.autograd.grad(0.5 * (g * sums.square()).sum(), x, create_graph=True)
    torch.testing.assert_close(first, (g * sums)[ids])
    v = torch.randn(700, 3, generator=rng)
    (second,) = torch.autograd.grad(first, x, v)
    torch.testing.assert_close(second, (g * segment.segment_sum_dense(v, ids, 4))[ids])


X, IDS = torch.zeros(3, 2), torch.tensor([0, 1, 2])


@pytest.mark.parametrize(
    ("x", "ids", "error", "message"),
    [
        (X.long(), IDS, TypeError, "x: expected a floating dtype, got torch.int64"),
        (torch.zeros(()), IDS, ValueError, r"x: expected \[N\] or \[N, \.\.\.\], got shape \(\)"),
        (X, IDS.float(), TypeError, "{ids}: expected an integer dtype, got torch.float32"),
        (X, IDS.bool(), TypeError, "{ids}: expected an integer dtype, got torch.bool"),
        (X, [0, 1, 2], TypeError, "{ids}: expected a torch.Tensor, got list"),
        (X, IDS[:2], ValueError, r"{ids}: expected one integer per row of x, \[3\], got \(2,\)"),
        (X, IDS.to("meta"), ValueError, "{ids}: expected a tensor on cpu, got one on meta"),
    ],
    ids=str,
)
def test_wrong_arguments(x: Any, ids: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message.format(ids="ranks")):
        F.segment_sum(x, ids)
    with pytest.raises(error, match=message.format(ids="segments")):
        segment.segment_sum_dense(x, ids, 3)


def test_ranks_that_descend_against_the_promise() -> None:
    with pytest.raises(ValueError, match=r"ranks: expected ascending ranks .* got 1 after 5 at 2"):
        F.segment_sum(torch.zeros(4), torch.tensor([2, 5, 1, 9]), assume_sorted=True)


@pytest.mark.parametrize("bad", [-1, 3, 2**40])
def test_segments_out_of_range(bad: int) -> None:
    with pytest.raises(ValueError, match=rf"segments: expected integers in \[0, 3\), got {bad} at \(1,\)"):
        segment.segment_sum_dense(X, torch.tensor([0, bad, 2]), 3)


@pytest.mark.parametrize("count", [-1, 2.0, None])
def test_number_of_segments(count: Any) -> None:
    with pytest.raises(ValueError, match=f"num_segments: expected an integer >= 0, got {count}"):
        segment.segment_sum_dense(X, IDS, count)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32], ids=str)
def test_integer_dtypes(dtype: torch.dtype) -> None:
    x = torch.arange(36.0).reshape(4, 9)
    ids = torch.tensor([2, 0, 2, 1], dtype=dtype)
    expected = torch.stack((x[1], x[3], x[0] + x[2]))
    sums, ranks = F.segment_sum(x, ids)
    assert ranks.dtype == dtype and torch.equal(sums, expected)
    dense = segment.segment_sum_dense(x, ids, 1000)
    assert torch.equal(dense[:3], expected) and not dense[3:].any()


def test_small_integers_are_not_compared_with_a_count_that_wraps() -> None:
    with pytest.raises(ValueError, match=r"^segments: expected integers in \[0, 1000\), got -1 at \(1,\)$"):
        segment.segment_sum_dense(torch.ones(2, 1), torch.tensor([3, -1], dtype=torch.int8), 1000)
