"""The importers of other libraries: how an installed one runs a graph, and which node it makes a given neuron of."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module, metadata
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from snnlib.exchange.nir.modules import linear_node
from snnlib.exchange.nir.package import nir_package
from snnlib.exchange.nir.reading import SINABS_NEURONS
from snnlib.exchange.nir.structure import Shape, Structure
from snnlib.exchange.nir.write_cell import ENDLESS, above, node_of_cell
from snnlib.exchange.sequences import over_steps_from
from snnlib.exchange.structure.cells import Cell


class Refused(ValueError):  # noqa: N818 - an answer, not a failure
    """Raised for what no graph can say to an importer; the message says why."""


class Importer:
    """The importer of a library, as installed.

    Attributes:
        name: of the library and of its package.
        dt: the step that it assumes in seconds; None where the step is an argument.
        neurons: nodes with a state that it knows.
        maps: nodes without a state that it knows.
    """

    name: ClassVar[str]
    dt: ClassVar[float | None] = None
    neurons: ClassVar[tuple[str, ...]] = ("IF", "LIF", "CubaLIF")
    maps: ClassVar[tuple[str, ...]]

    def load(self, graph: Any, dt: float) -> Any:
        """The library's own net, which maps a step and the last state to an output and a state.

        Raises:
            ModuleNotFoundError: the library is not installed.
        """
        raise NotImplementedError

    def run(self, graph: Any, x: Tensor, dt: float) -> Tensor:
        """Output of the library's own net for a sequence `[T, N, ...]`."""
        out: Tensor = over_steps_from(self.load(graph, dt), x, None)
        return out

    def node(self, name: str, cell: Cell, shape: Shape, dt: float) -> Any:
        """The node from which it makes this cell.

        Raises:
            Refused: there is none.
        """
        raise NotImplementedError

    def connect(self, nodes: dict[str, Any], edges: list[tuple[str, str]], structure: Structure) -> None:
        """Change nodes and edges in place where it reads connections in its own manner."""

    def __str__(self) -> str:
        return f"{self.name} {metadata.version(self.name)}"


class SnnTorch(Importer):
    """Steps of 1e-4 s, decay 1 - dt/tau, `>`, reset to 0 within the step; input gains go into the threshold."""

    name, dt = "snntorch", 1e-4
    maps = ("Affine", "Linear", "Conv1d", "Conv2d", "AvgPool2d", "SumPool2d", "Flatten")

    def load(self, graph: Any, dt: float) -> Any:
        """Calls its importer."""
        return import_module("snntorch.import_nir").import_from_nir(graph)

    def node(self, name: str, cell: Cell, shape: Shape, dt: float) -> Any:
        """`LIF` with r = tau/dt, also for neurons that do not leak; `CubaLIF`."""
        cell, endless = cell.with_unit_gain(), cell.decay == 1
        # It makes an IF another neuron. The largest decay below 1 is none, and means the same to it as 1.
        made = node_of_cell(
            replace(cell, decay=np.where(endless, np.nextafter(1.0, 0.0), cell.decay)), shape, dt
        )
        if np.any(endless):
            tau = "tau" if cell.decay_s is None else "tau_mem"
            setattr(made, tau, np.where(endless, ENDLESS * dt, getattr(made, tau)))
            made.r = np.where(endless, ENDLESS, made.r)
        return made

    def connect(self, nodes: dict[str, Any], edges: list[tuple[str, str]], structure: Structure) -> None:
        """A matrix of ones on the diagonal behind the recurrent one: longer cycles are connected as they stand."""
        for recurrent, neurons in structure.back:
            if structure.sources[recurrent] == (neurons,):
                passed = f"{recurrent}_passed"
                nodes[passed] = linear_node(np.eye(len(nodes[recurrent].weight)), None)
                edges.remove((recurrent, neurons))
                edges += [(recurrent, passed), (passed, neurons)]


