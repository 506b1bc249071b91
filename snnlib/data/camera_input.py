"""Checks of the inputs of the simulated camera."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from snnlib.checks import check_positive_number
from snnlib.data.checks import check_int
from snnlib.data.saccades import Array, Motion

# Weights of red, green and blue in grey (ITU-R 601).
LUMA = (0.299, 0.587, 0.114)
# Levels of float pictures, whose products with the weights of interpolation are then exact.
FLOAT_LEVELS = 4095
# Longest motion or film, 35 minutes: an event's sample, time and pixel are sorted as one integer.
LONGEST_US = 2**31 - 1


def light_of(name: str, pictures: Any, white: float | None, grey: bool) -> tuple[Array, float]:
    """Pictures as `[B, H, W]`, float64 of whole numbers, and the number that is white.

    Args:
        name: of the argument, for errors.
        pictures: `[B, H, W]` or `[B, C, H, W]`, C of 1 or 3.
        white: the value that is white; None: 255 for uint8, 1 for floats.
        grey: whether colours become grey.
    """
    # NumPy has no bfloat16.
    values = np.asarray(pictures.float() if getattr(pictures, "dtype", None) is torch.bfloat16 else pictures)
    if values.dtype.kind not in "uif":
        raise TypeError(f"{name}: expected integers or floats, got dtype {values.dtype}")
    if white is None:
        if values.dtype.kind != "f" and values.dtype != np.uint8:
            raise TypeError(f"white: expected the value that is white for {name} of {values.dtype}, got none")
        white = 1.0 if values.dtype.kind == "f" else 255.0
    white = check_positive_number("white", white)
    if values.ndim == 4 and values.shape[1] == 3:
        if not grey:
            raise ValueError(
                f"{name}: expected grey pictures, got colours {values.shape}; EventCamera(grey=True) makes grey"
            )
        mixed = sum(weight * values[:, channel].astype(np.float64) for channel, weight in enumerate(LUMA))
        values = np.asarray(mixed if values.dtype.kind == "f" else np.rint(mixed).astype(values.dtype))
    elif values.ndim == 4 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != 3 or not values.size:
        raise ValueError(f"{name}: expected [B, H, W] or [B, C, H, W] with C of 1 or 3, got {values.shape}")
    low, high = values.min(), values.max()
    if not (low >= 0 and high <= white):
        raise ValueError(f"{name}: expected values in 0..{white:g}, got {low} to {high}")
    if values.dtype.kind != "f" and white <= FLOAT_LEVELS:
        return values.astype(np.float64), white
    return np.rint(values.astype(np.float64) * (FLOAT_LEVELS / white)), float(FLOAT_LEVELS)


def check_motion(motion: Any) -> Motion:
    """Returns times `[K]` and displacements `[K, 2]`."""
    if not isinstance(motion, (tuple, list)) or len(motion) != 2:
        raise TypeError(f"motion: expected a pair of times and displacements, got {type(motion).__name__}")
    t_us, offsets = check_times("motion[0] (times)", motion[0]), np.asarray(motion[1], np.float64)
    if offsets.shape != (len(t_us), 2) or not np.isfinite(offsets).all():
        raise ValueError(
            f"motion[1] (displacements): expected finite numbers (x, y) at each of {len(t_us)} times, got shape "
            f"{offsets.shape}"
        )
    return t_us, offsets


def check_times(name: str, t_us: Any) -> Array:
    """Returns times in microseconds as int64 `[K]`, two at least."""
    times = np.asarray(t_us)
    if times.dtype.kind not in "ui":
        raise TypeError(f"{name}: expected whole microseconds, got dtype {times.dtype}")
    if times.ndim != 1 or len(times) < 2:
        raise ValueError(f"{name}: expected two times or more, got shape {times.shape}")
    times = times.astype(np.int64)
    if not (np.diff(times) > 0).all():
        raise ValueError(
            f"{name}: expected rising times, got {times[:-1][np.diff(times) <= 0][0]} before a time no later"
        )
    if times[-1] - times[0] > LONGEST_US:
        raise ValueError(f"{name}: expected at most {LONGEST_US} microseconds, got {times[-1] - times[0]}")
    return times


def check_samples(samples: Sequence[int] | None, count: int) -> list[int]:
    """Returns a number >= 0 for each of `count` samples."""
    numbers = [check_int("samples", number, 0) for number in (range(count) if samples is None else samples)]
    if len(numbers) != count:
        raise ValueError(f"samples: expected a number for each of {count} pictures, got {len(numbers)}")
    return numbers
