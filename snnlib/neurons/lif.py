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

from snnlib.neurons.base import Params, Reset, State
from snnlib.neurons.dynamics import Dynamics
from snnlib.neurons.firing import SpikingNeuron
from snnlib.neurons.surrogate import ATan, Exponential, Sigmoid, SuperSpike, SurrogateLike


class LIF(SpikingNeuron):
    """Leaky integrate-and-fire neurons: currents `[T, N, C, ...]` to spikes of the same shape.

    ::

        h[t] = decay v[t-1] + gain x[t] + (1 - decay) rest
        s[t] = h[t] >= threshold;   v[t] = reset_value where s[t] = 1, else h[t]

    Args:
        tau: membrane time constant in time steps, >= 1; inf does not leak. Default 2.
        decay_input: whether the input is scaled by `1 - decay`, as in a low-pass filter. Default True.
        discretisation: `"euler"`, decay = 1 - 1/tau, or `"exponential"`, decay = exp(-1/tau). Default `"euler"`.
        rest: potential that it leaks to. Default 0.
        floor: least membrane potential, after the reset. Default none.
        threshold, reset, reset_value, reset_time, detach_reset, compare, surrogate, learnable, channels, batch_first:
            as in `SpikingNeuron`; `learnable` may name "tau" and "threshold".
        dialect: `"spikingjelly"`, `"snntorch"`, `"norse"` or `"sinabs"`: the defaults of that library's neuron for
            all options that are not given.

    Raises:
        ValueError: an option out of its range, or an unknown dialect.

    Source: neurons of SpikingJelly (LIFNode), snnTorch (Leaky), Norse (LIFBoxCell) and sinabs (LIF) by dialect.

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
        "floor": None,
    }
    dialects: ClassVar[dict[str, dict[str, Any]]] = {
        "spikingjelly": {"detach_reset": False, "surrogate": Sigmoid(4.0)},
        "snntorch": {
            "decay_input": False,
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
        floor: float | None = None,
        reset: Reset | None = None,
        reset_value: float | None = None,
        reset_time: str | None = None,
        detach_reset: bool | None = None,
        compare: str | None = None,
        surrogate: SurrogateLike | None = None,
        dialect: str | None = None,
        learnable: Sequence[str] = (),
        channels: int | None = None,
        batch_first: bool = False,
    ) -> None:
        given = {
            name: value
            for name, value in locals().items()
            if name in {**self.defaults, **SpikingNeuron.defaults}
        }
        chosen = self.settings(dialect, given)
        tau = chosen["tau"]
        if not isinstance(tau, torch.nn.Parameter) and not bool((torch.as_tensor(tau) >= 1).all()):
            raise ValueError(f"tau: expected numbers of time steps >= 1, got {tau}")
        if chosen["discretisation"] not in ("euler", "exponential"):
            raise ValueError(
                f"discretisation: expected euler or exponential, got {chosen['discretisation']!r}"
            )
        super().__init__(
            {"tau": tau}, chosen, learnable=learnable, channels=channels, batch_first=batch_first
        )
        self.decay_input = bool(chosen["decay_input"])
        self.discretisation: str = chosen["discretisation"]
        self.rest = float(chosen["rest"])
        self.floor: float | None = chosen["floor"]

    @classmethod
    def from_beta(cls, beta: float, **options: Any) -> LIF:
        """The neuron whose membrane decays by `beta` per step and adds its input unscaled: `tau = 1 / (1 - beta)`."""
        if not 0 <= beta <= 1:
            raise ValueError(f"beta: expected a number from 0 to 1, got {beta}")
        tau = 1 / (1 - beta) if beta < 1 else torch.inf
        return cls(tau, **{"decay_input": False, **options})

    def _decay_and_gain(self, params: Params) -> tuple[Tensor, Tensor | float]:
        # A learnable time constant may be pushed below one step, where a leak would change sign.
        tau = params["tau"].clamp(min=1.0)
        leak = 1 / tau if self.discretisation == "euler" else 1 - torch.exp(-1 / tau)
        return 1 - leak, leak if self.decay_input else 1.0

    @property
    def starts_at_zero(self) -> bool:
        """See `initial_state`."""
        return self.reset != "zero" or self.reset_value == 0

    def initial_state(self, current: Tensor, params: Params) -> State:
        """The membrane starts at `reset_value` where the reset sets it, as in SpikingJelly, else at 0."""
        start = self.reset_value if self.reset == "zero" else 0.0
        return tuple(
            torch.full_like(current, start) if name == "v" else torch.zeros_like(current)
            for name in self.state_names
        )

    def step(self, state: State, current: Tensor, params: Params) -> tuple[Tensor, State]:
        """One time step."""
        decay, gain = self._decay_and_gain(params)
        h = decay * state[0] + gain * current + (1 - decay) * self.rest
        if self.reset_time == "next":
            h = self.reset_membrane(h, state[1], params)
        s = self.fire(h, params)
        if self.reset_time == "next":
            return s, (h, s)
        v = self.reset_membrane(h, s, params)
        return s, (v if self.floor is None else v.clamp(min=self.floor),)

    def dynamics(self, params: Params) -> Dynamics | None:
        """One state; see `Dynamics`."""
        decay, gain = self._decay_and_gain(params)
        firing = self.firing(params, 1)
        if firing is None:
            return None
        return Dynamics(
            a=[[decay]],
            b=[gain],
            d=[(1 - decay) * self.rest],
            floor=-torch.inf if self.floor is None else self.floor,
            **firing,
        )

    def options(self) -> dict[str, Any]:
        """Options that differ from the defaults."""
        own = {
            name: getattr(self, name)
            for name, default in self.defaults.items()
            if name != "tau" and getattr(self, name) != default
        }
        return {**own, **super().options()}
