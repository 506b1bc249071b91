"""Argument checks shared by this folder: name the argument, what was expected, what came."""

from __future__ import annotations

import operator
from numbers import Real
from typing import Any

import torch


def check_int(name: str, value: object, low: int, high: int | None = None) -> int:
    """Return `value` as an int, or raise unless it is an integer (no bool) in `low..high`."""
    wanted = f"an integer >= {low}" if high is None else f"an integer in {low}..{high}"
    if isinstance(value, bool):
        raise TypeError(f"{name}: expected {wanted}, got {value!r}")
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"{name}: expected {wanted}, got {value!r}") from None
    if number < low or (high is not None and number > high):
        raise ValueError(f"{name}: expected {wanted}, got {number}")
    return number


def check_number(name: str, value: Any, low: float, high: float, wanted: str = "") -> float:
    """Return `value` as a float, or raise unless it is a number in `low..high`; `wanted` says what it means."""
    wanted = wanted or f"a number in {low:g}..{high:g}"
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name}: expected {wanted}, got {value!r}")
    number = float(value)
    if not low <= number <= high:
        raise ValueError(f"{name}: expected {wanted}, got {value!r}")
    return number


def check_sensor_size(name: str, value: object, high: tuple[int, int] = (2**15, 2**15)) -> tuple[int, int]:
    """Return `value` as `(height, width)`, or raise unless it is two positive integers not above `high`."""
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        raise TypeError(f"{name}: expected a pair (height, width), got {value!r}")
    height = check_int(f"{name}[0] (height)", value[0], 1, high[0])
    return height, check_int(f"{name}[1] (width)", value[1], 1, high[1])


def check_float_dtype(dtype: object) -> None:
    """Raise TypeError unless `dtype` is one of torch for floating-point numbers."""
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise TypeError(f"dtype: expected a floating torch dtype, got {dtype!r}")


def check_index(index: object, length: int) -> int:
    """Return `index` as an int, or raise unless a sequence of this length has it; negative ones count from its end."""
    number = check_int("index", index, -(2**63))
    if not -length <= number < length:
        raise IndexError(f"index: expected {-length}..{length - 1}, got {number}")
    return number


def check_dataset(name: str, value: object) -> None:
    """Raise TypeError unless samples can be counted and taken by number."""
    if not (hasattr(value, "__len__") and hasattr(value, "__getitem__")):
        raise TypeError(f"{name}: expected __len__ and __getitem__, got {type(value).__name__}")


def check_transforms(transform: object, target_transform: object) -> None:
    """Raise TypeError unless both are callables or None."""
    for name, value in (("transform", transform), ("target_transform", target_transform)):
        if value is not None and not callable(value):
            raise TypeError(f"{name}: expected a callable or None, got {value!r}")
