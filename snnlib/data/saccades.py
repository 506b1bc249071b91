"""What the simulated camera looks at: a digit that makes N-MNIST's three saccades.

A digit image D (8 x 8) is shown `DIGIT_PIXELS` wide in the middle of a 34 x 34 sensor, interpolated by the
Catmull-Rom cubic h, and displaced by o(t) = (o_x, o_y) pixels:

    I(y, x, t) = sum_ij  h(v_y - i) h(v_x - j) D[i, j]
    v_x = (x - 16.5 - o_x(t)) / scale + 3.5,    v_y alike,    scale = DIGIT_PIXELS / 8

Three saccades run along a triangle, `MOVE_US` each and then at rest until the next multiple of 100 ms, with
the cycloidal speed of a pan-tilt unit that starts and stops smoothly:

    o(t) = a + (b - a) (r - sin(2 pi r) / 2 pi),    r = time within the move / MOVE_US

Sources: Orchard et al., Frontiers in Neuroscience 9:437, 2015 (three saccades on a triangle, about 100 ms
each); R. Keys, "Cubic Convolution Interpolation for Digital Image Processing", IEEE TASSP 29(6), 1981 (h, a =
-1/2).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

SENSOR_PIXELS = 34
DIGIT_CELLS = 8
# MNIST's digits fill 20 of their 28 pixels, these fill all of their 8 cells: 22 leaves room for the saccades
# and gives as many active pixels as N-MNIST has.
DIGIT_PIXELS = 22
SACCADE_US = 100_000
MOVE_US = 75_000
SACCADES = 3
DURATION_US = SACCADES * SACCADE_US
# (x, y) pixels, centred on the sensor: down right, up right, back left.
TRIANGLE = ((-3.0, -1.5), (0.0, 3.0), (3.0, -1.5))
# Weights on a grid of 2^-20: products with digits 0..16 are then exact in float64, so that no library's order
# of summation can change a single event.
WEIGHT_GRID = 2.0**20


def saccade_offsets(t_us: Array) -> Array:
    """Displacement of the digit at times `[K]` in microseconds: `[K, 2]`, pixels, columns (x, y)."""
    corners = np.array([*TRIANGLE, TRIANGLE[0]])
    leg = np.clip(t_us // SACCADE_US, 0, SACCADES - 1).astype(np.intp)
    r = np.clip((t_us - leg * SACCADE_US) / MOVE_US, 0.0, 1.0)[:, None]
    way = r - np.sin(2 * np.pi * r) / (2 * np.pi)
    return np.asarray(corners[leg] + (corners[leg + 1] - corners[leg]) * way)


def projections(t_us: Array) -> tuple[Array, Array]:
    """Interpolation matrices at times `[K]`: rows `[K, 34, 8]` and columns `[K, 34, 8]`.

    The picture at time k is `rows[k] @ D @ columns[k].T`; outside the digit there is background, 0.
    """
    offsets = saccade_offsets(t_us)
    pixel = np.arange(SENSOR_PIXELS) - (SENSOR_PIXELS - 1) / 2
    scale = DIGIT_PIXELS / DIGIT_CELLS

    def matrix(offset: Array) -> Array:
        place = (pixel - offset[:, None]) / scale + (DIGIT_CELLS - 1) / 2
        weights = catmull_rom(place[:, :, None] - np.arange(DIGIT_CELLS))
        return np.asarray(np.rint(weights * WEIGHT_GRID) / WEIGHT_GRID)

    return matrix(offsets[:, 1]), matrix(offsets[:, 0])


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
