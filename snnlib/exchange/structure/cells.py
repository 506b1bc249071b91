"""Neurons of a NIR graph in discrete time, in plain numpy: what every reading of a graph comes down to.

    i[t] = decay_s i[t-1] + gain_s x[t]                 with a synapse, else i[t] = x[t]
    h[t] = decay v[t-1] + gain i[t] + offset
    z[t] = [h[t] > threshold]  (>= where not strict; with several levels floor(h / threshold), or where the cell rounds
                                floor(h / threshold + 1/2), from 0 to levels)
    v[t] = reset_value where z[t] = 1, else h[t]        or h[t] - z[t] threshold

A cell without a threshold gives its potential h. Constants are numbers or arrays of the neurons' shape.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def array(value: Any) -> Array:
    """A constant of a node as float64."""
    if hasattr(value, "detach"):
        value = value.detach().cpu().numpy()
    return np.asarray(value, dtype=np.float64)


def pair(value: Any, axes: int) -> tuple[int, ...]:
    """An option of a convolution or a pool, one number per axis."""
    numbers = [int(number) for number in np.asarray(value).reshape(-1)]
    return tuple(numbers * axes if len(numbers) == 1 else numbers)


@dataclass(frozen=True)
class Cell:
    """Constants of neurons in discrete time; the equations stand at the head of this file.

    Args:
        decay, gain, offset: of the membrane.
        decay_s, gain_s: of the synaptic current; None without one.
        threshold: None for cells that give their potential.
        reset_value: what the membrane is set to; None takes the threshold off.
        start: the membrane before the first step.
        strict: `>` instead of `>=`.
        levels: most spikes in one step.
        rounds: whether a step has the nearest number of spikes to h / threshold, not the largest below.
        floor: least membrane after the reset; None for none.
    """

    decay: Array
    gain: Array
    offset: Array
    decay_s: Array | None = None
    gain_s: Array | None = None
    threshold: Array | None = None
    reset_value: Array | None = None
    start: Array = field(default_factory=lambda: np.zeros(()))
    strict: bool = True
    levels: float = 1.0
    rounds: bool = False
    floor: Array | None = None

    @property
    def spikes(self) -> bool:
        """Returns whether it has a threshold."""
        return self.threshold is not None

    @property
    def fires_at(self) -> Array | None:
        """Returns the membrane at which the first spike of a step comes; None of a cell that gives its potential."""
        return self.threshold / 2 if self.rounds and self.threshold is not None else self.threshold

    @property
    def input_gain(self) -> Array:
        """Returns what an input adds to the membrane in its own step."""
        return self.gain if self.gain_s is None else self.gain * self.gain_s

    def scaled(self, factor: Array) -> Cell:
        """The cell whose membrane is `factor` > 0 times this one's, with the same spikes."""

        def times(value: Array | None) -> Array | None:
            return None if value is None else value * factor

        return replace(
            self,
            gain=self.gain * factor,
            offset=self.offset * factor,
            threshold=times(self.threshold),
            reset_value=times(self.reset_value),
            start=self.start * factor,
            floor=times(self.floor),
        )

    def with_gain(self, gain: Array) -> Cell:
        """The cell with this gain of the membrane and 1 of the synapse, all else as it is."""
        return replace(self, gain=gain, gain_s=None if self.gain_s is None else np.ones_like(gain))

    def with_unit_gain(self) -> Cell:
        """The cell whose membrane is in the unit of its input, which has to be above 0, with the same spikes."""
        return self.scaled(1 / self.input_gain).with_gain(np.ones_like(self.input_gain))
