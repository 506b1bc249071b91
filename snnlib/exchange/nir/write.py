"""A graph of operations as nodes and edges of NIR."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from snnlib.exchange.nir.modules import conv_node, linear_node, pool_node
from snnlib.exchange.nir.package import nir_package
from snnlib.exchange.nir.reading import Discretisation, fires, kind_of
from snnlib.exchange.nir.structure import Shape, output_shape
from snnlib.exchange.nir.write_cell import node_of_cell
from snnlib.exchange.structure.graph import Graph, Step
from snnlib.exchange.structure.neurons import Neurons, RecurrentMap
from snnlib.exchange.structure.operations import Delay, Flatten, Normalise, Operation, Pool, Sum, Weights
from snnlib.exchange.structure.unsupported import Unsupported, naming
from snnlib.nn import Delays

_WEIGHTS = ("Linear", "Affine", "Conv1d", "Conv2d")


@dataclass(frozen=True)
class Value:
    """A value between nodes: the sum of some nodes' outputs, of this shape without time and batch."""

    sources: tuple[str, ...]
    shape: Shape


@dataclass
class Writer:
    """Collects nodes and edges of a graph.

    Args:
        dt, discretisation: what neurons are written for.
        approximate: whether neurons that NIR has nearly are written as those.
    """

    dt: float
    discretisation: Discretisation
    approximate: bool
    nodes: dict[str, Any] = field(default_factory=dict)
    edges: list[tuple[str, str]] = field(default_factory=list)
    # Faults of nodes that were written as something else, by the node's name.
    faults: dict[str, str] = field(default_factory=dict)

    def write(self, graph: Graph, shape: Shape) -> Value:
        """Writes a graph whose input has this shape, without its output.

        Raises:
            Unsupported: an operation without counterpart; the message names the module by its path.
        """
        nir = nir_package()
        self.nodes["input"] = nir.Input({"input": np.array(shape)})
        values = {graph.input: Value(("input",), shape)}
        readers = graph.readers()
        for step in graph.steps:
            read = [values[source] for source in step.sources]
            assert step.operation is not None
            # Weights that something else reads as well must stay as they are.
            alone = readers[step.sources[0]] == 1
            with naming(step.where):
                values[step] = self._operation(name_of_node(step), step.operation, read, alone)
        assert graph.output is not None
        return values[graph.output]

    def without_readout(self, end: Value) -> Value:
        """Takes out what stands behind the last neurons that fire, and returns their spikes.

        Raises:
            ValueError: no single layer is the last that fires.
        """
        while len(end.sources) != 1 or not fires(self.nodes[end.sources[0]]):
            name = end.sources[0]
            if len(end.sources) != 1 or name == "input":
                raise ValueError(
                    "readout: expected one last layer that fires where it is False, got none or several"
                )
            sources = tuple(source for source, target in self.edges if target == name)
            self.edges = [edge for edge in self.edges if name not in edge]
            end = Value(sources, tuple(int(size) for size in self.nodes.pop(name).input_type["input"]))
        return end

    def _operation(  # noqa: PLR0911 - one for each operation
        self, name: str, operation: Operation, read: list[Value], alone: bool
    ) -> Value:
        value = read[0]
        match operation:
            case Weights(weight, bias, None):
                return self._add(name, linear_node(weight, bias), value)
            case Weights(weight, bias, options):
                made = conv_node(weight, bias, **operation.sizes(), groups=options.groups)
                return self._add(name, made, value)
            case Normalise():
                return self._normalise(name, operation, value, alone)
            case Pool(module):
                return self._add(name, pool_node(module, value.shape), value)
            case Flatten():
                return self._flatten(name, operation, value)
            case Delay(delays):
                return self._delay(name, delays, value)
            case Neurons(recurrence=None):
                return self._neurons(name, operation, value)
            case Neurons(recurrence=RecurrentMap() as back):
                return self._recurrent(name.removesuffix(".neuron"), operation, back, value)
            case Sum():
                return self._sum(name, *read)
        raise AssertionError(operation)

    def _add(self, name: str, node: Any, value: Value) -> Value:
        """Adds a node that reads a value."""
        # A point stands between a module's name and a part's.
        name = name.replace(".", "_") if name.count(".") > 1 else name
        base, count = name, 1
        while name in self.nodes:
            count += 1
            name = f"{base}_{count}"
        shape = output_shape(name, node, value.shape)
        node.input_type = {"input": np.array(value.shape)}
        node.output_type = {"output": np.array(shape)}
        if kind_of(node) in ("Conv1d", "Conv2d"):
            node.input_shape = value.shape[1:] if kind_of(node) == "Conv2d" else value.shape[1]
        self.nodes[name] = node
        self.edges += [(source, name) for source in value.sources]
        return Value((name,), shape)

    def _sum(self, name: str, a: Value, b: Value) -> Value:
        if a.shape != b.shape:
            raise Unsupported(f"a sum of shapes {a.shape} and {b.shape} has no counterpart")
        if set(a.sources) & set(b.sources):
            # An edge stands in a graph once.
            b = self._add(f"{name}_again", nir_package().Scale(np.ones(b.shape)), b)
        return Value((*a.sources, *b.sources), a.shape)

    def _flatten(self, name: str, given: Flatten, value: Value) -> Value:
        own = len(value.shape)
        first, last = (axis % (own + given.lead) - given.lead for axis in (given.start, given.end))
        if first < 0:
            raise Unsupported("a Flatten of time or batch has no counterpart")
        if first == last:
            return value
        # Counted from the end: importers differ in whether the first axis is the batch, and only that is read alike.
        node = nir_package().Flatten({"input": np.array(value.shape)}, first - own, last - own)
        return self._add(name, node, value)

    def _normalise(self, name: str, given: Normalise, value: Value, alone: bool) -> Value:
        """Batch normalisation with running statistics: part of the weights before it, else a weight per channel."""
        scale, shift = given.factors()
        before = self.nodes[value.sources[0]] if len(value.sources) == 1 else None
        if alone and kind_of(before) in _WEIGHTS:
            assert before is not None
            weight = before.weight * scale.reshape(-1, *[1] * (before.weight.ndim - 1)).astype(
                before.weight.dtype
            )
            bias = getattr(before, "bias", 0.0) * scale + shift
            if kind_of(before) == "Linear":
                self.nodes[value.sources[0]] = linear_node(weight, bias)
            else:
                before.weight, before.bias = weight, bias.astype(weight.dtype)
            return value
        if len(value.shape) == 1:
            return self._add(name, linear_node(np.diag(scale), shift), value)
        axes = len(value.shape) - 1
        if axes > 2:
            raise Unsupported(f"frames of {axes} axes have no counterpart")
        weight = scale.reshape(-1, *[1] * (axes + 1))
        return self._add(name, conv_node(weight, shift, groups=len(scale)), value)

    def _delay(self, name: str, delays: Delays, value: Value) -> Value:
        """Delays of input channels; NIR has none of single connections."""
        if delays.per != "channel":
            raise Unsupported('delays per="connection" have no counterpart: a Delay of NIR has one per input')
        steps = torch.floor(delays() + 0.5).double().cpu().numpy()
        by_channel = steps.reshape(-1, *[1] * (len(value.shape) - 1))
        seconds = np.array(np.broadcast_to(by_channel, value.shape)) * self.dt
        return self._add(name, nir_package().Delay(seconds), value)

    def _neurons(self, name: str, given: Neurons, value: Value) -> Value:
        if given.faults.get("reset") != "reset='none'":
            return self._cell(name, given, value)
        # Potentials, then a threshold: what a neuron without reset is.
        cell = given.cell
        free = replace(cell, threshold=None, reset_value=None)
        others = {option: text for option, text in given.faults.items() if option != "reset"}
        potential = self._cell(f"{name}.potential", Neurons(free, others), value)
        zero = np.zeros(())
        compared = replace(
            cell, decay=zero, gain=zero + 1, offset=zero, decay_s=None, gain_s=None, start=zero
        )
        threshold = node_of_cell(compared, value.shape, 1.0).v_threshold
        return self._add(f"{name}.threshold", nir_package().Threshold(threshold), potential)

    def _cell(self, name: str, given: Neurons, value: Value) -> Value:
        if given.faults:
            text = " and ".join(given.faults.values())
            if not self.approximate:
                raise Unsupported(
                    f"{text} has no counterpart in NIR, whose neurons set their membrane to v_reset within the step "
                    "that fired and leave the current as it is; approximate=True writes such neurons instead and "
                    "prints how many spikes that changes"
                )
            self.faults[name] = text
        return self._add(name, node_of_cell(given.cell, value.shape, self.dt, self.discretisation), value)

    def _recurrent(self, name: str, given: Neurons, back: RecurrentMap, value: Value) -> Value:
        if back.delays is not None:
            raise Unsupported("delays of recurrent connections have no counterpart")
        weight = back.weight
        if weight.dim() < 2:
            weight = torch.diag(weight.expand(value.shape[-1]))
        out = self._neurons(f"{name}.neuron", given, value)
        fired = out.sources[0]
        if kind_of(self.nodes[fired]) == "Threshold":
            raise Unsupported("reset='none' under recurrence has no counterpart")
        if back.bias is not None and bool((back.bias != 0).any()):
            # A recurrent Affine brings nothing in the first step, so the bias belongs to the input.
            before = self._add(f"{name}.bias", linear_node(torch.eye(value.shape[-1]), back.bias), value)
            self.edges = [edge for edge in self.edges if edge[1] != fired] + [(before.sources[0], fired)]
        returned = self._add(f"{name}.w_rec", linear_node(weight, None), out)
        self.edges.append((returned.sources[0], fired))
        return out


def name_of_node(step: Step) -> str:
    """Returns the name of a step's node: the module's path without points, and the part behind a point."""
    name = step.path.replace(".", "_") or "net"
    return f"{name}.{step.part}" if step.part else name


def first_shape(graph: Graph) -> Shape | None:
    """Returns the shape of a graph's input where the first of its operations that depends on it says it."""
    for step in graph.steps:
        if isinstance(step.operation, Weights) and step.operation.options is None:
            return (step.operation.weight.shape[1],)
        if isinstance(step.operation, Weights | Neurons | Pool) or (
            isinstance(step.operation, Flatten) and not step.part
        ):
            return None
    return None
