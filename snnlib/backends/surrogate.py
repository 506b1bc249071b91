"""Shapes of surrogate gradients in `+ - * /` only. Formulas: cpp/include/snnlib/neurons/surrogate.h."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from snnlib.backends import native

# Beyond this argument exp(-z) counts as zero: its relative error would exceed 4e-5 in float32.
_EXP_RANGE = 40.0


def exp_minus(z: Tensor) -> Tensor:
    """`exp(-z)` for z >= 0 in `+ - * /` only: a rational function of z/64 to the power of 64."""
    y = z.clamp(max=_EXP_RANGE) / 64
    even = 1 + y * y / 10
    odd = y * (0.5 + y * y / 120)
    power = (even - odd) / (even + odd)
    for _ in range(6):
        power = power * power
    return torch.where(z >= _EXP_RANGE, torch.zeros_like(power), power)


def _sigmoid(z: Tensor) -> Tensor:
    e = exp_minus(z)
    return 4 * e / ((1 + e) * (1 + e))


# f(z) for z = |scale u|.
SHAPES: dict[str, Callable[[Tensor], Tensor]] = {
    # A distance that is no number has no slope.
    "triangle": lambda z: torch.where(z < 1, 1 - z, torch.zeros_like(z)),
    "rectangle": lambda z: (z < 1).to(z.dtype),
    "atan": lambda z: 1 / (1 + z * z),
    "fast_sigmoid": lambda z: 1 / ((1 + z) * (1 + z)),
    "sigmoid": _sigmoid,
    "exponential": exp_minus,
    "gaussian": lambda z: exp_minus(z * z),
    # A narrow bump on a wide trough, six times as wide.
    "multi_gaussian": lambda z: (23 * exp_minus(z * z) - exp_minus(z * z / 36)) / 22,
}
# True for shapes that are zero away from the threshold, in the order of the kernels' numbers.
COMPACT: dict[str, bool] = native.surrogates() or {
    name: not bool(shape(torch.ones(()))) for name, shape in SHAPES.items()
}
KINDS = tuple(COMPACT)
# Where the bump of neurons with several levels stands, in the order of the kernels' numbers.
SPREADS = ("first", "every", "flat")
