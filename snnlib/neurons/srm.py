"""Spike response model with an event-driven gradient: the neuron of `SRMConv2d` and its kind, as a module.

    h[t] = e_m u[t-1] + (s[t-1] + x[t]) / tau_s               e_x = 1 - 1/tau_x
    s[t] = e_s (s[t-1] + x[t])
    spike where h[t] >= threshold; it resets all states, or the membrane alone

Source: Zhu et al., "Training Spiking Neural Networks with Event-driven Backpropagation", NeurIPS 2022, section 3; with
`reset_states="membrane"`: Wunderlich and Pehle, "Event-based backpropagation can compute exact gradients for spiking
neural networks", 2021.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, cast

import torch
from torch import Tensor

from snnlib.checks import check_choice, check_finite, check_number, step_shape
from snnlib.neurons.base import Output, Params, State
from snnlib.neurons.checks import check_threshold
from snnlib.neurons.event import GRAD_CLAMP, ByEvent
from snnlib.neurons.spike_response import SRMNeuron, free_srm_potential, srm_neuron_stream

# Default bound of the time per potential by what a spike resets.
_CLAMPS = {"all": SRMNeuron.grad_clamp, "membrane": GRAD_CLAMP}


class SRM(ByEvent):
    """Spike response neurons with an event-driven gradient: currents `[T, N, C, ...]` to spikes of the same shape.

    With `e_x = 1 - 1/tau_x`, from zero state::

        u <- e_m u + (s + x) / tau_s        membrane potential
        s <- e_s (s + x)                    synaptic trace
        spike = u >= threshold;             at a spike u = s = 0

    No surrogate is used: each spike time is differentiated implicitly. `dL/dspikes` is read at spikes, means "more, or
    earlier, spikes here" and moves the spike by `min(1 / delta_u, grad_clamp)` steps per unit of potential. A neuron
    that never fires gets exactly zero.

    Args:
        tau_m: membrane time constant in time steps, >= 1. Default 5.
        tau_s: synaptic time constant in time steps, >= 1. Default 3.
        tau_grad: time constant of the input-gradient kernel in layers, > 1. Default `tau_s`; see `docs/gradients.md`.
        threshold: firing threshold, > 0, a number or one value per channel. Default 1.
        grad_clamp: bound of the time `1 / delta_u`, None for none. With `reset_states="all"` in time steps per unit of
            potential, by default 4, the papers' value; with `"membrane"` in units of `tau_s` per threshold, by default
            4/3. Both are 4 steps for `tau_s = 3`.
        reset_states: `"all"`, the model of the library's layers and native kernels, or `"membrane"`: the synaptic trace
            goes on after a spike, with EventProp's gradient; it runs by `step`. Default `"all"`.
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

    state_names = ("u", "s", "g")
    gradient = "event"

    def __init__(
        self,
        tau_m: float = 5.0,
        tau_s: float = 3.0,
        tau_grad: float | None = None,
        *,
        threshold: float | Tensor = 1.0,
        grad_clamp: float | Literal["auto"] | None = "auto",
        reset_states: str = "all",
        input_grad_scale: float = 1.0,
        input_gradient: str | None = None,
        batch_first: bool = False,
    ) -> None:
        check_choice("reset_states", reset_states, *_CLAMPS)
        clamp = _CLAMPS[reset_states] if grad_clamp == "auto" else grad_clamp
        self_neuron = SRMNeuron(tau_m, tau_s, tau_grad, clamp)
        check_threshold(threshold)
        super().__init__({"threshold": threshold}, batch_first=batch_first)
        self.neuron = self_neuron
        self.threshold: Tensor
        self.reset_states = reset_states
        check_number("input_grad_scale", input_grad_scale)
        check_finite("input_grad_scale", input_grad_scale)
        self.input_grad_scale = input_grad_scale
        self.choose_input_gradient(input_gradient)
        if input_gradient is not None and not self.exact_times:
            raise ValueError(
                f'input_gradient: expected None beside reset_states="all", got {input_gradient!r}'
            )

    @property
    def exact_times(self) -> bool:  # type: ignore[override]
        """With a reset of the membrane alone, whose gradient is EventProp's; see `Neuron`."""
        return self.reset_states == "membrane"

    @property
    def taus(self) -> tuple[float, float, float]:
        """`(tau_m, tau_s, tau_grad)`, in time steps."""
        return self.neuron.taus

    @property
    def tau_m(self) -> float:
        """Time constant of the membrane, in time steps."""
        return self.neuron.taus[0]

    @property
    def tau_s(self) -> float:
        """Time constant of the synapse, in time steps."""
        return self.neuron.taus[1]

    @property
    def tau_grad(self) -> float:
        """Time constant of the gradient's trace, in time steps."""
        return self.neuron.taus[2]

    @property
    def grad_clamp(self) -> float | None:
        """Bound of `1 / (h - u)` in the gradient, in units of its kind of reset; None is none."""
        return self.neuron.grad_clamp

    def run(
        self, x: Tensor, state: tuple[Tensor, ...] | None = None, lengths: Tensor | None = None
    ) -> Output:
        """Spikes from a given state `([3, N, C, ...],)` of u, s and g, and the state after the last step."""
        if self.exact_times or lengths is not None:
            return super().run(x, state, lengths)
        self.check_currents(x)
        if state is not None:
            self._check_state(state, step_shape(x.shape, int(self.batch_first)), x)
        start = None if state is None else state[0]
        out = srm_neuron_stream(x, start, self.neuron, self.own_threshold(x), self.batch_first)
        return Output(out.value, (out.state,))

    @property
    def knows_potential(self) -> bool:
        """True: without spikes the potential is a filter of the current."""
        return True

    def free_potential(self, x: Tensor) -> Tensor:
        """Membrane potential at every step, in units of the mean threshold, of neurons that never fire."""
        return free_srm_potential(x, self.neuron, self.batch_first) / self.mean_threshold()

    def own_threshold(self, like: Tensor) -> Tensor:
        """The threshold in the dtype of the membrane's state of sequences like this one."""
        dtype = torch.promote_types(like.dtype, torch.float32)
        tables = self._kept_tables()
        if tables is None:
            return self.threshold.to(dtype)
        if dtype not in tables:
            with torch.inference_mode(False):
                tables[dtype] = self.threshold.to(dtype)
        return cast(Tensor, tables[dtype])

    def reference(self, x: Tensor, state: tuple[Tensor, ...] | None = None) -> Output:
        """`run` by `step` in plain torch."""
        return self._run(x, state, None)

    def step(self, state: State, current: Tensor, params: Params) -> tuple[Tensor, State]:
        """One time step."""
        tau_m, tau_s, tau_grad = self.neuron.taus
        u, s, g = state
        j = s + current
        h = (1 - 1 / tau_m) * u + j / tau_s
        fired = h >= params["threshold"]
        # The gradient's own trace has none.
        trace = ((g + current).detach() * (1 - 1 / tau_grad)).masked_fill(fired, 0.0)
        after = torch.zeros_like(h)
        s = (1 - 1 / tau_s) * j
        bound: float | Tensor = torch.inf if self.neuron.grad_clamp is None else self.neuron.grad_clamp
        if self.reset_states == "all":
            s = s.masked_fill(fired, 0.0)
        else:
            after = j.detach() / tau_s
            bound = bound * tau_s / params["threshold"]
        spikes, u = self.fire_by_event(h, fired, (h - u).detach(), after, 0.0, bound)
        return spikes, (u, s, trace)

    def stored_numbers(self) -> dict[str, float]:
        """Constants that are numbers, as in files; a clamp that is none is infinite."""
        return {**self.neuron.stored_numbers(), "input_grad_scale": float(self.input_grad_scale)}

    def load_numbers(self, numbers: Mapping[str, float]) -> None:
        """Take over constants from a file."""
        constants = dict(numbers)
        self.input_grad_scale = constants.pop("input_grad_scale", self.input_grad_scale)
        self.neuron = self.neuron.with_numbers(constants)

    def options(self) -> dict[str, Any]:
        """Time constants, and what differs from the defaults."""
        tau_m, tau_s, tau_grad = self.neuron.taus
        shown: dict[str, Any] = {"tau_m": tau_m, "tau_s": tau_s, "tau_grad": tau_grad}
        if self.neuron.grad_clamp != _CLAMPS[self.reset_states]:
            shown["grad_clamp"] = self.neuron.grad_clamp
        if self.input_grad_scale != 1:
            shown["input_grad_scale"] = self.input_grad_scale
        if self.reset_states != "all":
            shown["reset_states"] = self.reset_states
        if self.input_gradient is not None:
            shown["input_gradient"] = self.input_gradient
        return shown
