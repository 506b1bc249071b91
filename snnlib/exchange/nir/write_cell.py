"""Cells as nodes of NIR: time constants, resistances and potentials that mean these numbers at a time step."""

from __future__ import annotations

from typing import Any

import numpy as np

from snnlib.exchange.nir.package import nir_package
from snnlib.exchange.nir.reading import Discretisation
from snnlib.exchange.structure.cells import Array, Cell
from snnlib.exchange.structure.unsupported import Unsupported

# Time constant, in steps, of a membrane beside a synapse that does not leak: `1 - 1/tau` is 1 in float64.
ENDLESS = 1e30


def node_of_cell(
    cell: Cell, shape: tuple[int, ...], dt: float, discretisation: Discretisation = "euler"
) -> Any:
    """The node that means this cell at a step of `dt` seconds.

    A threshold that fires where it is reached (`>=`) becomes the float32 number below it, as NIR's has to be passed:
    the two are the same for membranes in float32. With a synapse the membrane is scaled so that both gains are 1, which
    changes no spike and is what importers of CubaLIF ask for.

    Raises:
        Unsupported: a decay that the discretisation has no time constant for, or a start that NIR cannot say.
    """
    nir = nir_package()
    if cell.spikes and cell.decay_s is not None and bool(np.all(cell.input_gain > 0)):
        cell = cell.with_unit_gain()

    def full(value: Array) -> Array:
        return np.array(np.broadcast_to(_by_channel(value, shape), shape), dtype=np.float64)

    spiking: dict[str, Any] = {}
    if cell.threshold is not None:
        assert cell.reset_value is not None
        threshold = cell.threshold if cell.strict else below(cell.threshold)
        spiking = {"v_threshold": full(threshold), "v_reset": full(cell.reset_value)}
    endless = bool(np.all(cell.decay == 1))
    if endless and cell.decay_s is None and not np.any(cell.offset):
        kind = nir.IF if cell.spikes else nir.I
        _check_start(cell, cell.reset_value if cell.reset_value is not None else np.zeros(()))
        return kind(r=full(cell.gain / dt), **spiking)
    leak = np.where(cell.decay == 1, 1 / ENDLESS, 1 - cell.decay)
    v_leak = cell.offset / leak
    _check_start(cell, v_leak)
    common = {"r": full(cell.gain / leak), "v_leak": full(v_leak), **spiking}
    if cell.decay_s is None:
        kind = nir.LIF if cell.spikes else nir.LI
        return kind(tau=full(_tau(cell.decay, leak, dt, discretisation)), **common)
    assert cell.gain_s is not None
    leak_s = np.where(cell.decay_s == 1, 1 / ENDLESS, 1 - cell.decay_s)
    kind = nir.CubaLIF if cell.spikes else nir.CubaLI
    return kind(
        tau_mem=full(_tau(cell.decay, leak, dt, discretisation)),
        tau_syn=full(_tau(cell.decay_s, leak_s, dt, discretisation)),
        w_in=full(cell.gain_s / leak_s),
        **common,
    )


def below(threshold: Array) -> Array:
    """The next smaller float32 number."""
    return np.nextafter(threshold.astype(np.float32), np.float32(-np.inf)).astype(np.float64)


def above(threshold: Array) -> Array:
    """The next larger float32 number."""
    return np.nextafter(threshold.astype(np.float32), np.float32(np.inf)).astype(np.float64)


def _tau(decay: Array, leak: Array, dt: float, discretisation: Discretisation) -> Array:
    if discretisation == "euler":
        return np.asarray(dt / leak)
    if bool(np.any(decay <= 0)):
        raise Unsupported("a state that keeps nothing of the step before has no time constant (exponential)")
    return np.where(decay == 1, dt * ENDLESS, -dt / np.log(np.where(decay == 1, 0.5, decay)))


def _check_start(cell: Cell, usual: Array) -> None:
    if not bool(np.all(cell.start == usual)):
        raise Unsupported(
            "a membrane that does not start where it rests (start_value, rest) has no counterpart in NIR"
        )


def _by_channel(value: Array, shape: tuple[int, ...]) -> Array:
    """A constant that broadcasts with the neurons' shape: one number, one per channel, or one per neuron."""
    if value.ndim == 1 and len(shape) > 1 and value.shape != shape:
        return value.reshape(-1, *[1] * (len(shape) - 1))
    return value
