"""Integrate-and-fire neuron: a membrane that does not leak.

    h[t] = v[t-1] + x[t]                                      membrane potential before the reset
    s[t] = [h[t] >= threshold];   v[t] = reset of h[t] where s[t] = 1

Source: Gerstner et al., "Neuronal Dynamics", 2014, section 1.3, without the leak.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from torch import Tensor, inf

from snnlib.neurons.base import Params, Reset, State
from snnlib.neurons.dynamics import Dynamics
from snnlib.neurons.firing import SpikingNeuron
from snnlib.neurons.spike import SurrogateLike
from snnlib.neurons.surrogate import ATan, Exponential, Sigmoid, SuperSpike


class IF(SpikingNeuron):
    """Integrate-and-fire neurons: currents `[T, N, C, ...]` to spikes of the same shape.

    ::

        h[t] = v[t-1] + x[t]
        s[t] = h[t] >= threshold;   v[t] = reset_value where s[t] = 1, else h[t]

    Args:
        threshold, reset, reset_value, reset_time, detach_reset, compare, surrogate, floor, max_spikes,
            single_spike, gradient_through_time, learnable, channels, batch_first: as in `SpikingNeuron`; `learnable`
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
    dialects: ClassVar[dict[str, dict[str, Any]]] = {
        "spikingjelly": {"detach_reset": False, "surrogate": Sigmoid(4.0)},
        "snntorch": {"compare": ">", "reset": "subtract", "reset_time": "next", "surrogate": ATan(2.0)},
        "norse": {"compare": ">", "detach_reset": False, "surrogate": SuperSpike(1.0)},
        "sinabs": {
            "reset": "subtract",
            "detach_reset": False,
            "surrogate": Exponential(0.5),
            "max_spikes": inf,
        },
    }

    def __init__(
        self,
        *,
        threshold: float | Tensor | None = None,
        reset: Reset | None = None,
        reset_value: float | None = None,
        reset_time: str | None = None,
        detach_reset: bool | None = None,
        compare: str | None = None,
        surrogate: SurrogateLike | None = None,
        floor: float | None = None,
        max_spikes: float | None = None,
        single_spike: bool | None = None,
        gradient_through_time: bool | None = None,
        dialect: str | None = None,
        learnable: Sequence[str] = (),
        channels: int | None = None,
        batch_first: bool = False,
    ) -> None:
        chosen = self.settings(dialect, locals())
        if dialect == "snntorch" and reset_time is None and chosen["reset"] != "subtract":
            # As for `LIF`.
            chosen["reset_time"] = "same"
        super().__init__({}, chosen, learnable=learnable, channels=channels, batch_first=batch_first)

    def step(self, state: State, current: Tensor, params: Params) -> tuple[Tensor, State]:
        """One time step."""
        return self.fire_and_reset((state[0] + current,), state, params)

    def dynamics(self, params: Params) -> Dynamics | None:
        """One state; see `Dynamics`."""
        firing = self.firing(params, 1)
        return None if firing is None else Dynamics(a=[[1.0]], b=[1.0], **firing)
