"""Current-based LIF neuron: the input charges a synaptic current, which charges the membrane.

    i[t] = decay_s i[t-1] + gain_s x[t]                       synaptic current
    h[t] = decay_m v[t-1] + gain_m i[t]                       membrane potential before the reset
    s[t] = [h[t] >= threshold];   v[t] = reset of h[t] where s[t] = 1

Source: Gerstner et al., "Neuronal Dynamics", 2014, section 1.3; event-driven gradient: Wunderlich and Pehle,
"Event-based backpropagation can compute exact gradients for spiking neural networks", 2021.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any, ClassVar

import torch
from torch import Tensor, inf

from snnlib.backends.arguments import NeuronKernel, SpikeTimeKernel
from snnlib.backends.spike_time import SpikeTimeFlags, SpikeTimeRows
from snnlib.checks import check_number
from snnlib.neurons.base import Params, State
from snnlib.neurons.checks import check_tau
from snnlib.neurons.dialects import NORSE, SINABS, SNNTORCH
from snnlib.neurons.dynamics import Coefficient, Dynamics, all_alike, decay_and_leak, pack
from snnlib.neurons.event import GRAD_CLAMP, ByEvent
from snnlib.neurons.fields import Constant, constant, one_of, option
from snnlib.neurons.firing import SpikingNeuron
from snnlib.neurons.surrogate import Rect
from snnlib.sequences.input_time import CHOICES

# Options in the unit of the membrane.
_POTENTIALS = ("threshold", "reset_value", "rest", "start_value")


def _clamp(name: str, value: Any) -> float:
    check_number(name, value)
    if not value > 0:
        raise ValueError(f"{name}: expected a number > 0, got {float(value)}")
    return float(value)


class CubaLIF(ByEvent, SpikingNeuron):
    """Current-based leaky integrate-and-fire neurons: currents `[T, N, C, ...]` to spikes of the same shape.

    ::

        i[t] = decay_s i[t-1] + gain_s x[t]
        h[t] = decay_m v[t-1] + gain_m i[t] + (1 - decay_m) rest
        s[t] = h[t] >= threshold;   v[t] = reset_value where s[t] = 1, else h[t]

    With `gradient="event"` each spike time is differentiated implicitly, without a surrogate: `dL/dspikes` counts at
    spikes only, asks for "more, or earlier, spikes here" and moves the spike by `1 / (h - v)`, as in `SRM`; the reset
    multiplies the membrane's gradient by `slope after / slope before` (EventProp). Layers of such neurons give their
    input spikes the gradient by their time, so that a net of them has the gradient of exact spike times
    (docs/exact-times.md).

    Args:
        tau_m: membrane time constant in time steps, >= 1. Default 5, as `SRM` has it.
        tau_s: synaptic time constant in time steps, >= 1. Default 3, as `SRM` has it.
        decay_input: whether `gain_m` is `1 - decay_m`; if False, it is 1. Default True.
        decay_current: whether `gain_s` is `decay_s`, so that the input decays in its own step; if False, it is 1.
            Default False.
        discretisation: `"euler"`, decay = 1 - 1/tau, or `"exponential"`, decay = exp(-1/tau). Default `"euler"`.
        rest: potential that the membrane leaks to. Default 0.
        start_value: membrane before the first step. Default: `rest` in Norse's dialect, else `reset_value`, or 0 where
            the reset does not set the membrane.
        gradient: `"surrogate"` or `"event"`. Default `"surrogate"`.
        grad_clamp: largest time `1 / (h - v)` with `gradient="event"`, in units of `tau_s` per threshold; inf: no
            bound. Default 4/3, which is 4 steps for `tau_s = 3`, as in `SRM`.
        input_gradient: gradient of the input with `gradient="event"`: `"time"`, which is `-x[t] (g[t+1] - g[t])` at
            its events with g = dL/dx, or `"dense"`, g itself. Default None: `"time"` in layers, whose input is events,
            and `"dense"` for neurons alone, whose input is currents. Layers behind a surrogate or a module with
            weights need `"dense"`. Recurrent spikes get the same kind of gradient.
        threshold, reset, reset_value, reset_states, reset_time, detach_reset, compare, surrogate, floor, levels,
            level_rounding, refractory, gradient_through_time, learnable, channels, batch_first: as in `SpikingNeuron`;
            `learnable` may name "tau_m", "tau_s" and "threshold". With `gradient="event"`, neurons with learned
            constants or without a gradient through time run by `step`; a refractory time runs in the kernels.
        dialect: `"spikingjelly"` (CUBALIFNode), `"snntorch"` (Synaptic), `"norse"` (LIFCell, whose state holds
            `decay_s i`) or `"sinabs"` (LIF with tau_syn): defaults of that library's neuron for all options that are
            not given.

    Raises:
        ValueError: an option out of its range, an unknown dialect, or with `gradient="event"` an option that has no
            event-driven gradient.

    >>> import torch, snnlib
    >>> neuron = snnlib.neurons.CubaLIF(tau_m=4.0, tau_s=2.0, decay_input=False)
    >>> x = torch.tensor([0.75, 0.75, 0.5, 0.25, 1.5, 0.5]).reshape(6, 1, 1)
    >>> neuron(x).flatten().tolist()
    [0.0, 1.0, 1.0, 0.0, 1.0, 1.0]
    """

    state_names = ("v", "i")
    tau_m: Constant = constant(default=5.0, check=check_tau, kw_only=False)
    tau_s: Constant = constant(default=3.0, check=check_tau, kw_only=False)
    decay_input: bool = option(default=True)
    decay_current: bool = option(default=False)
    discretisation: str = option(default="euler", check=one_of("euler", "exponential"))
    rest: float = option(default=0.0)
    start_value: float | None = option(default=None)
    gradient: str = option(
        default="surrogate",
        check=one_of("surrogate", "event"),
        beside={"reset": "zero", "reset_time": "same", "floor": None, "levels": 1},
    )
    grad_clamp: float = option(default=GRAD_CLAMP, check=_clamp)
    input_gradient: str | None = option(default=None, check=one_of(*CHOICES), beside={"gradient": "event"})

    dialects: ClassVar[dict[str, dict[str, Any]]] = {
        "spikingjelly": {
            "tau_m": 4.0,
            "tau_s": 2.0,
            "decay_input": False,
            "threshold": 0.5,
            "detach_reset": False,
            "surrogate": Rect(1.0),
        },
        "snntorch": {**SNNTORCH, "decay_input": False},
        "norse": {**NORSE, "tau_m": 10.0, "tau_s": 5.0},
        "sinabs": {**SINABS, "decay_current": True, "discretisation": "exponential"},
    }

    @classmethod
    def derive(cls, values: dict[str, Any], given: Collection[str], dialect: str | None) -> None:
        """Sets the start of the membrane in Norse's dialect."""
        if dialect == "norse" and values["start_value"] is None:
            values["start_value"] = values["rest"]
        super().derive(values, given, dialect)

    @classmethod
    def from_continuous(cls, tau_m: float, tau_s: float, dt: float, **options: Any) -> CubaLIF:
        """Returns neurons in steps of `dt` that sample neurons of continuous time, with weights in the same units.

        A spike of weight w moves the membrane by ::

            V(t) = w k (exp(-t / tau_m) - exp(-t / tau_s)),   k = tau_m / (tau_m - tau_s)

        or by `w (t / tau) exp(-t / tau)` where both are tau. For a spike in step 0 `h[n] = V((n + 1) dt) / V(dt)` with
        w = 1, exactly. Potentials (threshold, `reset_value`, `rest` and `start_value`) are divided by this V(dt), so
        weights need no factor. An input at time t belongs in step `t / dt`, rounded (`encoding.at_times`); a spike in
        step m has crossed the threshold by the time `(m + 1) dt`.

        Args:
            tau_m: membrane time constant, in the unit of `dt`.
            tau_s: synaptic time constant, in the unit of `dt`.
            dt: length of a step, at most the shorter of both.
            options: further options of the neuron; potentials in units of V.

        Raises:
            ValueError: a time that is not positive, or a step longer than a time constant.

        Source: Göltz et al., "Fast and energy-efficient neuromorphic deep learning with first-spike times", Nature
        Machine Intelligence 3, 2021, equation 1, for a membrane without a leak of charge into the synapse.

        >>> import math, snnlib
        >>> neuron = snnlib.neurons.CubaLIF.from_continuous(2.0, 1.0, dt=0.01, gradient="event", refractory=math.inf)
        >>> round(float(neuron.tau_m)), round(float(neuron.tau_s)), round(float(neuron.threshold), 1)
        (200, 100, 100.8)
        """
        for name, value in (("tau_m", tau_m), ("tau_s", tau_s), ("dt", dt)):
            if not 0 < value < inf:
                raise ValueError(f"{name}: expected a finite time > 0, got {value}")
        if dt > min(tau_m, tau_s):
            raise ValueError(
                f"dt: expected at most the shorter time constant {min(tau_m, tau_s):g}, got {dt:g}"
            )
        # V(dt) as exp(-dt / tau_m) times a mean of exponentials, which loses no digit where the times are nearly equal.
        rate = dt * (tau_m - tau_s) / (tau_m * tau_s)
        scale = dt / tau_s * math.exp(-dt / tau_m) * (-math.expm1(-rate) / rate if rate else 1.0)
        potentials = {"threshold": 1.0, **options}
        given = {name: potentials[name] / scale for name in _POTENTIALS if potentials.get(name) is not None}
        fixed: dict[str, Any] = {"decay_input": False, "discretisation": "exponential"}
        return cls(tau_m / dt, tau_s / dt, **{**fixed, **options, **given})

    @property
    def exact_times(self) -> bool:  # type: ignore[override]
        """True with `gradient="event"`; see `Neuron`."""
        return self.gradient == "event"

    def _coefficients(self, params: Params) -> tuple[Tensor, Tensor, Tensor | float, Tensor | float]:
        decay_m, leak = decay_and_leak(params["tau_m"], self.discretisation)
        decay_s, _ = decay_and_leak(params["tau_s"], self.discretisation)
        return decay_m, decay_s, leak if self.decay_input else 1.0, decay_s if self.decay_current else 1.0

    def step(self, state: State, current: Tensor, params: Params) -> tuple[Tensor, State]:
        """Runs a time step."""
        decay_m, decay_s, gain_m, gain_s = self._coefficients(params)
        i = decay_s * state[1] + gain_s * current
        h = decay_m * state[0] + gain_m * i
        if self.rest:
            h = h + (1 - decay_m) * self.rest
        if self.gradient == "surrogate":
            return self.fire_and_reset((h, i), state, params)
        slope = (h - state[0]).detach()
        fired = h > params["threshold"] if self.compare == ">" else h >= params["threshold"]
        if "threshold" in self.learnable:
            # At a spike a higher threshold is a lower potential.
            h = h - torch.where(fired, params["threshold"] - params["threshold"].detach(), 0.0)
        if self.reset_states == "all":
            # A membrane at rest without a current does not move.
            after = (decay_m - 1) * (self.reset_value - self.rest)
            i = i.masked_fill(fired, 0.0)
        else:
            after = (decay_m - 1) * (self.reset_value - self.rest) + gain_m * i.detach()
        spikes, v = self.fire_by_event(h, fired, slope, after, self.reset_value, self._bound(params))
        return spikes, (v, i)

    def _make_kernel(self, dtype: torch.dtype, device: torch.device) -> NeuronKernel | None:
        """See `Neuron.kernel`: with `gradient="event"` the kernel of exact spike times, in the arithmetic of `step`."""
        if self.gradient == "surrogate":
            return super()._make_kernel(dtype, device)
        if not self.gradient_through_time or self.learnable:
            return None
        params = {name: value.to(dtype) for name, value in self.constants().items()}
        decay_m, decay_s, gain_m, gain_s = self._coefficients(params)
        # `torch.compile` traces the class itself, not an alias of it with a type.
        rows: SpikeTimeRows[Coefficient] = SpikeTimeRows(
            decay_m=decay_m,
            decay_s=decay_s,
            gain_m=gain_m,
            gain_s=gain_s,
            leak=(1 - decay_m) * self.rest,
            fall=(decay_m - 1) * (self.reset_value - self.rest),
            reset=self.reset_value,
            threshold=params["threshold"],
            bound=self._bound(params),
            decay_g=0.0,
        )
        refractory = -1 if self.refractory == inf else int(self.refractory)
        options = SpikeTimeFlags(self.compare == ">", self.reset_states == "all", False, refractory)
        alike = all_alike(decay_m, decay_s, gain_m, gain_s)
        return SpikeTimeKernel(pack(rows[:-1], dtype, device), options, alike=alike)

    def _bound(self, params: Params) -> Tensor:
        """Returns the largest shift of a spike per unit of potential, in steps."""
        return self.grad_clamp * params["tau_s"] / params["threshold"]

    def dynamics(self, params: Params) -> Dynamics | None:
        """Two states; see `Dynamics`. None with `gradient="event"`, which has another backward pass."""
        return None if self.gradient == "event" else self._forward_dynamics(params)

    def _forward_dynamics(self, params: Params) -> Dynamics | None:
        """Coefficients of the forward pass, with either gradient."""
        decay_m, decay_s, gain_m, gain_s = self._coefficients(params)
        return self.with_reset(
            params,
            a=[[decay_m, gain_m * decay_s], [0.0, decay_s]],
            b=[gain_m * gain_s, gain_s],
            d=[(1 - decay_m) * self.rest if self.rest else 0.0],
        )
