"""Pictures that move in front of the simulated camera, by default in N-MNIST's three saccades.

A picture D of h x w cells is shown on a part of the sensor, interpolated by the Catmull-Rom cubic k, and displaced by
o(t) = (o_x, o_y) pixels from the middle of the sensor of H x W pixels:

    I(y, x, t) = sum_ij  k(v_y - i) k(v_x - j) D[i, j]
    v_x = (x - (W - 1) / 2 - o_x(t)) / scale + (w - 1) / 2,    v_y alike,    scale = pixels shown / cells

Saccades run along a triangle, each `move_us` long and then at rest until the next begins, with the cycloidal speed of a
pan-tilt unit that starts and stops smoothly:

    o(t) = a + (b - a) (r - sin(2 pi r) / 2 pi),    r = time within the move / move_us

Sources: Orchard et al., Frontiers in Neuroscience 9:437, 2015 (three saccades on a triangle, about 100 ms each); R.
Keys, "Cubic Convolution Interpolation for Digital Image Processing", IEEE TASSP 29(6), 1981 (k, a = -1/2).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Motion = tuple[Array, Array]
"""Times `[K]` in microseconds and displacements `[K, 2]` (x, y) in pixels of the sensor, linear between."""

# Whole milliseconds: the camera's steps are multiples.
MOTION_STEP_US = 1_000
# Weights on a grid of 2^-20: products with pictures of at most 4095 whole levels are then exact in float64, so that no
# library's order of summation can change a single event.
WEIGHT_GRID = 2.0**20


def saccades(
    corners: Sequence[tuple[float, float]], starts_us: Sequence[int], move_us: int, duration_us: int
) -> Motion:
    """Moves from corner to corner and back to the first, each at its start.

    Args:
        corners: (x, y) pixels, C of them.
        starts_us: when each move begins, C times in order.
        move_us: how long a move takes.
        duration_us: when the motion ends.
    """
    t_us = np.arange(0, duration_us + 1, MOTION_STEP_US)
    path = np.array([*corners, corners[0]])
    leg = np.clip(np.searchsorted(starts_us, t_us, side="right") - 1, 0, len(corners) - 1)
    r = np.clip((t_us - np.asarray(starts_us)[leg]) / move_us, 0.0, 1.0)[:, None]
    way = r - np.sin(2 * np.pi * r) / (2 * np.pi)
    return t_us, np.asarray(path[leg] + (path[leg + 1] - path[leg]) * way)


def taps(offset: float, sensor: int, cells: int, shown: float) -> tuple[Array, Array]:
    """The four cells that each pixel of an axis sees, `[4, sensor]`, and their weights, float64 `[4, sensor]`.

    Args:
        offset: displacement of the picture in pixels.
        sensor: pixels of the axis.
        cells: of the picture.
        shown: pixels on which the picture is shown.
    """
    pixel = np.arange(sensor) - (sensor - 1) / 2
    place = (pixel - offset) / (shown / cells) + (cells - 1) / 2
    cell = np.floor(place) + np.arange(-1, 3)[:, None]
    weight = np.rint(catmull_rom(place - cell) * WEIGHT_GRID) / WEIGHT_GRID
    # Around the picture there is background, 0.
    return np.clip(cell, 0, cells - 1).astype(np.intp), weight * ((cell >= 0) & (cell < cells))


def catmull_rom(distance: Array) -> Array:
    """Keys' cubic interpolation kernel with a = -1/2: 1 at 0, 0 at every other integer and beyond 2.

    Example:
        >>> catmull_rom(np.array([0.0, 0.5, 1.0, 1.5, 2.5])).tolist()
        [1.0, 0.5625, 0.0, -0.0625, 0.0]
    """
    d = np.abs(distance)
    near = (1.5 * d - 2.5) * d * d + 1
    far = ((-0.5 * d + 2.5) * d - 4) * d + 2
    return np.where(d <= 1, near, np.where(d < 2, far, 0.0))
