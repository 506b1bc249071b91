"""Neurons of a NIR graph in discrete time, in plain numpy: what every reading of a graph comes down to.

    i[t] = decay_s i[t-1] + gain_s x[t]                 with a synapse, else i[t] = x[t]
    h[t] = decay v[t-1] + gain i[t] + offset
    z[t] = [h[t] > threshold]  (>= where not strict; floor(h / threshold) where several spikes may come in a step)
    v[t] = reset_value where z[t] = 1, else h[t]        or h[t] - z[t] threshold

A cell without a threshold gives its potential h. Constants are numbers or arrays of the neurons' shape.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def array(value: Any) -> Array:
    """A constant of a node as float64."""
    if hasattr(value, "detach"):
        value = value.detach().cpu().numpy()
    return np.asarray(value, dtype=np.float64)


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
        max_spikes: most spikes in one step.
        floor: least membrane after the reset; None for none.
        dtype: in which the state is kept.
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
    max_spikes: float = 1.0
    floor: Array | None = None
    dtype: type = np.float64

    def initial(self, shape: tuple[int, ...]) -> list[Array]:
        """States before the first step `[N, ...]`."""
        zeros: Array = np.zeros(shape, self.dtype)
        return [zeros + self.start.astype(self.dtype), zeros]

    def step(self, x: Array, states: list[Array]) -> tuple[Array, list[Array]]:
        """Spikes or potentials of a step `[N, ...]`, and the states after it."""
        v, i = states
        c = self._cast()
        x = x.astype(self.dtype)
        i = x if c.decay_s is None else c.decay_s * i + c.gain_s * x
        h = c.decay * v + c.gain * i + c.offset
        if c.threshold is None:
            return h, [h, i]
        z = (h > c.threshold if self.strict else h >= c.threshold).astype(self.dtype)
        if self.max_spikes > 1:
            z = z * np.clip(np.floor(h / c.threshold), 1, self.max_spikes)
        v = h - z * c.threshold if c.reset_value is None else np.where(z > 0, c.reset_value, h)
        return z, [v if c.floor is None else np.maximum(v, c.floor), i]

    def _cast(self) -> Cell:
        own = {each.name: getattr(self, each.name) for each in fields(self)}
        cast: dict[str, Any] = {k: v.astype(self.dtype) for k, v in own.items() if isinstance(v, np.ndarray)}
        return replace(self, **cast)

    @property
    def spikes(self) -> bool:
        """Returns whether it has a threshold."""
        return self.threshold is not None

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
