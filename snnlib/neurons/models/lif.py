"""Leaky integrate-and-fire neuron.

    h[t] = decay v[t-1] + gain x[t] + (1 - decay) rest        membrane potential before the reset
    s[t] = [h[t] >= threshold];   v[t] = reset of h[t] where s[t] = 1

`tau` in time steps: decay = 1 - 1/tau (Euler) or exp(-1/tau) (exponential); gain = 1 - decay with decay_input, else 1.
Source: Gerstner et al., "Neuronal Dynamics", 2014, section 1.3.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, ClassVar

import torch
from torch import Tensor

from snnlib.neurons.base import Params, State
from snnlib.neurons.checks import check_tau
from snnlib.neurons.dialects import LEAKY_SPIKINGJELLY, NORSE, SINABS, SNNTORCH
from snnlib.neurons.dynamics import Dynamics, decay_and_leak
from snnlib.neurons.fields import Constant, constant, fixed, one_of, option
from snnlib.neurons.firing import SpikingNeuron


def as_leaky(values: dict[str, Any], given: Collection[str], dialect: str | None) -> None:
    """Sets the reset time of snnTorch's Leaky: its zero reset before the next decay equals one in the same step."""
    if dialect == "snntorch" and "reset_time" not in given and values["reset"] != "subtract":
        values["reset_time"] = "same"


class LIF(SpikingNeuron):
    """Leaky integrate-and-fire neurons: currents `[T, N, C, ...]` to spikes of the same shape.

    ::

        h[t] = decay v[t-1] + gain x[t] + (1 - decay) rest
        s[t] = h[t] >= threshold;   v[t] = reset_value where s[t] = 1, else h[t]

    Args:
        tau: membrane time constant in time steps, >= 1; inf does not leak. Default 2.
        decay_input: whether the input is scaled by `1 - decay`, as in a low-pass filter. Default True.
        discretisation: `"euler"`, decay = 1 - 1/tau, or `"exponential"`, decay = exp(-1/tau). Default `"euler"`.
        rest: potential that the membrane leaks to. Default 0; `reset_value` in SpikingJelly's dialect.
        start_value: membrane before the first step. Default: `rest` in Norse's dialect, else `reset_value`, or 0 where
            the reset does not set the membrane.
        threshold, reset, reset_value, reset_time, detach_reset, compare, surrogate, floor, levels, level_rounding,
            refractory, gradient_through_time, learnable, channels, batch_first: as in `SpikingNeuron`; `learnable`
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
    tau: Constant = constant(default=2.0, check=check_tau, kw_only=False)
    decay_input: bool = option(default=True)
    discretisation: str = option(default="euler", check=one_of("euler", "exponential"))
    # Default: at reset_value.
    rest: float = option(default=0.0)
    start_value: float | None = option(default=None)
    reset_states: str = fixed("membrane")

    dialects: ClassVar[dict[str, dict[str, Any]]] = {
        "spikingjelly": LEAKY_SPIKINGJELLY,
        "snntorch": {**SNNTORCH, "decay_input": False},
        "lapicque": SNNTORCH,
        "norse": {**NORSE, "tau": 10.0},
        "sinabs": {**SINABS, "discretisation": "exponential"},
    }

    @classmethod
    def derive(cls, values: dict[str, Any], given: Collection[str], dialect: str | None) -> None:
        """Sets reset time and start of the membrane in the dialects of snnTorch and Norse."""
        as_leaky(values, given, dialect)
        if dialect == "norse" and values["start_value"] is None:
            values["start_value"] = values["rest"]
        super().derive(values, given, dialect)

    @classmethod
    def from_beta(cls, beta: float, **options: Any) -> LIF:
        """Returns neurons whose membrane decays by `beta` and adds the unscaled input: `tau = 1 / (1 - beta)`."""
        if not 0 <= beta <= 1:
            raise ValueError(f"beta: expected a number from 0 to 1, got {beta}")
        tau = 1 / (1 - beta) if beta < 1 else torch.inf
        return cls(tau, **{"decay_input": False, **options})

    def _decay_and_gain(self, params: Params) -> tuple[Tensor, Tensor | float]:
        decay, leak = decay_and_leak(params["tau"], self.discretisation)
        return decay, leak if self.decay_input else 1.0

    def step(self, state: State, current: Tensor, params: Params) -> tuple[Tensor, State]:
        """Runs a time step."""
        decay, gain = self._decay_and_gain(params)
        h = decay * state[0] + gain * current + (1 - decay) * self.rest
        return self.fire_and_reset((h,), state, params)

    def dynamics(self, params: Params) -> Dynamics | None:
        """Coefficients of one state; see `Dynamics`."""
        decay, gain = self._decay_and_gain(params)
        return self.with_reset(params, a=[[decay]], b=[gain], d=[(1 - decay) * self.rest])
