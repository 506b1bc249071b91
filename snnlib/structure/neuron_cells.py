"""Neurons of this library as cells in discrete time, from the coefficients that their kernels take."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from snnlib.neurons import SRM, Integrator, Neuron
from snnlib.neurons.dynamics import Dynamics
from snnlib.neurons.firing import SpikingNeuron
from snnlib.neurons.surrogate import ATan
from snnlib.structure.cells import Array, Cell, array
from snnlib.structure.unsupported import Unsupported


def cell_of_neuron(neuron: Neuron) -> tuple[Cell, list[str]]:
    """The neuron's cell, and what it does that NIR's neurons do not: an empty list where the cell is exact.

    Raises:
        Unsupported: dynamics that no neuron of NIR has, exactly or nearly.
    """
    if isinstance(neuron, SRM):
        tau_m, tau_s, _ = neuron.neuron.taus
        return srm_cell(tau_m, tau_s, neuron.threshold, neuron.reset_states == "all")
    dynamics = _plain_dynamics(neuron)
    if dynamics is None or dynamics.states > 2 or not _is_cascade(dynamics):
        raise Unsupported(f"{type(neuron).__name__} has dynamics that no neuron of NIR has")
    decay, gain = array(dynamics.a[0][0]), array(dynamics.b[0])
    cell = Cell(decay=decay, gain=gain, offset=_at(dynamics.d, 0))
    if dynamics.states == 2:
        gain_s = array(dynamics.b[1])
        cell = replace(cell, decay_s=array(dynamics.a[1][1]), gain_s=gain_s, gain=gain / gain_s)
    if isinstance(neuron, Integrator):
        return cell, []
    assert isinstance(neuron, SpikingNeuron)
    return _fires(cell, neuron)


def _fires(cell: Cell, neuron: SpikingNeuron) -> tuple[Cell, list[str]]:
    faults = []
    threshold = array(neuron.constants()["threshold"])
    if neuron.reset != "zero":
        faults.append(f"reset={neuron.reset!r}")
    if neuron.reset_states == "all" and cell.decay_s is not None:
        faults.append("reset_states='all'")
    if neuron.reset_time != "same":
        faults.append("reset_time='next'")
    if neuron.floor is not None:
        faults.append(f"floor={neuron.floor:g}")
    if neuron.max_spikes != 1:
        faults.append(f"max_spikes={neuron.max_spikes:g}")
    if neuron.single_spike:
        faults.append("single_spike=True")
    value = np.full_like(threshold, neuron.reset_value)
    start = np.full_like(threshold, neuron.first_membrane)
    strict = neuron.compare == ">"
    return replace(cell, threshold=threshold, reset_value=value, start=start, strict=strict), faults


def srm_cell(tau_m: float, tau_s: float, threshold: Any, full_reset: bool) -> tuple[Cell, list[str]]:
    """SRM neurons: `i = e_s i + x`, `u = e_m u + i / tau_s`, in units where a unit of current is one of the membrane.

    The membrane of NIR's neuron is tau_s times the SRM's; its synaptic current runs on through a reset.
    """
    limit = array(threshold) * tau_s
    zero = np.zeros(())
    cell = Cell(
        decay=array(1 - 1 / tau_m),
        gain=array(1.0),
        offset=zero,
        decay_s=array(1 - 1 / tau_s),
        gain_s=array(1.0),
        threshold=limit,
        reset_value=zero,
        strict=False,
    )
    return cell, ["a reset of the synaptic trace (reset_states='all')"] if full_reset else []


def potential_cell(tau_m: float, tau_s: float) -> Cell:
    """The potential of SRM neurons without a threshold."""
    cell, _ = srm_cell(tau_m, tau_s, 1.0, False)
    return replace(cell, gain=array(1 / tau_s), threshold=None, reset_value=None)


def _plain_dynamics(neuron: Neuron) -> Dynamics | None:
    """The dynamics, whatever the gradient: a surrogate of one's own or EventProp's takes them from the kernels."""
    plain: Any = copy.copy(neuron)
    if isinstance(neuron, SpikingNeuron):
        plain.surrogate, plain.target_share, plain.max_spikes = ATan(2.0), None, 1
        plain.single_spike = False
        if neuron.gradient == "event":
            plain.gradient = "surrogate"
    with torch.no_grad():
        found: Dynamics | None = plain.dynamics(plain.constants())
    return found


def _is_cascade(d: Dynamics) -> bool:
    """Whether the membrane, alone compared, is charged by a synaptic current or by the input."""
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
