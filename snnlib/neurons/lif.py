"""Leaky integrate-and-fire neuron.

    h[t] = decay v[t-1] + gain x[t] + (1 - decay) rest        membrane potential before the reset
    s[t] = [h[t] >= threshold];   v[t] = reset of h[t] where s[t] = 1

`tau` in time steps: decay = 1 - 1/tau (Euler) or exp(-1/tau) (exponential); gain = 1 - decay with decay_input, else 1.
Source: Gerstner et al., "Neuronal Dynamics", 2014, section 1.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from snnlib.checks import check_flag
from snnlib.neurons.base import Params, Reset, State
from snnlib.neurons.dialects import check_choice, check_tau, decay_and_leak, finite_number
from snnlib.neurons.dynamics import Dynamics
from snnlib.neurons.firing import SpikingNeuron
from snnlib.neurons.spike import SurrogateLike
from snnlib.neurons.surrogate import ATan, Exponential, Sigmoid, SuperSpike


class LIF(SpikingNeuron):
    """Leaky integrate-and-fire neurons: currents `[T, N, C, ...]` to spikes of the same shape.

    ::

        h[t] = decay v[t-1] + gain x[t] + (1 - decay) rest
        s[t] = h[t] >= threshold;   v[t] = reset_value where s[t] = 1, else h[t]

    Args:
        tau: membrane time constant in time steps, >= 1; inf does not leak. Default 2.
        decay_input: whether the input is scaled by `1 - decay`, as in a low-pass filter. Default True.
        discretisation: `"euler"`, decay = 1 - 1/tau, or `"exponential"`, decay = exp(-1/tau). Default `"euler"`.
        rest: potential that it leaks to. Default 0; `reset_value` in SpikingJelly's dialect.
        start_value: membrane before the first step. Default: `rest` in Norse's dialect, else `reset_value`, or 0 where
            the reset does not set the membrane.
        threshold, reset, reset_value, reset_time, detach_reset, compare, surrogate, floor, max_spikes,
            single_spike, gradient_through_time, learnable, channels, batch_first: as in `SpikingNeuron`; `learnable`
            may name "tau" and "threshold".
        dialect: `"spikingjelly"`, `"snntorch"`, `"lapicque"` (snnTorch's), `"norse"` or `"sinabs"`: the defaults of
            that library's neuron for all options that are not given.

    Raises:
        ValueError: an option out of its range, or an unknown dialect.

    Source: by dialect SpikingJelly (LIFNode), snnTorch (Leaky, Lapicque), Norse (LIFBoxCell) and sinabs (LIF).

    >>> import torch, snnlib
    >>> x = torch.tensor([0.75, 0.75, 0.5, 0.25, 1.5, 0.5]).reshape(6, 1, 1)
    >>> snnlib.neurons.LIF(tau=2.0, decay_input=False)(x).flatten().tolist()
    [0.0, 1.0, 0.0, 0.0, 1.0, 0.0]
    """

    state_names = ("v",)
    defaults: ClassVar[dict[str, Any]] = {
        "tau": 2.0,
        "decay_input": True,
        "discretisation": "euler",
        "rest": 0.0,
        "start_value": None,
    }
    dialects: ClassVar[dict[str, dict[str, Any]]] = {
        # None: at reset_value.
        "spikingjelly": {"rest": None, "detach_reset": False, "surrogate": Sigmoid(4.0)},
        "snntorch": {
            "decay_input": False,
            "compare": ">",
            "reset": "subtract",
            "reset_time": "next",
            "surrogate": ATan(2.0),
        },
        "lapicque": {
            "compare": ">",
            "reset": "subtract",
            "reset_time": "next",
            "surrogate": ATan(2.0),
        },
        "norse": {"tau": 10.0, "compare": ">", "detach_reset": False, "surrogate": SuperSpike(1.0)},
        "sinabs": {
            "discretisation": "exponential",
            "reset": "subtract",
            "detach_reset": False,
            "surrogate": Exponential(0.5),
            "max_spikes": torch.inf,
        },
    }

    def __init__(
        self,
        tau: float | Tensor | None = None,
        *,
        threshold: float | Tensor | None = None,
        decay_input: bool | None = None,
        discretisation: str | None = None,
        rest: float | None = None,
        start_value: float | None = None,
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
            # Leaky zeroes the membrane before the next decay: the spikes and gradients of the same step's reset.
            chosen["reset_time"] = "same"
        constants = {"tau": check_tau("tau", chosen["tau"])}
        super().__init__(constants, chosen, learnable=learnable, channels=channels, batch_first=batch_first)
        self.decay_input = check_flag("decay_input", chosen["decay_input"])
        self.discretisation = check_choice("discretisation", chosen["discretisation"], "euler", "exponential")
        self.rest = self.reset_value if chosen["rest"] is None else finite_number("rest", chosen["rest"])
        self.choose_start(chosen["start_value"], dialect, self.rest)

    @classmethod
    def from_beta(cls, beta: float, **options: Any) -> LIF:
        """The neuron whose membrane decays by `beta` per step and adds its input unscaled: `tau = 1 / (1 - beta)`."""
        if not 0 <= beta <= 1:
            raise ValueError(f"beta: expected a number from 0 to 1, got {beta}")
        tau = 1 / (1 - beta) if beta < 1 else torch.inf
        return cls(tau, **{"decay_input": False, **options})

    def _decay_and_gain(self, params: Params) -> tuple[Tensor, Tensor | float]:
        decay, leak = decay_and_leak(params["tau"], self.discretisation)
        return decay, leak if self.decay_input else 1.0

    def step(self, state: State, current: Tensor, params: Params) -> tuple[Tensor, State]:
        """One time step."""
        decay, gain = self._decay_and_gain(params)
        h = decay * state[0] + gain * current + (1 - decay) * self.rest
        return self.fire_and_reset((h,), state, params)

    def dynamics(self, params: Params) -> Dynamics | None:
        """One state; see `Dynamics`."""
        firing = self.firing(params, 1)
        if firing is None:
            return None
        decay, gain = self._decay_and_gain(params)
        return Dynamics(a=[[decay]], b=[gain], d=[(1 - decay) * self.rest], **firing)