class SpikingJelly(Importer):
    """Decay 1 - dt/tau, `>=`, reset to v_reset; one number per constant and node, and gains of 1 or dt/tau alone."""

    name = "spikingjelly"
    maps = ("Affine", "Linear", "Conv1d", "Conv2d", "AvgPool2d", "SumPool2d", "Flatten")

    def load(self, graph: Any, dt: float) -> Any:
        """Calls its importer; recurrent graphs run step by step alone there."""
        importer = import_module("spikingjelly.activation_based.nir_exchange")
        return importer.import_from_nir(graph, dt=dt)

    def node(self, name: str, cell: Cell, shape: Shape, dt: float) -> Any:
        """Gains of 1; as it fires at the threshold and NIR above, the float32 number above it."""
        gain = cell.input_gain
        decays_input = np.allclose(gain, 1 - cell.decay, rtol=1e-12) and not np.all(gain == 1)
        if cell.gain_s is not None or not decays_input:
            cell = cell.with_unit_gain()
        assert cell.threshold is not None
        return node_of_cell(replace(cell, threshold=above(cell.threshold), strict=True), shape, dt)


class Norse(Importer):
    """Decay 1 - dt/tau, `>`, reset to 0; LIF and IF leave out r, all leave out v_reset."""

    name = "norse"
    maps = ("Affine", "Linear", "Scale", "Conv2d", "SumPool2d", "Flatten")

    def load(self, graph: Any, dt: float) -> Any:
        """Calls its importer."""
        return import_module("norse.torch").from_nir(graph, dt=dt)

    def node(self, name: str, cell: Cell, shape: Shape, dt: float) -> Any:
        """LIF with r = 1, the membrane scaled by its gain; CubaLIF as it is."""
        if cell.gain_s is None:
            leak = np.where(cell.decay == 1, 1.0, 1 - cell.decay)
            cell = cell.scaled(leak / cell.gain).with_gain(leak)
        return node_of_cell(cell, shape, dt)


class Sinabs(Importer):
    """Time constants in steps, decay exp(-1/tau), input gain 1, `>=`, several spikes per step, reset by subtraction."""

    name, dt = "sinabs", 1.0
    neurons = SINABS_NEURONS
    maps = ("Affine", "Conv2d", "SumPool2d", "Flatten")

    def run(self, graph: Any, x: Tensor, dt: float) -> Tensor:
        """Layer by layer, samples and steps as one batch."""
        net = import_module("sinabs.nir").from_nir(graph, batch_size=x.shape[1])
        out = _value(net(x.transpose(0, 1).flatten(0, 1)))
        return out.view(x.shape[1], x.shape[0], *out.shape[1:]).transpose(0, 1)

    def node(self, name: str, cell: Cell, shape: Shape, dt: float) -> Any:
        """`LI` whose gain is 1; a neuron that fires has none."""
        if cell.spikes:
            raise Refused(_SUBTRACTS.format(name))
        if np.any(cell.offset) or np.any(cell.gain != 1):
            raise Refused(f"{name}: it takes LI with an input gain of 1 alone: r (1 - exp(-1/tau)) = 1")
        ones, tau = np.ones(1), -1 / np.log(np.unique(cell.decay))
        if tau.size != 1:
            raise Refused(f"{name}: it takes one time constant per node for several axes alone")
        return nir_package().LI(tau=tau, r=ones, v_leak=0 * ones)


class Rockpool(Importer):
    """The step from r (dt = tau_mem / (1 + r)), decay exp(-dt/tau), several spikes per step, reset by subtraction."""

    name, neurons, maps = "rockpool", ("CubaLIF",), ("Affine", "Linear")

    def run(self, graph: Any, x: Tensor, dt: float) -> Tensor:
        """Layer by layer, samples first."""
        net = import_module("rockpool.nn.modules.torch.nir").from_nir(graph)
        return _value(net(x.transpose(0, 1))).transpose(0, 1)

    def node(self, name: str, cell: Cell, shape: Shape, dt: float) -> Any:
        """No neuron of NIR is one of Rockpool's."""
        raise Refused(_SUBTRACTS.format(name))


_SUBTRACTS = (
    "{}: it takes the threshold off and may fire several times in a step; NIR sets the membrane to v_reset, and no "
    "constant of a node changes that"
)

IMPORTERS: dict[str, Importer] = {
    importer.name: importer for importer in (SnnTorch(), SpikingJelly(), Norse(), Sinabs(), Rockpool())
}


def _value(output: Any) -> Tensor:
    """A net's output without its states."""
    value: Tensor = output[0] if isinstance(output, tuple) else output
    return value
