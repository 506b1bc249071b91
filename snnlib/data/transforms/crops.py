"""Crops of events and frames to a smaller sensor, about its centre or anywhere, or to a box of joined pixels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from snnlib.data.checks import check_int, check_sensor_size
from snnlib.data.events import Events, check_events
from snnlib.data.formats.nmnist_bin import NMNIST_SENSOR_SIZE
from snnlib.data.transforms.options import sample_generator

__all__ = ["CenterCrop", "CropPool", "RandomCrop"]


@dataclass(frozen=True)
class CenterCrop:
    """Crops to the middle of the sensor: rows and columns from `(sensor - size) // 2` on.

    Args:
        size: `(height, width)` of the crop.
        sensor_size: `(height, width)` of the sensor for events; frames have their own.

    Returns (called): for events `[E]` the events inside, with coordinates from 0; for frames
    `[..., H, W]` a part `[..., *size]`.

    Example:
        >>> from snnlib.data import as_events
        >>> events = as_events(t=[0, 1], x=[10, 33], y=[12, 12], p=[1, 1])
        >>> CenterCrop((20, 20), sensor_size=(34, 34))(events).tolist()
        [(0, 3, 5, 1)]
    """

    size: tuple[int, int]
    sensor_size: tuple[int, int] = NMNIST_SENSOR_SIZE

    def __post_init__(self) -> None:
        height, width = check_sensor_size("sensor_size", self.sensor_size)
        check_sensor_size("size", self.size, (height, width))

    def __call__(self, sample: Any) -> Any:
        height, width = self._frame_size(sample)
        return crop(sample, (height - self.size[0]) // 2, (width - self.size[1]) // 2, self.size)

    def _frame_size(self, sample: Any) -> tuple[int, int]:
        if not isinstance(sample, Tensor):
            return self.sensor_size
        if sample.dim() < 2 or sample.shape[-2] < self.size[0] or sample.shape[-1] < self.size[1]:
            raise ValueError(
                f"sample: expected frames of at least {self.size}, got shape {tuple(sample.shape)}"
            )
        return sample.shape[-2], sample.shape[-1]


@dataclass(frozen=True)
class RandomCrop(CenterCrop):
    """Crops to a part of the sensor at a uniformly random position, one draw from torch's global generator.

    Arguments and result are those of `CenterCrop`.

    Example:
        >>> import torch
        >>> RandomCrop((20, 24))(torch.zeros(30, 2, 34, 34)).shape
        torch.Size([30, 2, 20, 24])
    """

    def __call__(self, sample: Any) -> Any:
        (height, width), rng = self._frame_size(sample), sample_generator()
        top, left = rng.integers(0, (height - self.size[0] + 1, width - self.size[1] + 1))
        return crop(sample, int(top), int(left), self.size)


def crop(sample: Any, top: int, left: int, size: tuple[int, int]) -> Any:
    """The part of events `[E]` or frames `[..., H, W]` of `size` from row `top` and column `left` on, as a copy."""
    height, width = size
    if isinstance(sample, Tensor):
        return sample[..., top : top + height, left : left + width].clone()
    events: Events = check_events("sample", sample)
    x, y = events["x"].astype(np.int64) - left, events["y"].astype(np.int64) - top
    inside = (x >= 0) & (x < width) & (y >= 0) & (y < height)
    kept: Events = events[inside]
    kept["x"], kept["y"] = x[inside], y[inside]
    return kept


class CropPool:
    """Crops to a box, moves it to the origin, and joins `pool x pool` pixels to one.

    `x' = (x - left) // pool`, `y' = (y - top) // pool`; times and polarities stay. Picklable, as a `transform` before
    `ToFrames(sensor_size=transform.output_size)`.

    Args:
        box: `(top, left, height, width)` in pixels.
        pool: side of the square of pixels that becomes one.

    Attributes:
        output_size: `(height, width)` of the output, rounded up.

    Raises:
        TypeError: an argument of the wrong type; events that are not an event array.
        ValueError: an argument out of range.

    Example:
        >>> from snnlib.data import as_events
        >>> transform = CropPool(box=(100, 200, 64, 64), pool=2)
        >>> events = as_events(t=[0, 1, 2], x=[200, 263, 264], y=[100, 163, 100], p=[0, 1, 1])
        >>> transform(events).tolist(), transform.output_size
        ([(0, 0, 0, 0), (1, 31, 31, 1)], (32, 32))
    """

    def __init__(self, box: tuple[int, int, int, int], pool: int = 1) -> None:
        if not isinstance(box, (tuple, list)) or len(box) != 4:
            raise TypeError(f"box: expected (top, left, height, width), got {box!r}")
        names = ("top", "left", "height", "width")
        self.box = tuple(
            check_int(f"box[{i}] ({names[i]})", box[i], 0 if i < 2 else 1, 2**15) for i in range(4)
        )
        self.pool = check_int("pool", pool, 1, 2**15)
        self.output_size = -(-self.box[2] // self.pool), -(-self.box[3] // self.pool)

    def __call__(self, events: Events) -> Events:
        events = check_events("events", events)
        top, left, height, width = self.box
        x, y = events["x"], events["y"]
        inside = (x >= left) & (x < left + width) & (y >= top) & (y < top + height)
        kept: Events = events[inside]
        kept["x"] = (kept["x"] - left) // self.pool
        kept["y"] = (kept["y"] - top) // self.pool
        return kept

    def __repr__(self) -> str:
        return f"CropPool(box={self.box}, pool={self.pool})"
