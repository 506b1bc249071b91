"""Leaky integrator without spikes: the membrane potential is the output.

    i[t] = decay_s i[t-1] + x[t]                              with a synapse, else i[t] = x[t]
    v[t] = decay v[t-1] + gain i[t]

Source: Gerstner et al., "Neuronal Dynamics", 2014, section 1.3, without a threshold.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from snnlib.checks import check_flag
from snnlib.neurons.base import Neuron, Params, State
from snnlib.neurons.dialects import check_choice, check_tau, choose, decay_and_leak, shown_options
from snnlib.neurons.dynamics import Dynamics


class Integrator(Neuron):
    """Leaky integrators for read-outs: currents `[T, N, C, ...]` to membrane potentials of the same shape.

    ::

        v[t] = decay v[t-1] + gain x[t]

    Args:
        tau: membrane time constant in time steps, >= 1; inf adds up. Default 2.
        tau_s: time constant of a synaptic current between input and membrane, >= 1; None for none. Default None.
        decay_input: whether the input is scaled by `1 - decay`, as in a low-pass filter. Default True.
        discretisation: `"euler"`, decay = 1 - 1/tau, or `"exponential"`, decay = exp(-1/tau). Default `"euler"`.
        gradient_through_time, learnable, channels, batch_first: as in `SpikingNeuron`; `learnable` may name "tau" and
            "tau_s".
        dialect: `"snntorch"` (Leaky without reset), `"norse"` (LICell, whose state holds `decay_s i`) or `"sinabs"`
            (ExpLeak): the defaults of that library for all options that are not given.

    Raises:
        ValueError: an option out of its range, or an unknown dialect.

    >>> import torch, snnlib
    >>> snnlib.neurons.Integrator(tau=2.0)(torch.ones(3, 1, 1)).flatten().tolist()
    [0.5, 0.75, 0.875]
    """

    state_names = ("v",)
    defaults: ClassVar[dict[str, Any]] = {
        "tau": 2.0,
        "tau_s": None,
        "decay_input": True,
        "discretisation": "euler",
        "gradient_through_time": True,
    }
    dialects: ClassVar[dict[str, dict[str, Any]]] = {
        "snntorch": {"decay_input": False},
        "norse": {"tau": 10.0, "tau_s": 5.0},
        "sinabs": {"decay_input": False, "discretisation": "exponential"},
    }

    def __init__(
        self,
        tau: float | Tensor | None = None,
        *,
        tau_s: float | Tensor | None = None,
        decay_input: bool | None = None,
        discretisation: str | None = None,
        gradient_through_time: bool | None = None,
        dialect: str | None = None,
        learnable: Sequence[str] = (),
        channels: int | None = None,
        batch_first: bool = False,
    ) -> None:
        chosen = choose(self.defaults, self.dialects, dialect, locals())
        constants = {"tau": check_tau("tau", chosen["tau"])}
        if chosen["tau_s"] is not None:
            constants["tau_s"] = check_tau("tau_s", chosen["tau_s"])
        super().__init__(constants, learnable=learnable, channels=channels, batch_first=batch_first)
        # Potentials are no spikes.
        self.training_watch.stop()
        self.decay_input = check_flag("decay_input", chosen["decay_input"])
        self.discretisation = check_choice("discretisation", chosen["discretisation"], "euler", "exponential")
        self.gradient_through_time = check_flag("gradient_through_time", chosen["gradient_through_time"])
        if "tau_s" in constants:
            self.state_names = ("v", "i")  # type: ignore[assignment,misc]

    def _coefficients(self, params: Params) -> tuple[Tensor, Tensor | float, Tensor | None]:
        decay, leak = decay_and_leak(params["tau"], self.discretisation)
        decay_s = decay_and_leak(params["tau_s"], self.discretisation)[0] if "tau_s" in params else None
        return decay, leak if self.decay_input else 1.0, decay_s

    def step(self, state: State, current: Tensor, params: Params) -> tuple[Tensor, State]:
        """One time step."""
        decay, gain, decay_s = self._coefficients(params)
        if decay_s is None:
            v = decay * state[0] + gain * current
            return v, (v,)
        i = decay_s * state[1] + current
        v = decay * state[0] + gain * i
        return v, (v, i)

    def dynamics(self, params: Params) -> Dynamics:
        """One state, or two with a synapse; see `Dynamics`."""
        decay, gain, decay_s = self._coefficients(params)
        # No membrane reaches an infinite threshold.
        options: dict[str, Any] = {
            "threshold": torch.inf,
            "scale": 1.0,
            "membrane": True,
            "through_time": self.gradient_through_time,
        }
        if decay_s is None:
            return Dynamics(a=[[decay]], b=[gain], **options)
        return Dynamics(a=[[decay, gain * decay_s], [0.0, decay_s]], b=[gain, 1.0], **options)

    def options(self) -> dict[str, Any]:
        """Options that differ from the defaults."""
        return shown_options(self, self.defaults)
