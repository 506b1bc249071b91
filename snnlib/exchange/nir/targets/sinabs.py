"""The importer of sinabs, as read in `sinabs/nir.py`."""

from __future__ import annotations

from typing import Any

import numpy as np

from snnlib.exchange.nir.package import nir_package
from snnlib.exchange.nir.reading import kind_of
from snnlib.exchange.nir.structure import Shape, Structure
from snnlib.exchange.nir.targets.base import Refused, Target
from snnlib.structure.cells import Cell, array


class Sinabs(Target):
    """Time constants in steps, decay exp(-1/tau), input gain 1, `>=`, several spikes per step, reset by subtraction."""

    name, version, dt = "sinabs", "3.1.3", 1.0
    neurons = ("IF", "LI", "LIF")
    maps = ("Affine", "Conv2d", "SumPool2d", "Flatten")

    def cell(self, name: str, node: Any, dt: float) -> Cell:
        """`IAF`, `ExpLeak` or `LIF`, in float32."""
        zero, one = np.zeros(()), np.ones(())
        firing: dict[str, Any] = {}
        if kind_of(node) in ("IF", "LIF"):
            threshold = array(node.v_threshold)
            firing = {"threshold": threshold, "strict": False, "max_spikes": np.inf}
            if kind_of(node) == "IF":
                return Cell(decay=one, gain=one, offset=zero, floor=-threshold, dtype=np.float32, **firing)
        v_leak = array(node.v_leak)
        if v_leak.ndim != 1:
            raise Refused(f"{name}: it takes constants with one axis alone, not shape {v_leak.shape}")
        if np.any(v_leak) or (kind_of(node) == "LI" and np.any(array(node.r) != 1)):
            raise Refused(f"{name}: it takes v_leak = 0 alone, and r = 1 for LI")
        decay = np.exp(-1 / array(node.tau))
        return Cell(decay=decay, gain=one, offset=zero, dtype=np.float32, **firing)

    def structure(self, structure: Structure) -> Structure:
        """Whole sequences go from layer to layer, so nothing can come back one step later."""
        if structure.back:
            raise Refused(
                f"{sorted(structure.back)[0][1]}: it runs whole sequences layer by layer and takes no cycles"
            )
        return structure

    def write(self, name: str, cell: Cell, shape: Shape, dt: float) -> Any:
        """`LI` whose gain is 1; a neuron that fires has none."""
        if cell.spikes:
            raise Refused(
                f"{name}: it takes the threshold off and may fire several times in a step; NIR sets the membrane to "
                "v_reset, and no constant of a node changes that"
            )
        if np.any(cell.offset) or np.any(cell.gain != 1):
            raise Refused(f"{name}: it takes LI with an input gain of 1 alone: r (1 - exp(-1/tau)) = 1")
        ones = np.ones(1)
        tau = -1 / np.log(np.unique(cell.decay))
        if tau.size != 1:
            raise Refused(f"{name}: it takes one time constant per node for several axes alone")
        return nir_package().LI(tau=tau, r=ones, v_leak=0 * ones)
