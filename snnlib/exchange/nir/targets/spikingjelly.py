"""The importer of SpikingJelly, as read in `spikingjelly/activation_based/nir_exchange/from_nir.py`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from snnlib.exchange.nir.reading import kind_of
from snnlib.exchange.nir.structure import Shape
from snnlib.exchange.nir.targets.base import Refused, Target, uniform
from snnlib.exchange.nir.write_cell import above, node_of_cell
from snnlib.structure.cells import Array, Cell, array


class SpikingJelly(Target):
    """Decay 1 - dt/tau, `>=`, reset to v_reset; one number per constant and node, and gains of 1 or dt/tau alone."""

    name, version = "spikingjelly", "2.0.0"
    neurons = ("IF", "LIF", "CubaLIF")
    maps = ("Affine", "Linear", "Conv1d", "Conv2d", "AvgPool2d", "SumPool2d", "Flatten")

    def cell(self, name: str, node: Any, dt: float) -> Cell:
        """`IFNode`, `LIFNode` or `CUBALIFNode`, in float32."""
        own = {
            key: uniform(name, key, array(getattr(node, key)))
            for key in ("r", "v_threshold", "v_reset", "v_leak", "tau", "tau_mem", "tau_syn", "w_in")
            if hasattr(node, key)
        }
        firing: dict[str, Any] = {
            "threshold": np.asarray(own["v_threshold"]),
            "reset_value": np.asarray(own["v_reset"]),
            "start": np.asarray(own["v_reset"]),
            "strict": False,
            "dtype": np.float32,
        }
        one, zero = np.ones(()), np.zeros(())
        if kind_of(node) == "IF":
            _expect(name, "r = 1 / dt", own["r"], 1 / dt)
            return Cell(decay=one, gain=one, offset=zero, **firing)
        if kind_of(node) == "LIF":
            tau = own["tau"] / dt
            if not (np.isfinite(tau) and tau > 1):
                raise Refused(f"{name}: it takes tau longer than dt = {dt:g} alone")
            _expect(name, "v_leak = v_reset", own["v_leak"], own["v_reset"])
            decay_input = _close(own["r"], 1.0)
            if not decay_input:
                _expect(name, "r = 1 or tau / dt", own["r"], tau)
            leak = np.asarray(1 / tau)
            gain = leak if decay_input else one
            return Cell(decay=1 - leak, gain=gain, offset=leak * own["v_reset"], **firing)
        for key in ("tau_mem", "tau_syn"):
            if not (np.isfinite(own[key]) and own[key] >= dt):
                raise Refused(f"{name}: it takes time constants of at least dt = {dt:g} alone")
        _expect(name, "r = tau_mem / dt", own["r"], own["tau_mem"] / dt)
        _expect(name, "w_in = tau_syn / dt", own["w_in"], own["tau_syn"] / dt)
        _expect(name, "v_leak = 0", own["v_leak"], 0.0)
        decays: dict[str, Any] = {
            "decay": np.asarray(1 - dt / own["tau_mem"]),
            "decay_s": np.asarray(1 - dt / own["tau_syn"]),
        }
        return Cell(gain=one, gain_s=one, offset=zero, **decays, **firing)

    def write(self, name: str, cell: Cell, shape: Shape, dt: float) -> Any:
        """Gains of 1; as it fires at the threshold and NIR above, the float32 number above it."""
        gain = cell.gain if cell.gain_s is None else cell.gain * cell.gain_s
        usual = (
            cell.gain_s is None and np.allclose(gain, 1 - cell.decay, rtol=1e-12) and not np.all(gain == 1)
        )
        if not usual:
            cell = cell.scaled(1 / gain)
            ones = np.ones_like(gain)
            cell = replace(cell, gain=ones, gain_s=None if cell.gain_s is None else ones)
        assert cell.threshold is not None and cell.reset_value is not None
        constants: dict[str, Array | None] = {
            "threshold": cell.threshold,
            "tau": cell.decay,
            "v_reset": cell.reset_value,
            "tau_syn": cell.decay_s,
        }
        for what, value in constants.items():
            if value is not None:
                uniform(name, what, value)
        return node_of_cell(replace(cell, threshold=above(cell.threshold), strict=True), shape, dt)


def _close(value: float, expected: float) -> bool:
    return bool(np.isfinite(value) and np.isclose(value, expected, rtol=1e-6, atol=1e-12))


def _expect(name: str, rule: str, value: float, expected: float) -> None:
    if not _close(value, expected):
        raise Refused(f"{name}: it takes {rule} alone, which would be {expected:g}, not {value:g}")
