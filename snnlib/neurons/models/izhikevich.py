"""Quadratic integrate-and-fire neuron with an adaptation current (Izhikevich).

    h[t] = v[t-1] + (x[t] + curvature (v[t-1] - rest) (v[t-1] - critical) - w[t-1]) / tau_m
    s[t] = [h[t] >= threshold];   v[t] = reset of h[t] where s[t] = 1
    w[t] = w[t-1] + (a (m - w_rest) - w[t-1]) / tau_a + b s[t],   m = h[t] (symplectic) or v[t-1] (euler)

Source: Izhikevich, "Simple model of spiking neurons", IEEE Transactions on Neural Networks 2003; SpikingJelly
(IzhikevichNode) and Norse.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, ClassVar, cast

import torch
from torch import Tensor

from snnlib.neurons.base import Params, Reset, State
from snnlib.neurons.checks import check_tau
from snnlib.neurons.dialects import NORSE, SPIKINGJELLY
from snnlib.neurons.dynamics import Dynamics, at_least
from snnlib.neurons.fields import Constant, constant, fixed, one_of, option
from snnlib.neurons.firing import SimplyReset

# Roots of 0.04 v^2 + 5 v + 140, the parabola of the paper.
_ROOTS = [(-5 + sign * (5**2 - 4 * 0.04 * 140) ** 0.5) / 0.08 for sign in (-1, 1)]


class Izhikevich(SimplyReset):
    """Izhikevich neurons: currents `[T, N, C, ...]` to spikes of the same shape.

    ::

        h[t] = v[t-1] + (x[t] + curvature (v[t-1] - rest) (v[t-1] - critical) - w[t-1]) / tau_m
        s[t] = h[t] >= threshold;   v[t] = reset_value where s[t] = 1, else h[t]
        w[t] = w[t-1] + (a (h[t] - w_rest) - w[t-1]) / tau_a + b s[t]

    With `a = b = 0` it is a quadratic integrate-and-fire neuron. The jump of `w` keeps its gradient even if the reset
    is detached.

    Args:
        tau_m: membrane time constant in time steps, >= 1. Default 2.
        tau_a: time constant of the adaptation in time steps, >= 1. Default 2.
        a: coupling of the adaptation to the membrane. Default 0, as in SpikingJelly.
        b: jump of the adaptation at a spike. Default 0, as in SpikingJelly.
        curvature: factor of the parabola, > 0. Default 1.
        rest: potential at rest. Default -0.1.
        critical: potential from which the membrane runs to the threshold by itself. Default 0.8.
        w_rest: potential at which the adaptation rests; None: `rest`. Default None.
        w_start: adaptation before the first step. Default 0.
        v_start: membrane before the first step; None: `reset_value`, or 0 without `reset="zero"`. Default None.
        integration: `"symplectic"`, the adaptation follows the new membrane, or `"euler"`, the old one. Default
            `"symplectic"`.
        threshold, reset, reset_value, detach_reset, compare, surrogate, refractory, gradient_through_time, learnable,
            channels, batch_first: as in `SpikingNeuron`; `learnable` may name "tau_m", "tau_a", "a", "b", "curvature"
            and "threshold".
        dialect: `"spikingjelly"` (IzhikevichNode) or `"norse"` (tonic spiking in steps of 1 ms, in millivolts).

    Raises:
        ValueError: an option out of its range, or an unknown dialect.

    >>> import torch, snnlib
    >>> neuron = snnlib.neurons.Izhikevich(a=0.5, b=0.25)
    >>> neuron(torch.full((6, 1, 1), 1.5)).flatten().tolist()
    [0.0, 1.0, 0.0, 0.0, 1.0, 0.0]
    """

    state_names = ("v", "w")
    tau_m: Constant = constant(default=2.0, check=check_tau, kw_only=False)
    tau_a: Constant = constant(default=2.0, check=check_tau, kw_only=False)
    a: Constant = constant(default=0.0)
    b: Constant = constant(default=0.0)
    curvature: Constant = constant(default=1.0)
    rest: float = option(default=-0.1)
    critical: float = option(default=0.8)
    w_rest: float | None = option(default=None)
    w_start: float = option(default=0.0)
    v_start: float | None = option(default=None)
    integration: str = option(default="symplectic", check=one_of("symplectic", "euler"))
    # Without a reset the parabola grows beyond all numbers.
    reset: Reset = option(default="zero", check=one_of("zero", "subtract"))
    floor: float | None = fixed(None)

    dialects: ClassVar[dict[str, dict[str, Any]]] = {
        "spikingjelly": SPIKINGJELLY,
        "norse": {
            "tau_m": 4.0,
            "tau_a": 4.0 / 0.02,
            "a": 0.2,
            "b": 6.0,
            "curvature": 0.04,
            "rest": _ROOTS[0],
            "critical": _ROOTS[1],
            "w_rest": 0.0,
            "w_start": -14.0,
            "v_start": -70.0,
            "integration": "euler",
            "threshold": 30.0,
            "reset_value": -65.0,
            **NORSE,
        },
    }

    @classmethod
    def derive(cls, values: dict[str, Any], given: Collection[str], dialect: str | None) -> None:
        """Sets the default of `w_rest`."""
        if values["w_rest"] is None:
            values["w_rest"] = values["rest"]
        super().derive(values, given, dialect)

    def initial_state(self, current: Tensor, params: Params) -> State:
        """The membrane at `v_start`, the adaptation at `w_start`."""
        v, w, *rests = super().initial_state(current, params)
        v = v if self.v_start is None else torch.full_like(v, self.v_start)
        return (v, torch.full_like(w, self.w_start), *rests)

    def step(self, state: State, current: Tensor, params: Params) -> tuple[Tensor, State]:
        """Runs a time step."""
        v, w = state
        parabola = params["curvature"] * (v - self.rest) * (v - self.critical)
        h = v + (current + parabola - w) / at_least(params["tau_m"], 1.0)
        spikes = self.fire(h, params)
        followed = h if self.integration == "symplectic" else v
        drift = params["a"] * (followed - cast(float, self.w_rest)) - w
        w = w + drift / at_least(params["tau_a"], 1.0) + params["b"] * spikes
        return spikes, (*self.reset_states_by((h,), spikes, params), w)

    def dynamics(self, params: Params) -> Dynamics | None:
        """Two states with the membrane's square, the parabola multiplied out; see `Dynamics`."""
        rise, rise_a = (1 / at_least(params[name], 1.0) for name in ("tau_m", "tau_a"))
        steep = params["curvature"] * rise
        coupling = params["a"] * rise_a
        # h = from_v v + from_w w + from_x x + shift + steep v^2
        from_v, from_w, from_x = 1 - steep * (self.rest + self.critical), -rise, rise
        shift = steep * (self.rest * self.critical)
        kept, drift = 1 - rise_a, -coupling * cast(float, self.w_rest)
        # Quantities that follow the new membrane h follow each of its terms.
        symplectic = float(self.integration == "symplectic")
        of_h, of_v = symplectic * coupling, (1 - symplectic) * coupling
        return self.with_reset(
            params,
            a=[[from_v, from_w], [of_v + of_h * from_v, kept + of_h * from_w]],
            b=[from_x, of_h * from_x],
            d=[shift, drift + of_h * shift],
            p=[steep, of_h * steep],
            j=[0.0, params["b"]],
            detach_jump=False,
            quadratic=True,
        )
