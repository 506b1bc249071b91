"""LIF neuron with a learned gain and a rectifier before the threshold.

    h[t] = max(0, k (decay v[t-1] + gain x[t] + (1 - decay) rest))
    s[t] = [h[t] >= threshold];   v[t] = reset of h[t] where s[t] = 1

Source: Jiang et al., "KLIF: An Optimized Spiking Neuron Unit for Tuning Surrogate Gradient Slope and Membrane
Potential", 2023.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from torch import Tensor

from snnlib.neurons.base import Params, State
from snnlib.neurons.checks import check_tau
from snnlib.neurons.dialects import LEAKY_SPIKINGJELLY
from snnlib.neurons.dynamics import Dynamics, decay_and_leak
from snnlib.neurons.fields import Constant, constant, fixed, option
from snnlib.neurons.firing import SimplyReset


class KLIF(SimplyReset):
    """LIF neurons whose membrane is scaled by a learned `k` and rectified before the threshold.

    With `scale_reset` the neuron runs as a program of `step`.

    Args:
        tau: membrane time constant in time steps, >= 1. Default 2.
        k: initial gain. Default 1.
        scale_reset: whether the reset acts on `h / k` and subtracts `threshold / k`. Default False.
        decay_input: whether the input is scaled by `1/tau`. Default True.
        rest: potential that the membrane leaks to. Default 0; `reset_value` in SpikingJelly's dialect.
        threshold, reset, reset_value, reset_time, detach_reset, compare, surrogate, refractory, gradient_through_time,
            channels, batch_first: as in `SpikingNeuron`.
        learnable: names among "k", "tau" and "threshold". Default "k".
        dialect: `"spikingjelly"` (KLIFNode).

    Raises:
        ValueError: an option out of its range, or an unknown dialect.

    >>> import torch, snnlib
    >>> snnlib.neurons.KLIF(k=2.0)(torch.full((3, 1, 1), 1.2)).flatten().tolist()
    [1.0, 1.0, 1.0]
    """

    state_names = ("v",)
    tau: Constant = constant(default=2.0, check=check_tau, kw_only=False)
    k: Constant = constant(default=1.0)
    scale_reset: bool = option(default=False)
    decay_input: bool = option(default=True)
    rest: float = option(default=0.0)
    floor: float | None = fixed(None)
    learnable: Sequence[str] = option(default=("k",))

    dialects: ClassVar[dict[str, dict[str, Any]]] = {"spikingjelly": LEAKY_SPIKINGJELLY}

    def step(self, state: State, current: Tensor, params: Params) -> tuple[Tensor, State]:
        """Runs a time step."""
        decay, leak = decay_and_leak(params["tau"], "euler")
        gain = leak if self.decay_input else 1.0
        k = params["k"]
        h = (k * (decay * state[0] + gain * current + leak * self.rest)).relu()
        spikes = self.fire(h, params)
        if not self.scale_reset:
            return spikes, self.reset_states_by((h,), spikes, params)
        scaled = {**params, "threshold": params["threshold"] / k}
        return spikes, self.reset_states_by((h / k,), spikes, scaled)

    def dynamics(self, params: Params) -> Dynamics | None:
        """Coefficients of one state, rectified; see `Dynamics`."""
        if self.scale_reset:
            return None
        decay, leak = decay_and_leak(params["tau"], "euler")
        gain = leak if self.decay_input else 1.0
        return self.with_reset(
            params, a=[[decay]], b=[gain], d=[leak * self.rest], c=[params["k"]], rectified=True
        )
