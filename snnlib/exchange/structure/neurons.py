"""Neurons of this library as cells in discrete time, from the coefficients that their kernels take."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from snnlib.exchange.structure.cells import Array, Cell, array
from snnlib.exchange.structure.unsupported import Unsupported
from snnlib.neurons import SRM, Dynamics, Neuron, SpikingNeuron
from snnlib.nn import Delays
from snnlib.surrogate import ATan

# Name of the chip's arithmetic, where a format has floating point alone.
_FIXED_POINT = "fixed-point arithmetic"


@dataclass(frozen=True)
class RecurrentMap:
    """Spikes that come back to their neurons one step later.

    Args:
        weight: `[H, H]`, or `[]` or `[H]` for neurons that feed back to themselves alone.
        bias: `[H]`, added to the current of every step, or None.
        delays: of the recurrent connections, in steps beyond the one that every spike takes; None without.
    """

    weight: Tensor
    bias: Tensor | None = None
    delays: Delays | None = None


@dataclass(frozen=True)
class Neurons:
    """Neurons, or integrators, of one kind.

    Args:
        cell: their constants in discrete time, with a reset to a value.
        faults: what they do beyond the cell's equations, in words, by the name of the option.
        subtracts: whether a spike takes the threshold off instead.
        resets_all: whether a spike clears the synaptic current as well.
        recurrence: how their spikes come back to them, or None.
        refractory: steps that the membrane stays as a spike left it, while the current runs on, of neurons in fixed
            point; None of others.
    """

    cell: Cell
    faults: Mapping[str, str] = field(default_factory=dict)
    subtracts: bool = False
    resets_all: bool = False
    recurrence: RecurrentMap | None = None
    refractory: float | None = None


def neurons_of(neuron: Neuron) -> Neurons:
    """Returns the neuron's cell, and what it does that a cell does not.

    Raises:
        Unsupported: dynamics that no cell has, exactly or nearly.
    """
    if isinstance(neuron, SRM):
        tau_m, tau_s, _ = neuron.taus
        return srm_neurons(tau_m, tau_s, neuron.threshold, neuron.reset_states == "all")
    dynamics = _plain_dynamics(neuron)
    if dynamics is None or dynamics.states > 2 or not _is_cascade(dynamics):
        raise Unsupported(f"expected leaky integrators, such as LIF and CubaLIF, got {type(neuron).__name__}")
    decay, gain = array(dynamics.a[0][0]), array(dynamics.b[0])
    cell = Cell(decay=decay, gain=gain, offset=_at(dynamics.d, 0))
    if dynamics.states == 2:
        gain_s = array(dynamics.b[1])
        cell = replace(cell, decay_s=array(dynamics.a[1][1]), gain_s=gain_s, gain=gain / gain_s)
    if not neuron.gives_spikes:
        found = {"fixed_point": _FIXED_POINT} if neuron.fixed_point else {}
        return Neurons(cell, found, refractory=0 if neuron.fixed_point else None)
    assert isinstance(neuron, SpikingNeuron)
    return _fires(cell, neuron)


def _fires(cell: Cell, neuron: SpikingNeuron) -> Neurons:
    threshold = array(neuron.constants()["threshold"])
    # Only a reset to a value touches the other states.
    resets_all = (neuron.reset, neuron.reset_states) == ("zero", "all") and cell.decay_s is not None
    beside = "" if neuron.reset == "subtract" else f" beside reset={neuron.reset!r}"
    faults = {
        "reset": (neuron.reset != "zero", f"reset={neuron.reset!r}"),
        "reset_states": (resets_all, "reset_states='all'"),
        "reset_time": (neuron.reset_time != "same", "reset_time='next'"),
        "floor": (neuron.floor is not None, f"floor={neuron.floor or 0:g}"),
        "levels": (neuron.levels != 1, f"levels={neuron.levels:g}{beside}"),
        "refractory": (neuron.refractory != 0, f"refractory={neuron.refractory:g}"),
        "fixed_point": (neuron.fixed_point, _FIXED_POINT),
    }
    cell = replace(
        cell,
        threshold=threshold,
        reset_value=np.full_like(threshold, neuron.reset_value),
        start=np.full_like(threshold, neuron.initial_membrane),
        strict=neuron.compare == ">",
        levels=neuron.levels,
        rounds=neuron.levels != 1 and neuron.level_rounding == "round",
    )
    found = {option: text for option, (differs, text) in faults.items() if differs}
    refractory = neuron.refractory if neuron.fixed_point else None
    return Neurons(cell, found, neuron.reset == "subtract", resets_all, refractory=refractory)


def srm_neurons(tau_m: float, tau_s: float, threshold: Any, resets_all: bool) -> Neurons:
    """Returns SRM neurons: `i = e_s i + x`, `u = e_m u + i / tau_s`; the cell's current runs on through a reset."""
    zero = np.zeros(())
    cell = Cell(
        decay=array(1 - 1 / tau_m),
        gain=array(1 / tau_s),
        offset=zero,
        decay_s=array(1 - 1 / tau_s),
        gain_s=array(1.0),
        threshold=array(threshold),
        reset_value=zero,
        strict=False,
    )
    faults = {"reset_states": "a reset of the synaptic trace (reset_states='all')"} if resets_all else {}
    return Neurons(cell, faults, resets_all=resets_all)


def potentials(tau_m: float, tau_s: float) -> Neurons:
    """Returns the potential of SRM neurons without a threshold."""
    cell = srm_neurons(tau_m, tau_s, 1.0, False).cell
    return Neurons(replace(cell, threshold=None, reset_value=None))


def _plain_dynamics(neuron: Neuron) -> Dynamics | None:
    """The dynamics, whatever the gradient: a surrogate of one's own or EventProp's takes them from the kernels."""
    plain: Any = copy.copy(neuron)
    if isinstance(neuron, SpikingNeuron):
        plain.surrogate, plain.levels = ATan(2.0), 1
        plain.refractory = 0
        if neuron.gradient == "event":
            plain.gradient = "surrogate"
    with torch.no_grad():
        found: Dynamics | None = plain.dynamics(plain.constants())
    return found


def _is_cascade(d: Dynamics) -> bool:
    """Returns whether the membrane, alone compared, is charged by a synaptic current or by the input."""
    if not d.linear:
        return False
    if any(bool(np.any(array(value) != 0)) for row in (d.p, d.j, d.r, d.d[1:], d.c[1:]) for value in row):
        return False
    if d.states == 1:
        return True
    a, gain = [[array(value) for value in row] for row in d.a], array(d.b[0])
    if bool(np.any(a[1][0] != 0)) or bool(np.any(array(d.b[1]) == 0)):
        return False
    return bool(np.allclose(a[0][1] * array(d.b[1]), gain * a[1][1], rtol=1e-9, atol=0))


def _at(values: Any, index: int) -> Array:
    return array(values[index]) if len(values) > index else np.zeros(())
