"""The options that events and frames share, and the draws of one sample."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from snnlib.data.checks import check_int, check_number

Matrix = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class AugmentOptions:
    """Options of augmentation; `AugmentEvents` explains each."""

    shift: int = 0
    rotate: float = 0.0
    flip_horizontal: float = 0.0
    flip_vertical: float = 0.0
    flip_polarity: float = 0.0
    drop: float = 0.0
    drop_time: float = 0.0
    drop_area: float = 0.0

    def __post_init__(self) -> None:
        check_int("shift", self.shift, 0)
        check_number("rotate", self.rotate, 0, 180, "degrees in 0..180")
        for name in ("flip_horizontal", "flip_vertical", "flip_polarity"):
            check_number(name, getattr(self, name), 0, 1, "a probability in 0..1")
        for name in ("drop", "drop_time", "drop_area"):
            check_number(name, getattr(self, name), 0, 1, "a share in 0..1")

    def _draw_motion(self, rng: np.random.Generator) -> tuple[Matrix, npt.NDArray[np.int64]]:
        """A matrix (flip, then rotation) and a shift, both for columns `(x, y)`."""
        flip_x, flip_y = rng.random(2) < (self.flip_horizontal, self.flip_vertical)
        angle = self.rotate * rng.uniform(-1, 1)
        shift = rng.integers(-self.shift, self.shift, 2, endpoint=True)
        return rotation(angle) @ np.diag([1.0 - 2 * flip_x, 1.0 - 2 * flip_y]), shift

    def _draw_area(self, rng: np.random.Generator, height: int, width: int) -> tuple[slice, slice]:
        """Rows and columns of the rectangle to drop, in the shape of the sensor."""
        side = math.sqrt(self.drop_area)
        return draw_window(rng, height, side), draw_window(rng, width, side)


def rotation(degrees: float) -> Matrix:
    """The matrix that turns `(x, y)`, y pointing down, counterclockwise as seen on the picture."""
    angle = math.radians(degrees)
    return np.array([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]])


def draw_window(rng: np.random.Generator, size: int, share: float) -> slice:
    """A run of `share * size` cells, rounded, anywhere in `0..size - 1`."""
    length = round(share * size)
    start = int(rng.integers(0, size - length, endpoint=True))
    return slice(start, start + length)


def sample_generator() -> np.random.Generator:
    """A generator for one sample, seeded by one draw from torch's global generator."""
    return np.random.default_rng(int(torch.randint(2**63 - 1, ())))
