"""Spike response model with an event-driven gradient: the neuron of the SRM layers, as a module.

    h[t] = e_m u[t-1] + (s[t-1] + x[t]) / tau_s               e_x = 1 - 1/tau_x
    s[t] = e_s (s[t-1] + x[t])
    spike where h[t] >= threshold; it resets all states, or the membrane alone

Source: Zhu et al., "Training Spiking Neural Networks with Event-driven Backpropagation", NeurIPS 2022, section 3; with
`reset_states="membrane"`: Wunderlich and Pehle, "Event-based backpropagation can compute exact gradients for spiking
neural networks", 2021.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from snnlib.backends.arguments import NeuronKernel, SpikeTimeKernel
from snnlib.backends.native import state_dtype
from snnlib.backends.spike_time import SRM_FLAGS, SRM_STATES, SpikeCredit
from snnlib.checks import check_floating, check_kernel_dtype, check_number, check_rank
from snnlib.neurons.base import Params, State
from snnlib.neurons.checks import check_threshold
from snnlib.neurons.constants import mean_threshold
from snnlib.neurons.dynamics import pack
from snnlib.neurons.event import GRAD_CLAMP, ByEvent
from snnlib.neurons.fields import Constant, constant, one_of, option
from snnlib.sequences.input_time import CHOICES
from snnlib.sequences.time_first import runs_time_first

# Time steps beyond which a decay factor is 1 in any precision.
_LONGEST = 1e15
_TAUS = ("tau_m", "tau_s", "tau_grad")
# Numbers in files.
_NUMBERS = (*_TAUS, "grad_clamp", "input_grad_scale")


def check_steps(name: str, value: Any) -> float:
    """Returns the time constant if it is a number of time steps, at least 1."""
    check_number(name, value)
    if not 1 <= value <= _LONGEST:
        raise ValueError(f"{name}: expected a finite number of time steps >= 1, got {value}")
    return float(value)


def _longer_steps(name: str, value: Any) -> float:
    check_number(name, value)
    if not 1 < value <= _LONGEST:
        raise ValueError(f"{name}: expected a finite number of time steps > 1, got {value}")
    return float(value)


def _clamp(name: str, value: Any) -> float:
    check_number(name, value)
    if not value > 0:
        raise ValueError(f"{name}: expected a number > 0 or None, got {value}")
    return float(value)


def response_std(tau_m: float, tau_s: float) -> float:
    """`sqrt(sum_n eps[n]^2)`: standard deviation of the free potential for white input current of variance 1."""
    e_m, e_s = 1 - 1 / tau_m, 1 - 1 / tau_s
    return math.sqrt((1 + e_m * e_s) / ((1 - e_m**2) * (1 - e_s**2) * (1 - e_m * e_s))) / tau_s


class SRM(ByEvent):
    """Spike response neurons with an event-driven gradient: currents `[T, N, C, ...]` to spikes of the same shape.

    With `e_x = 1 - 1/tau_x`, from zero state::

        u <- e_m u + (s + x) / tau_s        membrane potential
        s <- e_s (s + x)                    synaptic trace
        spike = u >= threshold;             at a spike u = s = 0

    Each spike time is differentiated implicitly, without a surrogate. `dL/dspikes` counts at spikes only, asks for
    "more, or earlier, spikes here" and moves the spike by `min(1 / delta_u, grad_clamp)` steps per unit of potential.
    A neuron that never fires has a gradient of exactly zero.

    Args:
        tau_m: membrane time constant in time steps, >= 1. Default 5.
        tau_s: synaptic time constant in time steps, >= 1. Default 3.
        tau_grad: time constant of the input-gradient kernel in layers, > 1. Default `tau_s`, the smallest value that
            preserves the sum of gradients exactly; see `docs/gradients.md`.
        grad_clamp: largest time `1 / delta_u`, which is otherwise unbounded; None: no bound. With `reset_states="all"`
            in time steps per unit of potential, default 4, the papers' value; with `"membrane"` in units of `tau_s`
            per threshold, default 4/3. Both are 4 steps for `tau_s = 3`.
        threshold: firing threshold, > 0, a number or one value per channel. Default 1.
        reset_states: `"all"`, as in the library's SRM layers and kernels, or `"membrane"`: a spike leaves the synaptic
            trace unchanged, and the gradient is EventProp's; runs by `step`. Default `"all"`.
        input_grad_scale: factor of the gradient by a layer's input. Default 1 (Zhu et al. 2023); the 2022 paper's code
            damps with 0.85.
        input_gradient: with `reset_states="membrane"` as in `CubaLIF`. Default None.
        batch_first: whether sequences are `[N, T, ...]`. Default False.

    Raises:
        ValueError: a constant out of its range.

    >>> import torch, snnlib
    >>> snnlib.neurons.SRM()(torch.full((8, 1, 1), 1.2)).flatten().tolist()
    [0.0, 0.0, 1.0, 0.0, 0.0, 1.0, 0.0, 0.0]
    """

    state_names = SRM_STATES
    gradient = "event"
    # No clamp, None, is infinite in files.
    stored_numbers: ClassVar[Mapping[str, str]] = dict(zip(_NUMBERS, _NUMBERS, strict=True))
    threshold: Constant = constant(default=1.0, check=check_threshold)
    tau_m: float = option(default=5.0, check=check_steps, kw_only=False)
    tau_s: float = option(default=3.0, check=check_steps, kw_only=False)
    tau_grad: float | None = option(default=None, check=_longer_steps, kw_only=False)
    grad_clamp: float | None = option(default=4.0, check=_clamp, kw_only=False)
    reset_states: str = option(default="all", check=one_of("all", "membrane"))
    input_grad_scale: float = option(default=1.0)
    input_gradient: str | None = option(
        default=None, check=one_of(*CHOICES), beside={"reset_states": "membrane"}
    )
    batch_first: bool = option(default=False, repr=False)

    def build(self, given: Mapping[str, Any]) -> None:
        """See `Neuron.build`; a `grad_clamp` of None means no bound, not the default."""
        if given.get("grad_clamp", 1.0) is None:
            given = {**given, "grad_clamp": math.inf}
        super().build(given)

    @classmethod
    def derive(cls, values: dict[str, Any], given: Collection[str], dialect: str | None) -> None:
        """Sets the defaults of `tau_grad` and `grad_clamp`."""
        if values["tau_grad"] is None:
            if values["tau_s"] == 1:
                raise ValueError("tau_grad: expected a number of time steps > 1 beside tau_s = 1, got None")
            values["tau_grad"] = values["tau_s"]
        if "grad_clamp" not in given:
            values["grad_clamp"] = _default_clamp(values["reset_states"])
        if values["grad_clamp"] == math.inf:
            values["grad_clamp"] = None

    @property
    def exact_times(self) -> bool:  # type: ignore[override]
        """True with a reset of the membrane alone, whose gradient is EventProp's; see `Neuron`."""
        return self.reset_states == "membrane"

    @property
    def taus(self) -> tuple[float, float, float]:
        """`(tau_m, tau_s, tau_grad)`, in time steps."""
        assert self.tau_grad is not None
        return self.tau_m, self.tau_s, self.tau_grad

    @property
    def credit(self) -> SpikeCredit:
        """`taus` and the clamp as kernels take them; no clamp is infinite."""
        return SpikeCredit(*self.taus, math.inf if self.grad_clamp is None else self.grad_clamp)

    def _make_kernel(self, dtype: torch.dtype, device: torch.device) -> NeuronKernel | None:
        """See `Neuron.kernel`: None with a reset of the membrane alone, which runs by `step`."""
        if self.exact_times:
            return None
        credit = self.credit
        constants = pack(credit.rows(self.threshold.to(dtype)), dtype, device)
        return SpikeTimeKernel(constants, SRM_FLAGS, alike=True, credit=credit)

    @runs_time_first
    def free_potential(self, x: Tensor) -> Tensor:
        """Membrane potential at every step, in units of the mean threshold, of neurons that never fire."""
        check_floating("current", x)
        check_kernel_dtype("current", x)
        check_rank("current", x, "[T, N, ...]", at_least=2)
        k, steps = self.credit.settings(), x.detach().to(state_dtype(x))
        u = s = steps.new_zeros(steps.shape[1:])
        potential = torch.empty_like(steps)
        for now, current in zip(potential, steps, strict=True):
            j = s + current
            u, s = k["e_m"] * u + k["r_s"] * j, k["e_s"] * j
            now.copy_(u)
        return potential.to(x.dtype) / mean_threshold(self)

    def step(self, state: State, current: Tensor, params: Params) -> tuple[Tensor, State]:
        """Runs a time step."""
        tau_m, tau_s, tau_grad = self.taus
        u, s, g = state
        j = s + current
        h = (1 - 1 / tau_m) * u + j / tau_s
        fired = h >= params["threshold"]
        # The gradient's own trace has none.
        trace = ((g + current).detach() * (1 - 1 / tau_grad)).masked_fill(fired, 0.0)
        after = torch.zeros_like(h)
        s = (1 - 1 / tau_s) * j
        bound: float | Tensor = torch.inf if self.grad_clamp is None else self.grad_clamp
        if self.reset_states == "all":
            s = s.masked_fill(fired, 0.0)
        else:
            after = j.detach() / tau_s
            bound = bound * tau_s / params["threshold"]
        spikes, u = self.fire_by_event(h, fired, (h - u).detach(), after, 0.0, bound)
        return spikes, (u, s, trace)

    def load_numbers(self, numbers: Mapping[str, float]) -> None:
        """Sets constants from a file."""
        taken = SRM(**{**{name: getattr(self, name) for name in _NUMBERS}, **numbers})
        for name in _NUMBERS:
            setattr(self, name, getattr(taken, name))

    def options(self) -> dict[str, Any]:
        """Time constants, and options that differ from their defaults."""
        shown = {**{name: getattr(self, name) for name in _TAUS}, **super().options()}
        shown["grad_clamp"] = self.grad_clamp
        if self.grad_clamp == _default_clamp(self.reset_states):
            del shown["grad_clamp"]
        return shown


def _default_clamp(reset_states: str) -> float:
    """Returns the default of `grad_clamp` for these reset states."""
    return GRAD_CLAMP if reset_states == "membrane" else 4.0
