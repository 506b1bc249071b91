"""Leaky integrator without spikes: the membrane potential is the output.

    i[t] = decay_s i[t-1] + x[t]                              with a synapse, else i[t] = x[t]
    v[t] = decay v[t-1] + gain i[t]

Source: Gerstner et al., "Neuronal Dynamics", 2014, section 1.3, without a threshold.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import InitVar
from typing import Any, ClassVar

import torch
from torch import Tensor

from snnlib.neurons.base import Neuron, Params, State
from snnlib.neurons.checks import check_tau
from snnlib.neurons.dynamics import Dynamics, decay_and_leak
from snnlib.neurons.fields import Constant, constant, one_of, option


class Integrator(Neuron):
    """Leaky integrators for read-outs: currents `[T, N, C, ...]` to membrane potentials of the same shape.

    ::

        v[t] = decay v[t-1] + gain x[t]

    Args:
        tau: membrane time constant in time steps, >= 1; inf adds up. Default 2.
        tau_s: time constant of a synaptic current between input and membrane, >= 1; None: no synaptic current. Default
            None.
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
    gives_spikes = False
    tau: Constant = constant(default=2.0, check=check_tau, kw_only=False)
    tau_s: float | Tensor | None = constant(default=None, check=check_tau)
    decay_input: bool = option(default=True)
    discretisation: str = option(default="euler", check=one_of("euler", "exponential"))
    gradient_through_time: bool = option(default=True)
    dialect: InitVar[str | None] = option(default=None)
    learnable: Sequence[str] = option(default=(), repr=False)
    channels: InitVar[int | None] = option(default=None)
    batch_first: bool = option(default=False, repr=False)

    dialects: ClassVar[dict[str, dict[str, Any]]] = {
        "snntorch": {"decay_input": False},
        "norse": {"tau": 10.0, "tau_s": 5.0},
        "sinabs": {"decay_input": False, "discretisation": "exponential"},
    }

    @classmethod
    def derive(cls, values: dict[str, Any], given: Collection[str], dialect: str | None) -> None:
        """Adds the synaptic current to the states if there is a synapse."""
        if values["tau_s"] is not None:
            values["state_names"] = ("v", "i")
        super().derive(values, given, dialect)

    def _coefficients(self, params: Params) -> tuple[Tensor, Tensor | float, Tensor | None]:
        decay, leak = decay_and_leak(params["tau"], self.discretisation)
        decay_s = decay_and_leak(params["tau_s"], self.discretisation)[0] if "tau_s" in params else None
        return decay, leak if self.decay_input else 1.0, decay_s

    def step(self, state: State, current: Tensor, params: Params) -> tuple[Tensor, State]:
        """Runs a time step."""
        decay, gain, decay_s = self._coefficients(params)
        i = current if decay_s is None else decay_s * state[1] + current
        v = decay * state[0] + gain * i
        return v, (v,) if decay_s is None else (v, i)

    def dynamics(self, params: Params) -> Dynamics:
        """Coefficients of one state, or of two with a synapse; see `Dynamics`."""
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
