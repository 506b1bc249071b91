"""A net of this library as nodes and edges of NIR: the walk over its modules."""

from __future__ import annotations

import operator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import fx, nn

from snnlib.exchange.folded import FoldedNet
from snnlib.exchange.nir.loop_walk import walk_loop
from snnlib.exchange.nir.modules import conv_node, linear_node, normalisation, pool_node
from snnlib.exchange.nir.package import nir_package
from snnlib.exchange.nir.reading import Discretisation, kind_of
from snnlib.exchange.nir.structure import Shape, output_shape
from snnlib.exchange.nir.write_cell import node_of_cell
from snnlib.exchange.recurrence import LinearRecurrence
from snnlib.exchange.sequence import EachStep, RecurrentNeurons, WithStates
from snnlib.neurons import Neuron
from snnlib.nn import (
    AvgPool2d,
    Fused,
    PerStep,
    Residual,
    SpikeAvgPool2d,
    SpikeDropout,
    SpikingLayer,
    SpikingRNN,
    SRMLayer,
    SRMReadout,
)
from snnlib.nn.batch_norm import BatchNorm
from snnlib.nn.recurrent_layer import Recurrent, RecurrentLayer
from snnlib.structure.cells import Cell
from snnlib.structure.neuron_cells import cell_of_neuron, potential_cell, srm_cell
from snnlib.structure.unsupported import Unsupported

_PASSED_ON = (nn.Identity, nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, SpikeDropout)
_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, BatchNorm)
_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d)
_POOLS = (nn.AvgPool2d, AvgPool2d, SpikeAvgPool2d, nn.AdaptiveAvgPool2d)
_LEAVES = (
    *(*_PASSED_ON, *_NORMS, *_CONVOLUTIONS, *_POOLS),
    *(nn.Linear, nn.Flatten, Neuron, SpikingLayer, SRMLayer, SRMReadout, SpikingRNN),
    *(PerStep, EachStep, Fused, Residual, RecurrentNeurons, LinearRecurrence),
)


@dataclass(frozen=True)
class Value:
    """What flows between modules: the sum of some nodes' outputs, of this shape without time and batch.

    `shared` says that something else reads it as well, so that the node before it must stay as it is.
    """

    sources: tuple[str, ...]
    shape: Shape
    shared: bool = False


