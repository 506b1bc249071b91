"""Wrong arguments of the pooling functions: the message names the argument."""

from typing import Any

import pytest
import torch

from snnlib import functional as F

FRAMES = torch.zeros(2, 1, 3, 6, 6)


@pytest.mark.parametrize("pool", [F.spike_avg_pool2d, F.spike_max_pool2d])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kernel_size": 0}, r"kernel_size: expected an integer >= 1 or 2 of them, got 0"),
        ({"kernel_size": (2, 2, 2)}, r"kernel_size: .*got \(2, 2, 2\)"),
        ({"kernel_size": 2.0}, r"kernel_size: .*got 2\.0"),
        ({"kernel_size": 2, "stride": 0}, r"stride: .*got 0"),
        ({"kernel_size": 2, "padding": -1}, r"padding: .*got -1"),
        ({"kernel_size": 2, "padding": 2}, r"padding: expected at most half of kernel_size \(2, 2\)"),
        ({"kernel_size": 7}, r"kernel_size: expected windows that fit into \(6, 6\), got \(7, 7\)"),
    ],
    ids=str,
)
def test_options(pool: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        pool(FRAMES, **options)


def test_divisor() -> None:
    with pytest.raises(ValueError, match="divisor_override: expected an integer other than 0"):
        F.spike_avg_pool2d(FRAMES, 2, divisor_override=0)


def test_dilation_of_max_pooling() -> None:
    with pytest.raises(ValueError, match=r"dilation: .*got 0"):
        F.spike_max_pool2d(FRAMES, 2, dilation=0)


@pytest.mark.parametrize(
    ("pool", "shape"),
    [
        (F.spike_avg_pool1d, (2, 1, 3)),
        (F.spike_avg_pool2d, (2, 3, 6, 6)),
        (F.spike_avg_pool3d, (2, 1, 3, 6, 6)),
        (F.spike_max_pool2d, (3, 6, 6)),
    ],
)
def test_rank(pool: Any, shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"x: expected \[T, N, C, .*\], got shape"):
        pool(torch.zeros(shape), 2)


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int64])
@pytest.mark.parametrize("pool", [F.spike_avg_pool2d, F.spike_max_pool2d])
def test_integers(pool: Any, dtype: torch.dtype) -> None:
    with pytest.raises(
        TypeError, match=r"x: expected a floating dtype, got torch\..*; convert it with .float\(\)"
    ):
        pool(FRAMES.to(dtype), 2)


@pytest.mark.parametrize("pool", [F.spike_avg_pool2d, F.spike_max_pool2d])
def test_frames_without_pixels(pool: Any, path: str) -> None:
    with pytest.raises(ValueError, match=r"kernel_size: expected windows that fit into \(0, 4\)"):
        pool(torch.zeros(2, 1, 3, 0, 4), 2, 1, 1)
