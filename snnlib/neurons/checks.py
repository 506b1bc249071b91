"""Checks of the arguments of neurons."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from snnlib.checks import check_finite, check_number


def is_learned(value: object) -> bool:
    """Returns whether a constant was passed as a parameter or a tensor that requires a gradient."""
    return isinstance(value, torch.nn.Parameter) or (isinstance(value, torch.Tensor) and value.requires_grad)


def values_of(name: str, value: Any) -> Tensor:
    """Returns a constant's values on the CPU, for a check of their range; none for meta tensors.

    Raises:
        TypeError: not a number, a tensor or a sequence of numbers.
    """
    try:
        values = value if isinstance(value, Tensor) else torch.as_tensor(value, device="cpu")
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"{name}: expected a number or a tensor, got {value!r}") from error
    if values.dtype == torch.bool or values.is_complex():
        raise TypeError(f"{name}: expected a number or a tensor of numbers, got {value!r}")
    return torch.empty(0, device="cpu") if values.is_meta else values


def check_numbers(name: str, value: Any) -> Any:
    """Returns the constant if it is a number or tensor without NaN."""
    if bool(values_of(name, value).isnan().any()):
        raise ValueError(f"{name}: expected numbers, got {value}")
    return value


def check_positive(name: str, value: Any) -> Any:
    """Returns the constant if all values are above 0; the neuron checks a learned constant itself."""
    if not is_learned(value) and not bool((values_of(name, value) > 0).all()):
        raise ValueError(f"{name}: expected numbers > 0, got {value}")
    return value


def check_threshold(name: str, value: Any) -> Any:
    """Returns the threshold if it is above 0 and finite in float32; the neuron checks a learned one itself."""
    check_positive(name, value)
    if not is_learned(value) and not bool((values_of(name, value) <= torch.finfo(torch.float32).max).all()):
        raise ValueError(
            f"{name}: expected finite numbers, got {value}; snnlib.neurons.Integrator never fires"
        )
    return value


def check_tau(name: str, tau: Any) -> Any:
    """Returns the time constant if it is a number or tensor of time steps, at least 1."""
    if is_learned(tau):
        # Refused by the neuron, with a better message.
        return tau
    if not bool((values_of(name, tau) >= 1).all()):
        raise ValueError(f"{name}: expected numbers of time steps >= 1, got {tau}")
    return tau


def check_longer_tau(name: str, tau: Any) -> Any:
    """Returns the time constant if it is a number or tensor of time steps above 1."""
    check_tau(name, tau)
    if not bool((values_of(name, tau) > 1).all()):
        raise ValueError(f"{name}: expected numbers of time steps > 1, got {tau}")
    return tau


def finite_number(name: str, value: Any) -> float:
    """Returns the value as a float if it is a number that is finite in float32."""
    check_number(name, value)
    check_finite(name, value)
    return float(value)
