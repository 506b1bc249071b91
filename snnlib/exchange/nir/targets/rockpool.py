"""The importer of Rockpool, as read in `rockpool/nn/modules/torch/nir.py`."""

from __future__ import annotations

from typing import Any

import numpy as np

from snnlib.exchange.nir.reading import kind_of
from snnlib.exchange.nir.structure import Shape
from snnlib.exchange.nir.targets.base import Refused, Target
from snnlib.structure.cells import Cell, array


class Rockpool(Target):
    """The step from r (dt = tau_mem / (1 + r)), decay exp(-dt/tau), several spikes per step, reset by subtraction."""

    name, version = "rockpool", "3.1.0"
    neurons = ("CubaLIF",)
    maps = ("Affine", "Linear")

    def cell(self, name: str, node: Any, dt: float) -> Cell:
        """`LIFTorch`: `i = beta (i + x)`, `v = alpha v + i + v_leak`; w_in is left out."""
        assert kind_of(node) == "CubaLIF"
        tau_m = array(node.tau_mem)
        own = float(np.min(tau_m / (1 + array(node.r))))
        beta = np.exp(-own / array(node.tau_syn))
        return Cell(
            decay=np.exp(-own / tau_m),
            gain=np.ones(()),
            offset=array(node.v_leak),
            decay_s=beta,
            gain_s=beta,
            threshold=array(node.v_threshold),
            strict=False,
            max_spikes=np.inf,
            dtype=np.float32,
        )

    def write(self, name: str, cell: Cell, shape: Shape, dt: float) -> Any:
        """No neuron of NIR is one of Rockpool's."""
        raise Refused(
            f"{name}: it takes the threshold off and may fire several times in a step; NIR sets the membrane to "
            "v_reset, and no constant of a node changes that"
        )
