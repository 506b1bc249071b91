"""The common part of importers: reading of nodes without a state, and the rewriting of a graph for one."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from snnlib.exchange.nir.interpret import Unit, linear_map
from snnlib.exchange.nir.modules import conv_node, linear_node
from snnlib.exchange.nir.package import nir_package
from snnlib.exchange.nir.reading import NEURONS, POTENTIALS, kind_of
from snnlib.exchange.nir.structure import Shape, Structure, pair
from snnlib.structure.cells import Array, Cell, array


class Refused(ValueError):  # noqa: N818 - an answer, not a failure
    """Raised for what an importer does not take, or what no graph can say to it; the message says why."""


class Target:
    """The importer of a library, in one version, as a reader of NIR graphs.

    Attributes:
        name, version: of the library whose code this was read from.
        dt: the step that it assumes in seconds; None where the step is an argument.
        neurons: nodes with a state that it maps.
        maps: nodes without a state that it maps.
        shifts_flatten: whether it counts a Flatten's axes behind the batch, as NIR does.
        groups: whether grouped convolutions are imported as they are.
    """

    name: ClassVar[str]
    version: ClassVar[str]
    dt: ClassVar[float | None] = None
    neurons: ClassVar[tuple[str, ...]]
    maps: ClassVar[tuple[str, ...]]
    shifts_flatten: ClassVar[bool] = True
    groups: ClassVar[bool] = False

    def step(self, dt: float) -> float:
        """The step that the importer computes with, for a graph written for `dt`."""
        return dt if self.dt is None else self.dt

    def unit(self, name: str, node: Any, shape: Shape, dt: float) -> Unit:
        """Returns what the importer makes of a node.

        Args:
            name, node: the node.
            shape: shape of its input.
            dt: the step that the graph was written for.

        Raises:
            Refused: it raises an error, or leaves the node out.
        """
        kind = kind_of(node)
        if kind in ("Input", "Output"):
            return linear_map(node)
        if kind not in (*self.neurons, *self.maps):
            raise self._unknown(name, kind)
        if kind in NEURONS:
            return self.cell(name, node, self.step(dt))
        if kind == "Flatten" and not self.shifts_flatten and int(node.start_dim) >= 0:
            raise Refused(
                f"{name}: {self.name} {self.version} counts the axes of Flatten from the batch on, NIR behind it"
            )
        if kind == "SumPool2d" and np.any(array(node.padding)):
            raise Refused(f"{name}: {self.name} {self.version} leaves out the padding of SumPool2d")
        if kind in ("Conv1d", "Conv2d") and int(node.groups) != 1 and not self.groups:
            raise Refused(f"{name}: {self.name} {self.version} takes no grouped convolutions")
        return linear_map(node, np.float32)

    def cell(self, name: str, node: Any, dt: float) -> Cell:
        """Returns what the importer makes of a node with a state."""
        raise NotImplementedError

    def check(self, graph: Any) -> None:
        """Raise `Refused` where it fails on a graph for the order or the names of its nodes."""

    def structure(self, structure: Structure) -> Structure:
        """The connections that it makes."""
        return structure

    def write(self, name: str, cell: Cell, shape: Shape, dt: float) -> Any:
        """The node from which it makes this cell.

        Raises:
            Refused: there is none.
        """
        raise NotImplementedError

    def variant(self, structure: Structure, cells: dict[str, Cell], dt: float) -> Any:
        """A graph from which it makes what NIR means by the given one.

        Raises:
            Refused: there is none; the message names the node.
        """
        nodes: dict[str, Any] = {}
        for name, node in structure.nodes.items():
            shape = structure.shapes[structure.sources[name][0]] if structure.sources[name] else ()
            nodes[name] = self._written(name, node, shape, cells, dt)
        edges = [(source, name) for name, sources in structure.sources.items() for source in sources]
        self.connect(nodes, edges, structure)
        return nir_package().NIRGraph(nodes, edges, type_check=False)

    def connect(self, nodes: dict[str, Any], edges: list[tuple[str, str]], structure: Structure) -> None:
        """Change nodes and edges of a variant in place where it reads connections in its own manner."""

    def _written(self, name: str, node: Any, shape: Shape, cells: dict[str, Cell], dt: float) -> Any:
        nir, kind = nir_package(), kind_of(node)
        if kind in POTENTIALS and kind not in self.neurons:
            raise self._unknown(name, kind)
        if kind in NEURONS:
            made = self.write(name, cells[name], shape, self.step(dt))
        elif kind == "Flatten":
            start, end = int(node.start_dim) % len(shape), int(node.end_dim) % len(shape)
            made = nir.Flatten({"input": np.array(shape)}, start - len(shape), end - len(shape))
        elif kind == "Linear" and "Linear" not in self.maps:
            made = linear_node(node.weight, np.zeros(len(node.weight)))
        elif kind == "Scale" and "Scale" not in self.maps:
            made = _diagonal(name, np.broadcast_to(array(node.scale), shape), shape)
        elif kind in ("Conv1d", "Conv2d") and int(node.groups) != 1 and not self.groups:
            made = _ungrouped(node, shape)
        elif kind in ("AvgPool2d", "SumPool2d") and (kind not in self.maps or np.any(array(node.padding))):
            made = _pool_as_convolution(node, shape)
        else:
            made = node
        if kind not in ("Input", "Output") and kind_of(made) not in (*self.neurons, *self.maps):
            raise self._unknown(name, kind)
        return made

    def _unknown(self, name: str, kind: str) -> Refused:
        readout = (
            "; readout=False (--no-readout) leaves a readout out of the graph" if kind in POTENTIALS else ""
        )
        return Refused(f"{name}: {self.name} {self.version} has no counterpart of {kind}{readout}")

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


def uniform(name: str, what: str, value: Array) -> float:
    """The number that all entries of a constant are.

    Raises:
        Refused: they differ.
    """
    if np.unique(value).size != 1:
        raise Refused(f"{name}: it takes one {what} for all neurons of a node, not several")
    return float(value.flat[0])


def no_offset(name: str, cell: Cell) -> None:
    """Raise where a membrane rests at anything but 0."""
    if np.any(cell.offset) or np.any(cell.start):
        raise Refused(f"{name}: it takes v_leak = 0 alone")


def _diagonal(name: str, scale: Array, shape: Shape) -> Any:
    if len(shape) == 1:
        return linear_node(np.diag(scale), None)
    by_channel = scale.reshape(shape[0], -1)
    if len(shape) != 3 or np.any(by_channel != by_channel[:, :1]):
        raise Refused(f"{name}: no node that it knows scales single pixels")
    weight = np.diag(by_channel[:, 0])[..., None, None]
    made = conv_node(weight, None, {"stride": 1, "padding": 0, "dilation": 1, "groups": 1})
    made.input_shape = shape[1:]
    return made


def _ungrouped(node: Any, shape: Shape) -> Any:
    """A convolution with groups as one without: zeros between the groups."""
    weight, groups = array(node.weight), int(node.groups)
    outputs, inputs = weight.shape[:2]
    dense = np.zeros((outputs, inputs * groups, *weight.shape[2:]), node.weight.dtype)
    for group in range(groups):
        rows = slice(group * outputs // groups, (group + 1) * outputs // groups)
        dense[rows, group * inputs : (group + 1) * inputs] = weight[rows]
    options = {key: getattr(node, key) for key in ("stride", "padding", "dilation")}
    made = conv_node(dense, node.bias, {**options, "groups": 1})
    made.input_shape = shape[1:] if len(shape) == 3 else shape[1]
    return made


def _pool_as_convolution(node: Any, shape: Shape) -> Any:
    kernel, stride, padding = (pair(getattr(node, key), 2) for key in ("kernel_size", "stride", "padding"))
    share = 1 / np.prod(kernel) if kind_of(node) == "AvgPool2d" else 1.0
    weight = np.zeros((shape[0], shape[0], *kernel))
    weight[np.arange(shape[0]), np.arange(shape[0])] = share
    made = conv_node(weight, None, {"stride": stride, "padding": padding, "dilation": 1, "groups": 1})
    made.input_shape = shape[1:]
    return made
