"""Adaptive LIF neuron of two variables: an adaptation current that follows the membrane and the spikes.

    h[t] = alpha u[t-1] + (1 - alpha) (x[t] - w);   s[t] = [h[t] >= threshold];   u[t] = reset of h[t]
    w[t] = beta w[t-1] + g (a u + b s)                        alpha = exp(-1/tau_m), beta = exp(-1/tau_a)

    symplectic        w = w[t-1] in h, and u = u[t], s = s[t] in w
    euler             w = w[t-1] in h, and u = u[t-1], s = s[t-1] in w
    adaptation_first  w = w[t] in h, and u = h[t-1], s = s[t-1] in w

g = (1 - beta) rho, or 1 without rho. Source: Baronig et al., "Advancing spatio-temporal processing through adaptation
in spiking neural networks", 2025; Bittar and Garner, "A surrogate gradient spiking baseline for speech command
recognition", 2022.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import Any, ClassVar

from torch import Tensor

from snnlib.neurons.base import Params, State
from snnlib.neurons.checks import check_tau
from snnlib.neurons.dynamics import Coefficient, Dynamics, decay_and_leak
from snnlib.neurons.fields import Constant, constant, fixed, one_of, option
from snnlib.neurons.firing import SimplyReset
from snnlib.neurons.surrogate import Exponential, Rectangle, SurrogateLike

# The paper's scale of both couplings; the neuron of Bittar and Garner has none.
_SCALES = {"symplectic": 120.0, "euler": 60.0, "adaptation_first": None}


class AdLIF(SimplyReset):
    """Adaptive LIF neurons of two variables: currents `[T, N, C, ...]` to spikes of the same shape.

    ::

        h[t] = alpha u[t-1] + (1 - alpha) (x[t] - w[t-1]);   s[t] = h[t] > threshold;   u[t] = (1 - s[t]) h[t]
        w[t] = beta w[t-1] + (1 - beta) rho (a u[t] + b s[t])

    With `"adaptation_first"` a spike enters the state `w` in its own step, before the decay; with `"euler"` the last
    step's spike is a separate state. The jump of `w` keeps its gradient even if the reset is detached.

    Args:
        tau_m: membrane time constant in time steps, >= 1. Default 15, the middle of the paper's range 5 to 25.
        tau_a: time constant of the adaptation in time steps, >= 1. Default 180, of the paper's 60 to 300.
        a: coupling to the membrane; 0 to 1 keeps `"symplectic"` and `"euler"` stable. Default 0.5.
        b: coupling to the spikes, 0 to 2 in the paper. Default 1.
        rho: scale of both couplings. Default 120 for `"symplectic"` and 60 for `"euler"`, as in the paper;
            `"adaptation_first"` does not scale `a` and `b`.
        integration: `"symplectic"`, `"euler"` or `"adaptation_first"`. Default `"symplectic"`, which trains best.
        compare: Default `">"`.
        surrogate: Default `Exponential(width=0.2, height=1)`, the paper's.
        threshold, reset, reset_value, detach_reset, refractory, gradient_through_time, learnable, channels,
            batch_first: as in `SpikingNeuron`; `learnable` may name "tau_m", "tau_a", "a", "b" and "threshold".
        dialect: `"sparch"`, the neuron of Bittar and Garner.

    Raises:
        ValueError: an option out of its range, or an unknown dialect.

    >>> import torch, snnlib
    >>> neuron = snnlib.neurons.AdLIF(tau_m=2.0, tau_a=4.0, rho=1.0)
    >>> neuron(torch.full((8, 1, 1), 3.0)).flatten().tolist()
    [1.0, 1.0, 1.0, 0.0, 1.0, 0.0, 1.0, 0.0]
    """

    state_names = ("u", "w")
    tau_m: Constant = constant(default=15.0, check=check_tau, kw_only=False)
    tau_a: Constant = constant(default=180.0, check=check_tau, kw_only=False)
    a: Constant = constant(default=0.5)
    b: Constant = constant(default=1.0)
    rho: float | None = option(default=None)
    integration: str = option(default="symplectic", check=one_of(*_SCALES))
    compare: str = option(default=">")
    surrogate: SurrogateLike = option(default=Exponential(width=0.2, height=1.0))
    floor: float | None = fixed(None)

    dialects: ClassVar[dict[str, dict[str, Any]]] = {
        "sparch": {
            "tau_m": 15.0,
            "tau_a": 75.0,
            "a": 0.0,
            "integration": "adaptation_first",
            "reset": "subtract",
            "detach_reset": False,
            "surrogate": Rectangle(width=0.5),
        }
    }

    @classmethod
    def derive(cls, values: dict[str, Any], given: Collection[str], dialect: str | None) -> None:
        """Sets the scale of both couplings, and the states, by the integration."""
        if values["rho"] is None:
            values["rho"] = _SCALES[values["integration"]]
        if values["integration"] == "euler":
            values["state_names"] = ("u", "w", "s")
        super().derive(values, given, dialect)

    def _coefficients(self, params: Params) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """alpha, 1 - alpha, beta, g a and g b."""
        alpha, leak = decay_and_leak(params["tau_m"], "exponential")
        beta, rise = decay_and_leak(params["tau_a"], "exponential")
        scale = 1.0 if self.rho is None else rise * self.rho
        return alpha, leak, beta, scale * params["a"], scale * params["b"]

    def step(self, state: State, current: Tensor, params: Params) -> tuple[Tensor, State]:
        """Runs a time step."""
        alpha, leak, beta, a, b = self._coefficients(params)
        u, w = state[:2]
        w_new = beta * w + a * u
        h = alpha * u + leak * (current - (w_new if self.integration == "adaptation_first" else w))
        spikes = self.fire(h, params)
        (u,) = self.reset_states_by((h,), spikes, params)
        if self.integration == "symplectic":
            return spikes, (u, beta * w + a * u + b * spikes)
        if self.integration == "euler":
            return spikes, (u, w_new + b * state[2], spikes)
        # Its adaptation follows the membrane before the reset.
        return spikes, (u, w_new + b / beta * spikes + a / beta * (h - u))

    def dynamics(self, params: Params) -> Dynamics | None:
        """Two states, or three with `"euler"`; see `Dynamics`."""
        alpha, leak, beta, a, b = self._coefficients(params)
        dynamics = partial(self.with_reset, params, detach_jump=False)
        matrix: list[list[Coefficient]] = [[alpha, -leak], [0.0, beta]]
        if self.integration == "symplectic":
            return dynamics(a=matrix, b=[leak, 0.0], p=[0.0, a], j=[0.0, b])
        if self.integration == "euler":
            matrix = [[alpha, -leak, 0.0], [a, beta, b], [0.0, 0.0, 0.0]]
            return dynamics(a=matrix, b=[leak, 0.0, 0.0], j=[0.0, 0.0, 1.0])
        matrix = [[alpha - leak * a, -leak * beta], [a, beta]]
        if self.reset == "none":
            return dynamics(a=matrix, b=[leak, 0.0], j=[0.0, b / beta])
        if self.reset == "zero" or self.detach_reset:
            # The reset takes off an amount that is no constant, or has another gradient than the spike's share.
            return None
        jump = (b + a * params["threshold"]) / beta
        return dynamics(a=matrix, b=[leak, 0.0], j=[0.0, jump])
