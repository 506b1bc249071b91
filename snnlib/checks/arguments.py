"""Checks of arguments that are no sequences: numbers, flags, counts and sizes."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any

import torch
from torch import Tensor, nn

# Largest size that torch's convolutions and pooling take.
MOST_INT32 = 2**31 - 1
_MOST_FLOAT32 = torch.finfo(torch.float32).max


def check_number(name: str, value: float) -> None:
    """Raise TypeError unless `value` is a number; a tensor would not be learned, nor follow the layer to its device."""
    if isinstance(value, Tensor):
        kind = "nn.Parameter" if isinstance(value, nn.Parameter) else "tensor"
        raise TypeError(
            f"{name}: expected a number, which stays as it is and is not learned, got a {kind}; pass float(...)"
        )
    if not isinstance(value, Real) or isinstance(value, bool):
        raise TypeError(f"{name}: expected a number, got {type(value).__name__}")


def check_positive_number(name: str, value: float) -> float:
    """Returns the value as a float; raises TypeError unless it is a number, ValueError unless finite and above 0."""
    check_number(name, value)
    if not 0 < value < float("inf"):
        raise ValueError(f"{name}: expected a finite number > 0, got {value}")
    return float(value)


def as_tensor(
    name: str, value: Any, device: torch.device | str | None = None, dtype: torch.dtype | None = None
) -> Tensor:
    """`torch.as_tensor` with an error that names the argument."""
    try:
        return torch.as_tensor(value, device=device, dtype=dtype)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"{name}: expected a number or a tensor, got {type(value).__name__}") from error


def check_flag(name: str, value: bool) -> bool:
    """The value, if it is True or False; else raises TypeError."""
    if not isinstance(value, bool):
        raise TypeError(f"{name}: expected True or False, got {value!r}")
    return value


def check_count(name: str, value: int, least: int = 1) -> None:
    """Raise ValueError unless `value` is an integer >= `least`, numpy's among them."""
    if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name}: expected an integer >= {least}, got {value!r}")


def check_choice(name: str, value: object, *choices: str) -> str:
    """The value, if it is one of the choices; else raises ValueError."""
    if value not in choices:
        raise ValueError(f"{name}: expected one of {', '.join(choices)}, got {value!r}")
    return str(value)


def as_sizes(name: str, value: int | Sequence[int], dims: int, *, minimum: int) -> tuple[int, ...]:
    """Returns an integer per axis from an integer or a sequence, each at least `minimum`."""
    sizes = tuple(value) if isinstance(value, Sequence) else (value,) * dims
    valid = len(sizes) == dims and all(
        isinstance(size, (int, torch.SymInt)) and size >= minimum for size in sizes
    )
    if not valid:
        raise ValueError(f"{name}: expected an integer >= {minimum} or {dims} of them, got {value!r}")
    if any(size > MOST_INT32 for size in sizes):
        raise ValueError(f"{name}: expected integers up to {MOST_INT32}, got {value!r}")
    return sizes


def check_finite(name: str, value: float) -> None:
    """Raise ValueError unless `value` is finite as a float32."""
    # A comparison: compilers with dynamic shapes do not know `math.isfinite`.
    if not -_MOST_FLOAT32 <= value <= _MOST_FLOAT32:
        raise ValueError(f"{name}: expected a finite number, got {value}")
