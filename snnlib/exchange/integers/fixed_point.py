"""Layers of neurons in fixed point, which are integers already."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from snnlib.exchange.integers.integer_layer import LEAK_BITS, IntegerLayer
from snnlib.structure.cells import Array
from snnlib.structure.stages import Stage, decay_numbers

# Bits of a state below its unit.
_BITS = 12
_LONGEST_REFRACTORY = 255
# What a layer in integers has as its stage has it.
SAME = (
    *("name", "resets_all", "stride", "padding", "dilation", "pool", "input", "neurons", "axes"),
    *("delay", "weight_delay", "recurrent_delay"),
)


def fixed_point_layer(stage: Stage, divisor: float) -> IntegerLayer:
    """Returns the layer with the same states, in units of 2^-12.

    Raises:
        ValueError: weights that are no integers of 8 bits in any unit, or a bias or refractory time that is none of
            neurons in fixed point.
    """
    cell = stage.cell
    assert cell is not None and stage.refractory is not None
    if stage.bias is not None:
        raise ValueError(f"{stage.name}: expected weights without a bias before neurons in fixed point")
    if not stage.refractory <= _LONGEST_REFRACTORY:
        raise ValueError(
            f"{stage.name}: expected a refractory time up to {_LONGEST_REFRACTORY} steps, got {stage.refractory}"
        )
    weights = [stage.weight * divisor] + ([] if stage.recurrent is None else [stage.recurrent])
    fraction = _fraction(stage.name, weights)
    weight, *recurrent = [(part * 2.0 ** (_BITS - fraction)).to(torch.int8) for part in weights]
    leaks = [round(leak * (1 << LEAK_BITS)) for leak in decay_numbers(cell)]
    channels = len(weight)
    drive = _units(cell.offset, channels)
    return IntegerLayer(
        weight=weight,
        scale=torch.full((channels,), 2.0 ** (fraction - _BITS), dtype=torch.float64),
        bias=None,
        recurrent=recurrent[0] if recurrent else None,
        threshold=None if cell.threshold is None else _units(cell.threshold, channels) + int(cell.strict),
        reset=torch.zeros(channels, dtype=torch.int32) if cell.spikes else None,
        leak_m=leaks[0],
        leak_s=None if cell.decay_s is None else leaks[1],
        fraction=fraction,
        state_bits=32,
        subtracts=False,
        weight_bits=8,
        drive=drive if bool(drive.any()) else None,
        refractory=int(stage.refractory),
        toward_zero=True,
        **{field: getattr(stage, field) for field in SAME},
    )


def _units(value: Array, channels: int) -> Tensor:
    return torch.from_numpy(np.broadcast_to(value * 2.0**_BITS, (channels,)).copy()).to(torch.int32)


def _fraction(name: str, weights: list[Tensor]) -> int:
    """Bits of the largest unit of weights in units of the state, in which all weights are integers of 8 bits."""
    units = torch.cat([weight.flatten() for weight in weights]) * 2.0**_BITS
    whole = units.round().long()
    # The lowest bit of any.
    together = int(np.bitwise_or.reduce(whole.numpy())) if len(whole) else 0
    lowest = together & -together
    fraction = max(lowest.bit_length() - 1, 0)
    fits = bool(((whole >= -128 << fraction) & (whole <= 127 << fraction)).all())
    if not fits or not torch.equal(units, whole.double()):
        raise ValueError(
            f"{name}: expected weights of 8 bits in a unit of 2^-12 or more, as a layer of neurons in fixed point has "
            "them, over windows of 1, 2, 4 ... cells, got others"
        )
    return fraction
