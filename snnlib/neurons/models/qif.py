"""Quadratic integrate-and-fire neuron: a membrane that runs to the threshold by itself from a critical potential on.

    h[t] = v[t-1] + (x[t] + curvature (v[t-1] - rest) (v[t-1] - critical)) / tau
    s[t] = [h[t] >= threshold];   v[t] = reset of h[t] where s[t] = 1

Source: Gerstner et al., "Neuronal Dynamics", 2014, section 5.3, equation 5.16, in Euler steps; SpikingJelly (QIFNode).
"""

from __future__ import annotations

from typing import Any, ClassVar

from torch import Tensor

from snnlib.neurons.base import Params, Reset, State
from snnlib.neurons.checks import check_positive, check_tau, is_learned, values_of
from snnlib.neurons.dialects import SPIKINGJELLY
from snnlib.neurons.dynamics import at_least
from snnlib.neurons.fields import Constant, constant, fixed, one_of, option
from snnlib.neurons.firing import SpikingNeuron


class QIF(SpikingNeuron):
    """Quadratic integrate-and-fire neurons: currents `[T, N, C, ...]` to spikes of the same shape.

    ::

        tau dv/dt = curvature (v - rest) (v - critical) + x(t)              in Euler steps of one time step
        h[t] = v[t-1] + (x[t] + curvature (v[t-1] - rest) (v[t-1] - critical)) / tau
        s[t] = h[t] >= threshold;   v[t] = reset_value where s[t] = 1, else h[t]

    Without input a membrane below `critical` returns to `rest`, and a membrane above it grows to the threshold.
    Potentials and currents are in units of the threshold. The model is `Izhikevich` without adaptation, and runs as a
    program of `step`.

    Args:
        tau: membrane time constant in time steps, >= 1. Default 2.
        curvature: factor of the parabola, > 0, per unit of potential. Default 1.
        rest: resting potential. Default 0.
        critical: potential above which a membrane without input grows, above `rest`. Default 0.8.
        threshold: firing threshold, above `critical`. Default 1.
        reset: `"zero"` sets the membrane to `reset_value`, `"subtract"` subtracts the threshold. Default `"zero"`.
        reset_value: membrane after a `"zero"` reset and before the first step; with `"subtract"` the membrane starts
            at 0. Default -0.1.
        detach_reset, compare, surrogate, floor, refractory, gradient_through_time, learnable, channels, batch_first:
            as in `SpikingNeuron`; `learnable` may name "tau", "curvature" and "threshold".
        dialect: `"spikingjelly"` (QIFNode), whose constants are the defaults here.

    Raises:
        ValueError: an option out of its range, `critical` not between `rest` and `threshold`, or an unknown dialect.

    >>> import torch, snnlib
    >>> snnlib.neurons.QIF()(torch.full((6, 1, 1), 1.0)).flatten().tolist()
    [0.0, 0.0, 1.0, 0.0, 0.0, 1.0]
    """

    state_names = ("v",)
    tau: Constant = constant(default=2.0, check=check_tau, kw_only=False)
    curvature: Constant = constant(default=1.0, check=check_positive)
    rest: float = option(default=0.0)
    critical: float = option(default=0.8)
    # Without a reset the parabola grows beyond all numbers.
    reset: Reset = option(default="zero", check=one_of("zero", "subtract"))
    reset_value: float = option(default=-0.1)
    reset_states: str = fixed("membrane")
    reset_time: str = fixed("same")
    levels: float = fixed(1)
    level_rounding: str = fixed("floor")

    dialects: ClassVar[dict[str, dict[str, Any]]] = {"spikingjelly": SPIKINGJELLY}

    @classmethod
    def derive(cls, values: dict[str, Any], given: Any, dialect: str | None) -> None:
        """Checks that `critical` lies between `rest` and the threshold."""
        rest, critical = values["rest"], values["critical"]
        if not critical > rest:
            raise ValueError(f"critical: expected a potential above rest {rest:g}, got {critical:g}")
        threshold = values["threshold"]
        if not is_learned(threshold) and not bool((values_of("threshold", threshold) > critical).all()):
            raise ValueError(f"critical: expected a potential below threshold {threshold}, got {critical:g}")
        super().derive(values, given, dialect)

    def step(self, state: State, current: Tensor, params: Params) -> tuple[Tensor, State]:
        """Runs a time step."""
        v = state[0]
        growth = params["curvature"] * (v - self.rest) * (v - self.critical)
        # A learnable time constant may be pushed below one step.
        h = v + (current + growth) / at_least(params["tau"], 1.0)
        return self.fire_and_reset((h,), state, params)