@dataclass
class Walk:
    """Collects nodes and edges while modules are walked over.

    Args:
        dt, discretisation: what neurons are written for.
        approximate: whether neurons that NIR has nearly are written as those.
    """

    dt: float
    discretisation: Discretisation
    approximate: bool
    nodes: dict[str, Any] = field(default_factory=dict)
    edges: list[tuple[str, str]] = field(default_factory=list)
    # What was written as something else, by the node's name.
    faults: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, node: Any, value: Value) -> Value:
        """A node that reads a value."""
        name = name.replace(".", "_") if "." in name and name.count(".") > 1 else name
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

    def neurons(self, name: str, cell: Cell, faults: list[str], value: Value) -> Value:
        """A node of neurons."""
        if faults:
            text = " and ".join(faults)
            if not self.approximate:
                raise Unsupported(
                    f"{text} has no counterpart in NIR, whose neurons set their membrane to v_reset within the step "
                    "that fired and leave the current as it is; approximate=True writes such neurons instead and "
                    "prints how many spikes that changes"
                )
            self.faults[name] = text
        return self.add(name, node_of_cell(cell, value.shape, self.dt, self.discretisation), value)

    def module(self, path: str, module: nn.Module, value: Value, lead: int) -> Value:
        """A module on a value; `lead` axes, time and batch or batch alone, stand before those of the shape.

        Raises:
            Unsupported: the module has no counterpart; the message names it by its path.
        """
        try:
            return self._module(path, module, value, lead)
        except Unsupported as reason:
            if getattr(reason, "placed", False):
                raise
            placed = Unsupported(f"{path or 'net'} ({type(module).__name__}): {reason}")
            placed.placed = True  # type: ignore[attr-defined]
            raise placed from reason
        except ValueError as error:
            raise Unsupported(f"{path or 'net'} ({type(module).__name__}): {error}") from error

    def _module(self, path: str, module: nn.Module, value: Value, lead: int) -> Value:  # noqa: PLR0911, PLR0912
        name = path.replace(".", "_") or "net"
        if isinstance(module, _PASSED_ON):
            return value
        if isinstance(module, PerStep | EachStep):
            return self.chain(path, module, value, 1)
        if isinstance(module, Fused) or type(module) is nn.Sequential:
            return self.chain(path, module, value, lead)
        if isinstance(module, Residual):
            return self._residual(path, module, value, lead)
        if isinstance(module, nn.Linear):
            return self.add(name, linear_node(module.weight, module.bias), value)
        if isinstance(module, _CONVOLUTIONS):
            return self.add(name, conv_node(module.weight, module.bias, module), value)
        if isinstance(module, nn.Flatten):
            return self.flatten(name, value, module.start_dim, module.end_dim, lead)
        if isinstance(module, _POOLS):
            return self.add(name, pool_node(module, value.shape), value)
        if isinstance(module, _NORMS):
            return self._normalise(name, module, value)
        if isinstance(module, Neuron):
            return self._neuron(name, module, value)
        if isinstance(module, SpikingLayer | SRMLayer | SRMReadout | SpikingRNN):
            return self._layer(path, name, module, value, lead)
        if isinstance(module, RecurrentNeurons):
            return self._recurrent(name, module.neuron, module.weight, module.bias, value)
        if isinstance(module, LinearRecurrence):
            return self._container(name, module, value)
        if isinstance(module, WithStates):
            return self._neuron(name, module.neuron, value)
        if isinstance(module, FoldedNet):
            return walk_loop(self, path, module, value)
        return self._traced(path, module, value, lead)

    def chain(self, path: str, modules: nn.Module, value: Value, lead: int) -> Value:
        """Modules one after the other."""
        for key, child in modules.named_children():
            value = self.module(f"{path}.{key}".lstrip("."), child, value, lead)
        return value

    def _residual(self, path: str, module: Residual, value: Value, lead: int) -> Value:
        if module.join not in ("add", "event_add"):
            raise Unsupported(f"join={module.join!r} has no counterpart: inputs of a node are added")
        value = Value(value.sources, value.shape, shared=True)
        body = self.module(f"{path}.body".lstrip("."), module.body, value, lead)
        shortcut = self.module(f"{path}.shortcut".lstrip("."), module.shortcut, value, lead)
        return self.sum(path, body, shortcut)

    def sum(self, name: str, a: Value, b: Value) -> Value:
        """Both values as one."""
        if a.shape != b.shape:
            raise Unsupported(f"a sum of shapes {a.shape} and {b.shape} has no counterpart")
        if set(a.sources) & set(b.sources):
            # An edge stands in a graph once.
            ones = nir_package().Scale(np.ones(b.shape))
            b = self.add(f"{name.replace('.', '_')}_again", ones, b)
        return Value((*a.sources, *b.sources), a.shape)

    def flatten(self, name: str, value: Value, start: int, end: int, lead: int) -> Value:
        """Axes `start` to `end` as one, counted with those that lead."""
        axes = len(value.shape) + lead
        first, last = start % axes - lead, end % axes - lead
        if first < 0:
            raise Unsupported("a Flatten of time or batch has no counterpart")
        if first == last:
            return value
        # Counted from the end: importers differ in whether the first axis is the batch, and only that is read alike.
        own = len(value.shape)
        node = nir_package().Flatten({"input": np.array(value.shape)}, first - own, last - own)
        return self.add(name, node, value)

    def _normalise(self, name: str, module: Any, value: Value) -> Value:
        """Batch normalisation with running statistics: part of the weights before it, else a weight per channel."""
        scale, shift = normalisation(module)
        before = self.nodes.get(value.sources[0]) if len(value.sources) == 1 else None
        if (
            before is not None
            and not value.shared
            and kind_of(before) in ("Linear", "Affine", "Conv1d", "Conv2d")
        ):
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
            return self.add(name, linear_node(np.diag(scale), shift), value)
        axes = len(value.shape) - 1
        if axes > 2:
            raise Unsupported(f"frames of {axes} axes have no counterpart")
        options = {"stride": 1, "padding": 0, "dilation": 1, "groups": len(scale)}
        return self.add(name, conv_node(scale.reshape(-1, *[1] * (axes + 1)), shift, options), value)

    def _neuron(self, name: str, neuron: Neuron, value: Value) -> Value:
        cell, faults = cell_of_neuron(neuron)
        if getattr(neuron, "reset", "zero") == "none":
            # Potentials, then a threshold: what a neuron without reset is.
            free = replace(cell, threshold=None, reset_value=None, start=np.zeros(()))
            potential = self.neurons(f"{name}.potential", free, faults[1:], value)
            limit = node_of_cell(
                replace(
                    cell, decay=np.zeros(()), gain=np.ones(()), offset=np.zeros(()), decay_s=None, gain_s=None
                ),
                value.shape,
                1.0,
            )
            return self.add(f"{name}.threshold", nir_package().Threshold(limit.v_threshold), potential)
        return self.neurons(name, cell, faults, value)

    def _layer(self, path: str, name: str, module: Any, value: Value, lead: int) -> Value:
        if isinstance(module, SpikingRNN):
            for number, layer in enumerate(module.layers):
                value = self.module(f"{path}.{number}".lstrip("."), layer, value, lead)
            return value
        linear = not hasattr(module, "kernel_size")
        if linear and len(value.shape) > 1:
            value = self.flatten(f"{name}.flatten", value, lead, -1, lead)
        weight = module.effective_weight
        value = self._delay(name, module, value)
        if isinstance(module, Recurrent) and not isinstance(module, RecurrentLayer):
            raise Unsupported("convolutional recurrence is not written")
        if isinstance(module, RecurrentLayer):
            value = self.add(f"{name}.w_in", linear_node(weight, None), value)
            return self._recurrent(name, module.neuron, module.recurrent_weight, None, value)
        node = linear_node(weight, None) if linear else conv_node(weight, None, module)
        value = self.add(f"{name}.weight", node, value)
        if isinstance(module, SRMReadout):
            return self.neurons(f"{name}.neuron", potential_cell(module.tau_m, module.tau_s), [], value)
        if isinstance(module, SRMLayer):
            tau_m, tau_s, _ = module.neuron.taus
            cell, faults = srm_cell(tau_m, tau_s, module.threshold, full_reset=True)
            return self.neurons(f"{name}.neuron", cell, faults, value)
        return self._neuron(f"{name}.neuron", module.neuron, value)

    def _delay(self, name: str, module: Any, value: Value) -> Value:
        """Delays of input channels as a node; NIR has none of single connections."""
        if getattr(module, "recurrent_delays", None) is not None:
            raise Unsupported("delays of recurrent connections have no counterpart")
        delays = getattr(module, "delays", None)
        if delays is None:
            return value
        if delays.per != "channel":
            raise Unsupported('delays per="connection" have no counterpart: a Delay of NIR has one per input')
        steps = torch.floor(delays() + 0.5).double().cpu().numpy()
        by_channel = steps.reshape(-1, *[1] * (len(value.shape) - 1))
        seconds = np.array(np.broadcast_to(by_channel, value.shape)) * self.dt
        return self.add(f"{name}.delay", nir_package().Delay(seconds), value)

    def _recurrent(self, name: str, neuron: Neuron, weight: Any, bias: Any, value: Value) -> Value:
        if weight.dim() < 2:
            weight = torch.diag(weight.expand(value.shape[-1]))
        out = self._neuron(f"{name}.neuron", neuron, value)
        fired = out.sources[0]
        if kind_of(self.nodes[fired]) == "Threshold":
            raise Unsupported("reset='none' under recurrence has no counterpart")
        if bias is not None and bool((bias != 0).any()):
            # A recurrent Affine brings nothing in the first step, so the bias belongs to the input.
            ones = linear_node(torch.eye(value.shape[-1]), bias)
            before = self.add(f"{name}.bias", ones, value)
            self.edges = [edge for edge in self.edges if edge[1] != fired] + [(before.sources[0], fired)]
        back = self.add(f"{name}.w_rec", linear_node(weight, None), out)
        self.edges.append((back.sources[0], fired))
        return out

    def _container(self, name: str, module: LinearRecurrence, value: Value) -> Value:
        features = module.rc.out_features
        from_x, back = torch.split(module.rc.weight, [features, module.rc.in_features - features], dim=1)
        value = self.add(f"{name}.w_in", linear_node(from_x, module.rc.bias), value)
        for number, layer in enumerate(module.inner):
            assert isinstance(layer, nn.Linear)
            value = self.add(f"{name}.inner{number}", linear_node(layer.weight, layer.bias), value)
            back = layer.weight @ back
        return self._recurrent(name, module.neuron, back, None, value)

    def _traced(self, path: str, module: nn.Module, value: Value, lead: int) -> Value:
        """A module with a forward of its own, by the symbolic trace of torch."""
        if not list(module.children()):
            raise Unsupported(f"no node of NIR does what {type(module).__name__} does")
        tracer = _Tracer()
        try:
            graph = tracer.trace(module)
        except Exception as error:
            raise Unsupported(f"its forward cannot be traced: {error}") from error
        known: dict[fx.Node, Any] = {}
        for node in graph.nodes:
            if node.op == "placeholder":
                if any(known):
                    raise Unsupported("a forward with more than one input has no counterpart")
                known[node] = value
            elif node.op == "call_module":
                child = module.get_submodule(str(node.target))
                name = f"{path}.{node.target}".lstrip(".")
                known[node] = self.module(name, child, self._input(known, node), lead)
            elif node.op == "output":
                result = known.get(node.args[0]) if isinstance(node.args[0], fx.Node) else None
                if not isinstance(result, Value):
                    raise Unsupported("an output other than one sequence has no counterpart")
                return result
            else:
                known[node] = self._call(f"{path}.{node.name}".lstrip("."), node, known, lead)
            made = known[node]
            if isinstance(made, Value) and len(node.users) > 1:
                known[node] = Value(made.sources, made.shape, shared=True)
        raise Unsupported("a forward without an output has no counterpart")

    def _input(self, known: dict[fx.Node, Any], node: fx.Node) -> Value:
        value = known.get(node.args[0]) if node.args and isinstance(node.args[0], fx.Node) else None
        if len(node.args) != 1 or node.kwargs or not isinstance(value, Value):
            raise Unsupported(
                f"the call of {node.target} with other arguments than one sequence has no counterpart"
            )
        return value

    def _call(self, name: str, node: fx.Node, known: dict[fx.Node, Any], lead: int) -> Value:
        """A function or method of a trace."""
        args: list[Any] = [known.get(arg, arg) if isinstance(arg, fx.Node) else arg for arg in node.args]
        values = [arg for arg in args if isinstance(arg, Value)]
        if node.target in (operator.add, torch.add, "add", operator.iadd) and len(values) == len(args) == 2:
            return self.sum(name, *values)
        if node.target in (torch.flatten, "flatten") and len(values) == 1:
            dims = [*args[1:], *node.kwargs.values()]
            start, end = (*dims, -1)[:2] if dims else (0, -1)
            return self.flatten(name.replace(".", "_"), values[0], start, end, lead)
        what = getattr(node.target, "__name__", node.target)
        raise Unsupported(f"the call of {what} in its forward has no counterpart")


class _Tracer(fx.Tracer):
    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        """Modules that the walk knows, and those of torch."""
        return isinstance(m, _LEAVES) or super().is_leaf_module(m, module_qualified_name)


def first_shape(net: nn.Module) -> Shape | None:
    """Shape of a net's input where its first module says it."""
    for module in net.modules():
        if isinstance(module, nn.Linear):
            return (module.in_features,)
        if isinstance(module, SpikingRNN):
            return (module.input_size,)
        if isinstance(module, SpikingLayer | SRMLayer | SRMReadout) and not hasattr(module, "kernel_size"):
            return (module.weight.shape[1],)
        if isinstance(module, RecurrentLayer):
            return (module.weight.shape[1],)
        if isinstance(module, (*_CONVOLUTIONS, SpikingLayer, SRMLayer, Neuron, *_POOLS, nn.Flatten)):
            return None
    return None
