"""LIF neuron with an adaptive threshold.

    h[t] = decay v[t-1] + gain x[t]
    theta[t] = threshold + rho a[t-1]                         rho = decay of the adaptation
    s[t] = [h[t] >= theta[t]];   v[t] = h[t] - s[t] theta[t]  or another reset
    a[t] = rho a[t-1] + jump s[t]

The jump beta (1 - rho) / rho makes theta a low-pass filter of the spikes, threshold + beta LP(s).
Source: Bellec et al., "Long short-term memory and learning-to-learn in networks of spiking neurons", NeurIPS 2018;
Yin et al., "Accurate and efficient time-domain classification with adaptive spiking recurrent neural networks", 2021.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, ClassVar

from torch import Tensor

from snnlib.neurons.base import Params, Reset, State
from snnlib.neurons.checks import check_longer_tau, check_tau
from snnlib.neurons.dynamics import Coefficient, Dynamics, decay_and_leak
from snnlib.neurons.fields import Constant, constant, one_of, option
from snnlib.neurons.firing import SimplyReset
from snnlib.neurons.surrogate import Exponential, SuperSpike

_LSNN: dict[str, Any] = {
    "tau_m": 10.0,
    "tau_a": 1 / 1.25e-6,
    "tau_s": 5.0,
    "discretisation": "euler",
    "low_pass": False,
    "reset": "zero",
    "compare": ">",
    "detach_reset": False,
    "surrogate": SuperSpike(1.0),
}


class ALIF(SimplyReset):
    """Adaptive LIF neurons, whose threshold rises with every spike and decays back.

    ::

        h[t] = decay v[t-1] + (1 - decay) x[t]
        s[t] = h[t] >= threshold + rho a[t-1]
        a[t] = rho a[t-1] + jump s[t];   v[t] = h[t] - s[t] (threshold + rho a[t-1])

    Args:
        tau_m: membrane time constant in time steps, >= 1. Default 20.
        tau_a: time constant of the adaptation in time steps, > 1. Default 100.
        beta: strength of the adaptation in units of the membrane. Default 1.8.
        tau_s: time constant of a synaptic current `i[t] = decay_s i[t-1] + x[t]`, which reaches the membrane one step
            later, as in an LSNN; None: no synaptic current. Default None.
        low_pass: whether the jump is `beta (1 - rho) / rho`, so that the adaptation is beta times a low-pass filter of
            the spikes; if False, the jump is beta. Default True.
        detach_adaptation: whether the comparison passes no gradient to the adaptation, and the surrogate's width is in
            units of the adapted threshold, as in sinabs; the neuron then runs by `step`. Default False.
        decay_input: whether the input is scaled by `1 - decay`. Default True.
        discretisation: `"euler"`, decay = 1 - 1/tau, or `"exponential"`, decay = exp(-1/tau). Default
            `"exponential"`.
        reset: `"subtract"` (default) subtracts the adapted threshold.
        threshold, reset_value, detach_reset, compare, surrogate, floor, refractory, gradient_through_time, learnable,
            channels, batch_first: as in `SpikingNeuron`; `learnable` may name "tau_m", "tau_a", "beta", "tau_s" and
            "threshold". The jump keeps its gradient unless the reset is detached.
        dialect: `"norse"` or `"lsnn"` (LSNNCell of Norse) or `"sinabs"` (ALIF without tau_syn).

    Raises:
        ValueError: an option out of its range, or an unknown dialect.

    >>> import torch, snnlib
    >>> neuron = snnlib.neurons.ALIF(tau_m=2.0, tau_a=4.0, beta=2.0)
    >>> neuron(torch.full((8, 1, 1), 2.0)).flatten().tolist()
    [0.0, 1.0, 0.0, 1.0, 0.0, 0.0, 1.0, 0.0]
    """

    state_names = ("v", "a")
    tau_m: Constant = constant(default=20.0, check=check_tau, kw_only=False)
    tau_a: Constant = constant(default=100.0, check=check_longer_tau, kw_only=False)
    beta: Constant = constant(default=1.8, kw_only=False)
    tau_s: float | Tensor | None = constant(default=None, check=check_tau)
    low_pass: bool = option(default=True)
    detach_adaptation: bool = option(default=False)
    decay_input: bool = option(default=True)
    discretisation: str = option(default="exponential", check=one_of("euler", "exponential"))
    reset: Reset = option(default="subtract")

    dialects: ClassVar[dict[str, dict[str, Any]]] = {
        "norse": _LSNN,
        "lsnn": _LSNN,
        "sinabs": {"detach_adaptation": True, "detach_reset": False, "surrogate": Exponential(0.5)},
    }

    @classmethod
    def derive(cls, values: dict[str, Any], given: Collection[str], dialect: str | None) -> None:
        """Adds the synaptic current to the states if there is a synapse."""
        if values["tau_s"] is not None:
            values["state_names"] = ("v", "a", "i")
        super().derive(values, given, dialect)

    def _coefficients(self, params: Params) -> tuple[Tensor, Tensor | float, Tensor, Tensor]:
        decay, leak = decay_and_leak(params["tau_m"], self.discretisation)
        rho, rise = decay_and_leak(params["tau_a"], self.discretisation)
        jump = params["beta"] * rise / rho if self.low_pass else params["beta"]
        return decay, leak if self.decay_input else 1.0, rho, jump

    def reset_amount(self, states: Sequence[Tensor], params: Params) -> Tensor:
        """Returns the adapted threshold."""
        return params["threshold"] + states[1]

    def step(self, state: State, current: Tensor, params: Params) -> tuple[Tensor, State]:
        """Runs a time step."""
        decay, gain, rho, jump = self._coefficients(params)
        current_in = current
        synapse: tuple[Tensor, ...] = ()
        if "tau_s" in params:
            decay_s, _ = decay_and_leak(params["tau_s"], self.discretisation)
            current_in, synapse = state[2], (decay_s * state[2] + current,)
        h = decay * state[0] + gain * current_in
        a = rho * state[1]
        theta = params["threshold"] + (a.detach() if self.detach_adaptation else a)
        # sinabs' surrogate is as wide as the adapted threshold is high.
        width = theta if self.detach_adaptation else params["threshold"]
        spikes = self.spikes_at(h - theta, width)
        v, *_ = self.reset_states_by((h, a), spikes, params)
        a = a + jump * (spikes.detach() if self.detach_reset else spikes)
        return spikes, (self.floored(v), a, *synapse)

    def dynamics(self, params: Params) -> Dynamics | None:
        """Two states, or three with a synapse; see `Dynamics`."""
        if self.detach_adaptation:
            return None
        decay, gain, rho, jump = self._coefficients(params)
        matrix: list[list[Coefficient]] = [[decay, 0.0], [0.0, rho]]
        inputs: list[Coefficient] = [gain, 0.0]
        if "tau_s" in params:
            decay_s, _ = decay_and_leak(params["tau_s"], self.discretisation)
            matrix = [[decay, 0.0, gain], [0.0, rho, 0.0], [0.0, 0.0, decay_s]]
            inputs = [0.0, 0.0, 1.0]
        moving: list[Coefficient] = [0.0, 1.0] if self.reset == "subtract" else []
        return self.with_reset(params, a=matrix, b=inputs, c=[1.0, -1.0], j=[0.0, jump], r=moving)
