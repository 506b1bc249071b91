"""Integrate-and-fire neuron: a membrane that does not leak.

    h[t] = v[t-1] + x[t]                                      membrane potential before the reset
    s[t] = [h[t] >= threshold];   v[t] = reset of h[t] where s[t] = 1

Source: Gerstner et al., "Neuronal Dynamics", 2014, section 1.3, without the leak.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, ClassVar

from torch import Tensor

from snnlib.neurons.base import Params, State
from snnlib.neurons.dialects import NORSE, SINABS, SNNTORCH, SPIKINGJELLY
from snnlib.neurons.dynamics import Dynamics
from snnlib.neurons.fields import fixed
from snnlib.neurons.firing import SpikingNeuron
from snnlib.neurons.models.lif import as_leaky


class IF(SpikingNeuron):
    """Integrate-and-fire neurons: currents `[T, N, C, ...]` to spikes of the same shape.

    ::

        h[t] = v[t-1] + x[t]
        s[t] = h[t] >= threshold;   v[t] = reset_value where s[t] = 1, else h[t]

    Args:
        threshold, reset, reset_value, reset_time, detach_reset, compare, surrogate, floor, levels, level_rounding,
            refractory, gradient_through_time, learnable, channels, batch_first: as in `SpikingNeuron`; `learnable`
            may name "threshold".
        dialect: `"spikingjelly"` (IFNode), `"snntorch"` (Leaky with beta = 1), `"norse"` (IAFCell) or `"sinabs"` (IAF):
            the defaults of that library's neuron for all options that are not given.

    Raises:
        ValueError: an option out of its range, or an unknown dialect.

    >>> import torch, snnlib
    >>> snnlib.neurons.IF()(torch.full((5, 1, 1), 0.5)).flatten().tolist()
    [0.0, 1.0, 0.0, 1.0, 0.0]
    """

    state_names = ("v",)
    reset_states: str = fixed("membrane")

    dialects: ClassVar[dict[str, dict[str, Any]]] = {
        "spikingjelly": SPIKINGJELLY,
        "snntorch": SNNTORCH,
        "norse": NORSE,
        "sinabs": SINABS,
    }

    @classmethod
    def derive(cls, values: dict[str, Any], given: Collection[str], dialect: str | None) -> None:
        """See `LIF`."""
        as_leaky(values, given, dialect)
        super().derive(values, given, dialect)

    def step(self, state: State, current: Tensor, params: Params) -> tuple[Tensor, State]:
        """Runs a time step."""
        return self.fire_and_reset((state[0] + current,), state, params)

    def dynamics(self, params: Params) -> Dynamics | None:
        """Coefficients of one state; see `Dynamics`."""
        return self.with_reset(params, a=[[1.0]], b=[1.0])
