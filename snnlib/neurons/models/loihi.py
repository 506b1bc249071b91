"""Neurons of Intel's Loihi, in its fixed-point arithmetic.

States are whole multiples of 2^-12 of 23 bits and a sign, in float32 or float64. The integers `4096 u` and `4096 v` are
those of the chip, whose decays are `4096 / tau`, its threshold mantissa `64 threshold` and its bias mantissa
`64 bias_current`::

    u[t] = trunc(u[t-1] (4096 - iDecay) / 4096) + x[t]                          trunc rounds towards zero
    v[t] = trunc(v[t-1] (4096 - vDecay) / 4096) + u[t] + bias_current
    s[t] = v[t] > threshold;   v[t] = 0 where s[t] = 1

`LoihiLIF` has no synaptic current, u = x. Time constants round to decays that are whole multiples of 2^-12, thresholds
and bias currents to multiples of 1/64, currents to the grid of the states; gradients pass all rounding unchanged
(straight through). During a refractory time v is frozen and u continues. A layer with these neurons computes with
weights of 8 bits, `k 2^weight_exponent` with k from -128 to 127.

Source: Davies et al., "Loihi: a neuromorphic manycore processor with on-chip learning", IEEE Micro 2018; numbers of
bits and units as lava-dl has them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import InitVar
from typing import Any

import torch
from torch import Tensor

from snnlib.backends import fixed_point
from snnlib.backends.fixed_point import STEPS, WEIGHT_EXPONENTS
from snnlib.neurons.base import Neuron, Params, Reset, State
from snnlib.neurons.checks import check_tau
from snnlib.neurons.dynamics import Coefficient, Dynamics, at_least
from snnlib.neurons.fields import Constant, constant, fixed, option
from snnlib.neurons.firing import SpikingNeuron

# Mantissas of thresholds and bias currents in a unit of a state.
_MANTISSAS = 64


def _exponent(name: str, value: Any) -> int:
    low, high = WEIGHT_EXPONENTS
    if type(value) is not int or not low <= value <= high:
        raise ValueError(f"{name}: expected an integer from {low} to {high}, or None, got {value!r}")
    return value


def _straight_through(value: Tensor, rounded: Tensor) -> Tensor:
    """Returns the rounded value, with the gradient of the unrounded value."""
    return value + (rounded - value).detach()


def _rounded(value: Tensor, steps: float) -> Tensor:
    """Returns the nearest multiple of `1 / steps`."""
    return _straight_through(value, (value * steps).round() / steps)


def decay_of(tau: Tensor) -> Tensor:
    """Returns the decay of a state per step, `1 - 1/tau` rounded to a multiple of 2^-12."""
    return 1 - _rounded(1 / at_least(tau, 1.0), STEPS)


def decayed(state: Tensor, tau: Tensor) -> Tensor:
    """Returns the state after the decay of a step, rounded towards zero."""
    decay = decay_of(tau)
    return _straight_through(decay * state, fixed_point.kept(decay, state))


def whole(current: Tensor) -> Tensor:
    """Returns the input of a step, rounded to the grid of the states."""
    return _straight_through(current, fixed_point.on_grid(current))


class LoihiNeuron(SpikingNeuron):
    """Base of the spiking neurons of Loihi.

    Args:
        bias_current: current into the membrane in every step, a number or one per channel. Default 0.
        weight_exponent: the weights of a layer are `k 2^weight_exponent` with k from -128 to 127; -5 are the even
            weights of `wgtExp` 0, -256 to 254, in units of 1/64. None takes the finest grid, from -12 to 2, on which
            the largest and the least weight round to such a k. Default None.
        threshold: as in `SpikingNeuron`. Default 80/64, the `vThMant` 80 of lava-dl's example.
    """

    fixed_point = True
    threshold: Constant = constant(default=80 / _MANTISSAS)
    bias_current: Constant = constant(default=0.0)
    weight_exponent: int | None = option(default=None, check=_exponent)
    reset: Reset = fixed("zero")
    reset_value: float = fixed(0.0)
    reset_states: str = fixed("membrane")
    reset_time: str = fixed("same")
    compare: str = fixed(">")
    floor: float | None = fixed(None)
    levels: float = fixed(1)
    level_rounding: str = fixed("floor")

    def constants(self) -> dict[str, Tensor]:
        """Constants as the neuron applies them: thresholds and bias currents are multiples of 1/64."""
        found = super().constants()
        return found | {name: _rounded(found[name], _MANTISSAS) for name in ("threshold", "bias_current")}


class LoihiLIF(LoihiNeuron):
    """Leaky integrate-and-fire neurons of Loihi: currents `[T, N, C, ...]` to spikes of the same shape.

    In whole multiples of 2^-12, with trunc towards zero::

        h[t] = trunc(decay v[t-1]) + x[t] + bias_current
        s[t] = h[t] > threshold;   v[t] = 0 where s[t] = 1, else h[t]

    The chip calls these neurons CUBA with `iDecay` 4096: the synaptic current equals the input.

    Args:
        tau: membrane time constant in time steps, >= 1, `4096 / vDecay`; inf does not leak. Default 32, the `vDecay`
            128 of lava-dl's example.
        threshold, bias_current, weight_exponent: as in `LoihiCubaLIF`.
        detach_reset, surrogate, refractory, gradient_through_time, learnable, channels, batch_first: as in
            `SpikingNeuron`; `learnable` may name "tau", "threshold" and "bias_current".

    Raises:
        ValueError: an option out of its range.
        OverflowError: in a call, a state of 24 bits and more; in a layer it names the layer.

    Source: Davies et al., "Loihi: a neuromorphic manycore processor with on-chip learning", IEEE Micro 2018.

    >>> import torch, snnlib
    >>> neuron = snnlib.neurons.LoihiLIF(4096 / 163, threshold=25 / 64)
    >>> x = torch.zeros(5, 1, 1)
    >>> x[0] = 301 / 4096
    >>> (4096 * neuron.potential(x)).flatten().tolist()
    [301.0, 289.0, 277.0, 265.0, 254.0]
    """

    state_names = ("v",)
    tau: Constant = constant(default=4096 / 128, check=check_tau, kw_only=False)

    def step(self, state: State, current: Tensor, params: Params) -> tuple[Tensor, State]:
        """Runs a time step."""
        h = decayed(state[0], params["tau"]) + whole(current) + params["bias_current"]
        return self.fire_and_reset((fixed_point.within_bits(h),), state, params)

    def dynamics(self, params: Params) -> Dynamics | None:
        """Coefficients of one state; see `Dynamics`."""
        return self.with_reset(params, a=[[decay_of(params["tau"])]], b=[1.0], d=[params["bias_current"]])


class LoihiCubaLIF(LoihiNeuron):
    """Current-based neurons of Loihi: currents `[T, N, C, ...]` to spikes of the same shape.

    In whole multiples of 2^-12, with trunc towards zero::

        i[t] = trunc(decay_s i[t-1]) + x[t]
        h[t] = trunc(decay_m v[t-1]) + i[t] + bias_current
        s[t] = h[t] > threshold;   v[t] = 0 where s[t] = 1, else h[t]

    Args:
        tau_m: membrane time constant in time steps, >= 1, `4096 / vDecay`. Default 32, the `vDecay` 128 of lava-dl's
            example.
        tau_s: synaptic time constant in time steps, >= 1, `4096 / iDecay`. Default 4, the `iDecay` 1024 of that
            example.
        threshold: firing threshold, > 0, `vThMant / 64`, a number or one value per channel. Default 80/64.
        bias_current: current into the membrane in every step, `bias / 64`, a number or one value per channel. Default
            0.
        weight_exponent: the weights of a layer are `k 2^weight_exponent` with k from -128 to 127; -5 are the even
            weights of `wgtExp` 0, -256 to 254, in units of 1/64. None takes the finest grid, from -12 to 2, on which
            the largest and the least weight round to such a k. Default None.
        detach_reset, surrogate, refractory, gradient_through_time, learnable, channels, batch_first: as in
            `SpikingNeuron`; `learnable` may name "tau_m", "tau_s", "threshold" and "bias_current".

    Raises:
        ValueError: an option out of its range.
        OverflowError: in a call, a state of 24 bits and more; in a layer it names the layer.

    Source: Davies et al., "Loihi: a neuromorphic manycore processor with on-chip learning", IEEE Micro 2018; numbers of
    bits and units as lava-dl has them.

    >>> import torch, snnlib
    >>> neuron = snnlib.neurons.LoihiCubaLIF(4096 / 128, 4096 / 1024)
    >>> x = torch.zeros(4, 1, 1)
    >>> x[0] = 301 / 4096
    >>> (4096 * neuron.potential(x)).flatten().tolist()
    [301.0, 516.0, 667.0, 772.0]
    """

    state_names = ("v", "i")
    tau_m: Constant = constant(default=4096 / 128, check=check_tau, kw_only=False)
    tau_s: Constant = constant(default=4096 / 1024, check=check_tau, kw_only=False)

    def step(self, state: State, current: Tensor, params: Params) -> tuple[Tensor, State]:
        """Runs a time step."""
        i = decayed(state[1], params["tau_s"]) + whole(current)
        h = decayed(state[0], params["tau_m"]) + i + params["bias_current"]
        charged = fixed_point.within_bits(h), fixed_point.within_bits(i)
        return self.fire_and_reset(charged, state, params)

    def dynamics(self, params: Params) -> Dynamics | None:
        """Two states; see `Dynamics`."""
        decay_m, decay_s = decay_of(params["tau_m"]), decay_of(params["tau_s"])
        a: list[list[Coefficient]] = [[decay_m, decay_s], [0.0, decay_s]]
        return self.with_reset(params, a=a, b=[1.0, 1.0], d=[params["bias_current"]])


class LoihiIntegrator(Neuron):
    """Integrators of Loihi for read-outs: currents `[T, N, C, ...]` to membrane potentials of the same shape.

    In whole multiples of 2^-12, with trunc towards zero::

        i[t] = trunc(decay_s i[t-1]) + x[t]                       with a synapse, else i[t] = x[t]
        v[t] = trunc(decay v[t-1]) + i[t] + bias_current

    Args:
        tau: membrane time constant in time steps, >= 1, `4096 / vDecay`; inf adds up. Default 32, as in
            `LoihiCubaLIF`.
        tau_s: time constant of a synaptic current between input and membrane, >= 1; None: no synaptic current. Default
            None.
        bias_current, weight_exponent: as in `LoihiCubaLIF`.
        gradient_through_time, learnable, channels, batch_first: as in `SpikingNeuron`; `learnable` may name "tau",
            "tau_s" and "bias_current".

    Raises:
        ValueError: an option out of its range.
        OverflowError: in a call, a state of 24 bits and more; in a layer it names the layer.

    Source: Davies et al., "Loihi: a neuromorphic manycore processor with on-chip learning", IEEE Micro 2018.

    >>> import torch, snnlib
    >>> x = torch.full((3, 1, 1), 3 / 4096)
    >>> (4096 * snnlib.neurons.LoihiIntegrator(tau=2.0)(x)).flatten().tolist()
    [3.0, 4.0, 5.0]
    """

    state_names = ("v",)
    gives_spikes = False
    fixed_point = True
    tau: Constant = constant(default=4096 / 128, check=check_tau, kw_only=False)
    tau_s: float | Tensor | None = constant(default=None, check=check_tau)
    bias_current: Constant = constant(default=0.0)
    weight_exponent: int | None = option(default=None, check=_exponent)
    gradient_through_time: bool = option(default=True)
    learnable: Sequence[str] = option(default=(), repr=False)
    channels: InitVar[int | None] = option(default=None)
    batch_first: bool = option(default=False, repr=False)

    @classmethod
    def derive(cls, values: dict[str, Any], given: Collection[str], dialect: str | None) -> None:
        """Adds the synaptic current to the states if there is a synapse."""
        if values["tau_s"] is not None:
            values["state_names"] = ("v", "i")

    def constants(self) -> dict[str, Tensor]:
        """Constants as the neuron applies them: bias currents are multiples of 1/64."""
        found = super().constants()
        return found | {"bias_current": _rounded(found["bias_current"], _MANTISSAS)}

    def step(self, state: State, current: Tensor, params: Params) -> tuple[Tensor, State]:
        """Runs a time step."""
        i = whole(current)
        if "tau_s" in params:
            i = decayed(state[1], params["tau_s"]) + i
        v = decayed(state[0], params["tau"]) + i + params["bias_current"]
        v, i = fixed_point.within_bits(v), fixed_point.within_bits(i)
        return v, (v, i) if "tau_s" in params else (v,)

    def dynamics(self, params: Params) -> Dynamics:
        """Coefficients of one state, or of two with a synapse; see `Dynamics`."""
        decay = decay_of(params["tau"])
        a: list[list[Coefficient]] = [[decay]]
        if "tau_s" in params:
            decay_s = decay_of(params["tau_s"])
            a = [[decay, decay_s], [0.0, decay_s]]
        # No membrane reaches an infinite threshold.
        return Dynamics(
            a=a,
            b=[1.0] * len(a),
            d=[params["bias_current"]],
            threshold=torch.inf,
            scale=1.0,
            membrane=True,
            through_time=self.gradient_through_time,
            fixed_point=self.fixed_point,
        )
