"""States as whole multiples of 2^-12 with 23 bits and a sign, in floating point: exact in float32.

The kernels' arithmetic is in cpp/include/snnlib/neurons/linear.h.
"""

from __future__ import annotations

import torch
from torch import Tensor

# Steps of a unit of states and of decays.
STEPS = 2.0**12
# Sizes of states stay below it.
LIMIT = 2.0**23 / STEPS
# Exponents of 8-bit weights: from a step of the states to 2^7 times the unit of even weights at wgtExp 0, 2^-5.
WEIGHT_EXPONENTS = (-12, 2)


def kept(decay: Tensor, state: Tensor) -> Tensor:
    """Returns `decay * state`, both on the grid, rounded towards zero onto it.

    The product has up to 35 bits: that of the whole part of the state is on the grid, that with the rest is below 1 and
    has 24 bits.
    """
    whole = state.trunc()
    return decay * whole + (decay * (state - whole) * STEPS).trunc() / STEPS


def on_grid(current: Tensor) -> Tensor:
    """Returns the nearest multiples: sums of weights that are on the grid, whatever their order has rounded."""
    return (current * STEPS + torch.where(current < 0, -0.5, 0.5)).trunc() / STEPS


def within_bits(state: Tensor) -> Tensor:
    """Returns the state where its 23 bits hold it, else NaN, which later steps keep."""
    return torch.where(state.abs() < LIMIT, state, torch.nan)


def check_states(final: Tensor) -> None:
    """Raise OverflowError if states `[K, ...]` after the last step are NaN; on "meta" there are no values."""
    if not final.is_meta and bool(final.isnan().any()):
        raise OverflowError(
            f"state: expected 23 bits and a sign, sizes below {LIMIT:g}, got a larger one or a current that is no "
            "number; smaller weights keep states within their bits"
        )
