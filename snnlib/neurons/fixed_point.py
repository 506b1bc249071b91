"""Neurons in the fixed-point arithmetic of Intel's Loihi: states and decays are whole multiples of 2^-12."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from torch import Tensor

from snnlib.backends.fixed_point import (
    STEPS,
    WEIGHT_EXPONENTS,
    check_states,
    kept,
    on_grid,
    within_bits,
)
from snnlib.neurons.at_least import at_least
from snnlib.neurons.base import Params
from snnlib.neurons.dynamics import Coefficient, decay_and_leak
from snnlib.neurons.fields import Declared, constant, option
from snnlib.neurons.firing import SpikingNeuron

# Thresholds and bias currents are whole multiples of 1/64: their mantissas count 64 units of a state.
_MANTISSAS = 64
# What keeps states on the grid: options by the value that they need.
_NEEDED: dict[str, Any] = {
    "decay_input": False,
    "decay_current": False,
    "discretisation": "euler",
    "rest": 0.0,
    "start_value": None,
    "gradient": "surrogate",
    "reset": "zero",
    "reset_value": 0.0,
    "reset_states": "membrane",
    "reset_time": "same",
    "floor": None,
    "max_spikes": 1,
}


def check_exponent(name: str, value: Any) -> int:
    """The exponent of weights, if it is one."""
    low, high = WEIGHT_EXPONENTS
    if type(value) is not int or not low <= value <= high:
        raise ValueError(f"{name}: expected an integer from {low} to {high}, or None, got {value!r}")
    return value


def _straight_through(value: Tensor, rounded: Tensor) -> Tensor:
    """The rounded value, with the gradient of the value itself."""
    return value + (rounded - value).detach()


def _rounded(value: Tensor, steps: float) -> Tensor:
    """The nearest multiple of `1 / steps`."""
    return _straight_through(value, (value * steps).round() / steps)


class FixedPoint(Declared):
    """What neurons do that may compute as Loihi does; options as `FixedPointNeuron` has them."""

    def constants(self) -> dict[str, Tensor]:
        """Constants as they act: with `fixed_point` thresholds and bias currents are multiples of 1/64."""
        found = super().constants()
        if self.fixed_point:
            found |= {
                name: _rounded(found[name], _MANTISSAS)
                for name in ("threshold", "bias_current")
                if name in found
            }
        return found

    def decay_and_leak(self, tau: Tensor, discretisation: str) -> tuple[Tensor, Tensor]:
        """Returns what a state keeps and loses in a step; with `fixed_point` as whole multiples of 2^-12."""
        if not self.fixed_point:
            return decay_and_leak(tau, discretisation)
        leak = _rounded(1 / at_least(tau, 1.0), STEPS)
        return 1 - leak, leak

    def kept(self, decay: Tensor, state: Tensor) -> Tensor:
        """Returns what a state keeps of itself in a step."""
        plain = decay * state
        return _straight_through(plain, kept(decay, state)) if self.fixed_point else plain

    def arriving(self, current: Tensor) -> Tensor:
        """The input of a step as it is added to a state."""
        return _straight_through(current, on_grid(current)) if self.fixed_point else current

    def within_bits(self, *states: Tensor) -> tuple[Tensor, ...]:
        """The states after decay and input; those beyond 23 bits are NaN, which stays and is found at the end."""
        return tuple(within_bits(state) for state in states) if self.fixed_point else states

    def steady(self, params: Params, leaking: Coefficient) -> list[Coefficient]:
        """Returns the row d of `Dynamics`, what a membrane gets in every step: of its rest, and the bias current."""
        return [leaking + params["bias_current"] if "bias_current" in params else leaking]

    def _check_final(self, state: Tensor) -> Tensor:
        """See `Neuron._check_final`."""
        if self.fixed_point:
            check_states(state)
        return state

    @classmethod
    def derive(cls, values: dict[str, Any], given: Collection[str], dialect: str | None) -> None:
        """Checks that options are those that keep states on the grid, or none of fixed point."""
        super().derive(values, given, dialect)
        if not values["fixed_point"]:
            if values["weight_exponent"] is not None:
                got = values["weight_exponent"]
                raise ValueError(f"weight_exponent: expected None without fixed_point, got {got}")
            return
        for name, value in _NEEDED.items():
            if name in values and values[name] != value:
                raise ValueError(f"{name}: expected {value!r} beside fixed_point, got {values[name]!r}")


class FixedPointNeuron(FixedPoint, SpikingNeuron):
    """Spiking neurons that may compute in the fixed-point arithmetic of Intel's Loihi: `LIF` and `CubaLIF`.

    With `fixed_point` states are whole multiples of 2^-12 of 23 bits and a sign, in float32 as elsewhere. The integers
    `4096 u` and `4096 v` are those of the chip, whose decays are `4096 / tau`, its threshold mantissa `64 threshold`
    and its bias mantissa `64 bias_current`::

        u[t] = trunc(u[t-1] (4096 - iDecay) / 4096) + x[t]                          trunc: towards zero
        v[t] = trunc(v[t-1] (4096 - vDecay) / 4096) + u[t] + bias_current
        s[t] = v[t] > threshold;   v[t] = 0 where s[t] = 1

    Gradients pass all rounding as if it were none (straight through). For a refractory time v is held and u runs on.

    Args (beside those of `SpikingNeuron`):
        bias_current: what flows into the membrane in every step, a number or one per channel. Default none.
        fixed_point: whether states, and input currents, are rounded so. Decays are then the nearest multiples of 2^-12,
            thresholds and bias currents those of 1/64, and a layer with these neurons computes with weights of 8 bits.
            Needs float32 or float64. Default False; the dialect `"loihi"` has it.
        weight_exponent: with `fixed_point` the weights of a layer are `k 2^weight_exponent` with k from -128 to 127; -5
            are the even weights of `wgtExp` 0, -256 to 254, in units of 1/64. None takes the finest grid, from -12 to
            2, on which the largest and the least weight round to such a k. Default None.

    Raises:
        ValueError: an option beside `fixed_point` that leaves its grid.
        OverflowError: in a call, a state of 24 bits and more, whatever way the sequence runs; in a layer it names the
            layer.

    Source: Davies et al., "Loihi: a neuromorphic manycore processor with on-chip learning", IEEE Micro 2018; numbers of
    bits and units as lava-dl has them.

    >>> import torch, snnlib
    >>> neuron = snnlib.neurons.LIF(4096 / 163, threshold=25 / 64, dialect="loihi")
    >>> x = torch.zeros(5, 1, 1)
    >>> x[0] = 301 / 4096
    >>> (4096 * neuron.potential(x)).flatten().tolist()
    [301.0, 289.0, 277.0, 265.0, 254.0]
    """

    bias_current: float | Tensor | None = constant(default=None)
    fixed_point: bool = option(default=False)
    weight_exponent: int | None = option(default=None, check=check_exponent)
