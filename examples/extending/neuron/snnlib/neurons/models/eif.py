"""Exponential integrate-and-fire neuron: near its threshold the membrane runs away by itself.

    h[t] = v[t-1] + (rest - v[t-1] + sharpness exp((v[t-1] - rheobase) / sharpness) + x[t]) / tau
    s[t] = [h[t] >= threshold];   v[t] = reset of h[t] where s[t] = 1

Source: Fourcaud-Trocmé et al., "How spike generation mechanisms determine the neuronal response to fluctuating inputs",
Journal of Neuroscience 2003.
"""

from __future__ import annotations

from torch import Tensor

from snnlib.neurons.base import Params, Reset, State
from snnlib.neurons.checks import check_tau
from snnlib.neurons.fields import Constant, constant, fixed, one_of, option
from snnlib.neurons.firing import SpikingNeuron


class EIF(SpikingNeuron):
    """Exponential integrate-and-fire neurons: currents `[T, N, C, ...]` to spikes of the same shape.

    Args:
        tau: membrane time constant in time steps, >= 1. Default 2.
        sharpness: width of the exponential, in units of the membrane. Default 0.2.
        rheobase: potential from which on it grows. Default 0.8.
        rest: resting potential. Default 0.
        threshold, reset, reset_value, detach_reset, compare, surrogate, floor, refractory, gradient_through_time,
            learnable, channels, batch_first: as in `SpikingNeuron`.

    >>> import torch, snnlib
    >>> snnlib.neurons.EIF()(torch.full((6, 1, 1), 1.0)).flatten().tolist()
    [0.0, 0.0, 0.0, 1.0, 0.0, 0.0]
    """

    state_names = ("v",)
    tau: Constant = constant(default=2.0, check=check_tau, kw_only=False)
    sharpness: Constant = constant(default=0.2)
    rheobase: float = option(default=0.8)
    rest: float = option(default=0.0)
    # Without a reset the exponential grows beyond all numbers.
    reset: Reset = option(default="zero", check=one_of("zero"))
    reset_states: str = fixed("membrane")
    reset_time: str = fixed("same")
    levels: float = fixed(1)
    level_rounding: str = fixed("floor")

    def step(self, state: State, current: Tensor, params: Params) -> tuple[Tensor, State]:
        """Runs a time step."""
        v, sharpness = state[0], params["sharpness"]
        # Above the threshold by this much the membrane has been reset.
        growth = sharpness * ((v - self.rheobase) / sharpness).clamp(max=20).exp()
        h = v + (self.rest - v + growth + current) / params["tau"].clamp(min=1.0)
        return self.fire_and_reset((h,), state, params)
