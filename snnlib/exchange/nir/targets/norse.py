"""The importer of Norse, as read in `norse/torch/utils/import_nir.py`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from snnlib.exchange.nir.reading import kind_of, leak_of
from snnlib.exchange.nir.structure import Shape
from snnlib.exchange.nir.targets.base import Refused, Target
from snnlib.exchange.nir.write_cell import node_of_cell
from snnlib.structure.cells import Cell, array


class Norse(Target):
    """Decay 1 - dt/tau, `>`, reset to 0; LIF and IF leave out r, all leave out v_reset."""

    name, version = "norse", "1.1.0"
    neurons = ("IF", "LIF", "CubaLIF")
    maps = ("Affine", "Linear", "Conv2d", "SumPool2d", "Flatten")
    shifts_flatten = False

    def cell(self, name: str, node: Any, dt: float) -> Cell:
        """`IAFCell`, `LIFBoxCell`, or a synapse and `LIFBoxCell`, in float32."""
        threshold = array(node.v_threshold)
        zero, one = np.zeros(()), np.ones(())
        firing: dict[str, Any] = {"threshold": threshold, "reset_value": zero, "dtype": np.float32}
        if kind_of(node) == "IF":
            return Cell(decay=one, gain=one, offset=zero, start=zero, **firing)
        v_leak = array(node.v_leak)
        leak = leak_of(f"{name}.tau", node.tau if kind_of(node) == "LIF" else node.tau_mem, dt, "euler")
        common = {"decay": 1 - leak, "offset": leak * v_leak, "start": v_leak, **firing}
        if kind_of(node) == "LIF":
            return Cell(gain=leak, **common)
        if np.any(v_leak):
            raise Refused(f"{name}: it reads v_leak as the resting value of the synaptic current as well")
        leak_s = leak_of(f"{name}.tau_syn", node.tau_syn, dt, "euler")
        return Cell(gain=leak * array(node.r), decay_s=1 - leak_s, gain_s=leak_s * array(node.w_in), **common)

    def write(self, name: str, cell: Cell, shape: Shape, dt: float) -> Any:
        """LIF with r = 1, the membrane scaled by its gain; CubaLIF as it is."""
        if cell.gain_s is None:
            leak = np.where(cell.decay == 1, 1.0, 1 - cell.decay)
            cell = replace(cell.scaled(leak / cell.gain), gain=leak)
        elif np.any(cell.offset):
            raise Refused(f"{name}: it reads v_leak as the resting value of the synaptic current as well")
        if np.any(cell.reset_value):
            raise Refused(f"{name}: it takes v_reset = 0 alone")
        return node_of_cell(cell, shape, dt)
