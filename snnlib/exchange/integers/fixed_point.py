"""Weights of neurons in fixed point, which are integers already."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from snnlib.structure.stages import Stage

# Bits of a state below its unit.
BITS = 12
_LONGEST_REFRACTORY = 255


def fraction_of(stage: Stage, weights: Sequence[Tensor]) -> int:
    """Bits of a state below the largest unit in which all weights are integers of 8 bits.

    Raises:
        ValueError: weights that are none in any unit, or a bias or refractory time that is none of neurons in fixed
            point.
    """
    assert stage.refractory is not None
    if stage.bias is not None:
        raise ValueError(f"{stage.name}: expected weights without a bias before neurons in fixed point")
    if not stage.refractory <= _LONGEST_REFRACTORY:
        raise ValueError(
            f"{stage.name}: expected a refractory time up to {_LONGEST_REFRACTORY} steps, got {stage.refractory}"
        )
    units = torch.cat([weight.flatten() for weight in weights]) * 2.0**BITS
    whole = units.round().long()
    # The lowest bit of any.
    together = int(np.bitwise_or.reduce(whole.numpy())) if len(whole) else 0
    lowest = together & -together
    fraction = max(lowest.bit_length() - 1, 0)
    fits = bool(((whole >= -128 << fraction) & (whole <= 127 << fraction)).all())
    if not fits or not torch.equal(units, whole.double()):
        raise ValueError(
            f"{stage.name}: expected weights of 8 bits in a unit of 2^-12 or more, as a layer of neurons in fixed "
            "point has them, over windows of 1, 2, 4 ... cells, got others; a layer behind windows of 4 cells that "
            "hardly fires wants weight_exponent=-10 or larger weights, as prepare_ sets them"
        )
    return fraction
