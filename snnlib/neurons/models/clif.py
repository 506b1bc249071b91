"""Complementary LIF neuron: a second potential that remembers spikes without a leak of its own.

    h[t] = (1 - 1/tau) v[t-1] + x[t]
    s[t] = [h[t] >= threshold]
    m[t] = m[t-1] sigmoid(h[t] / tau) + s[t]                  complementary potential
    v[t] = h[t] - s[t] (threshold + sigmoid(m[t]))

Source: Huang et al., "CLIF: Complementary Leaky Integrate-and-Fire Neuron for Spiking Neural Networks", ICML 2024,
algorithm 1.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from snnlib.neurons.base import Params, Reset, State
from snnlib.neurons.checks import check_tau
from snnlib.neurons.dynamics import decay_and_leak
from snnlib.neurons.fields import Constant, constant, fixed, option
from snnlib.neurons.firing import SimplyReset
from snnlib.neurons.surrogate import Rect, SurrogateLike


class CLIF(SimplyReset):
    """Complementary LIF neurons: currents `[T, N, C, ...]` to spikes of the same shape.

    ::

        h[t] = (1 - 1/tau) v[t-1] + x[t];   s[t] = h[t] >= threshold
        m[t] = m[t-1] sigmoid(h[t] / tau) + s[t];   v[t] = h[t] - s[t] (threshold + sigmoid(m[t]))

    `m` grows with spikes, and decays more slowly if the membrane is high. A neuron that fired recently is reset to a
    lower value, and gradients reach earlier steps through `m` even if they vanish through the membrane. The jump of
    `m` keeps its gradient even if the reset is detached. The neuron runs as a program of `step`.

    Args:
        tau: membrane time constant in time steps, >= 1. Default 2, the paper's.
        threshold: firing threshold, > 0, a number or one value per channel. Default 1.
        detach_reset: whether the reset passes no gradient to the spike that caused it. Default False: the paper's
            gradient goes through it.
        surrogate: Default `Rect(1)`, the paper's.
        compare, refractory, gradient_through_time, learnable, channels, batch_first: as in `SpikingNeuron`; `learnable`
            may name "tau" and "threshold".

    Raises:
        ValueError: an option out of its range.

    >>> import torch, snnlib
    >>> neuron = snnlib.neurons.CLIF()
    >>> spikes, (state,) = neuron.run(torch.full((6, 1, 1), 0.75))
    >>> spikes.flatten().tolist()
    [0.0, 1.0, 0.0, 0.0, 1.0, 0.0]
    >>> state.shape                                                    # v and m
    torch.Size([2, 1, 1])
    """

    state_names = ("v", "m")
    tau: Constant = constant(default=2.0, check=check_tau, kw_only=False)
    reset: Reset = fixed("subtract")
    reset_value: float = fixed(0.0)
    detach_reset: bool = option(default=False)
    surrogate: SurrogateLike = option(default=Rect(1.0))
    floor: float | None = fixed(None)

    def reset_amount(self, states: Sequence[Tensor], params: Params) -> Tensor:
        """Returns the threshold plus the sigmoid of m, which grows with past spikes."""
        return params["threshold"] + states[1].sigmoid()

    def step(self, state: State, current: Tensor, params: Params) -> tuple[Tensor, State]:
        """Runs a time step."""
        v, m = state
        decay, leak = decay_and_leak(params["tau"], "euler")
        h = decay * v + current
        spikes = self.fire(h, params)
        m = m * (h * leak).sigmoid() + spikes
        return spikes, self.reset_states_by((h, m), spikes, params)
