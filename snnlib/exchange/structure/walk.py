"""Walks over a net's modules in the order of their calls, and builds its graph."""

from __future__ import annotations

import operator
from typing import Any, Protocol, runtime_checkable

import torch
from torch import fx, nn

from snnlib.exchange.structure.graph import Graph, Step
from snnlib.exchange.structure.operations import Flatten, Operation, Sum, is_operation, operations_of
from snnlib.exchange.structure.unsupported import Unsupported, naming
from snnlib.nn import PerStep, Residual, SpikeDropout, SpikingRNN
from snnlib.nn.fusion.fuse import Fused

PASSED_ON = (nn.Identity, nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, SpikeDropout)


@runtime_checkable
class Described(Protocol):
    """A module that says itself of which operations it is made."""

    def add_to(self, walk: Walk, path: str, value: Step, lead: int) -> Step:
        """Adds its operations on a value, as `Walk.module` does."""


def graph_of(net: nn.Module, path: str = "") -> Graph:
    """Returns the operations of a net over sequences `[T, N, ...]`.

    Args:
        net: an `nn.Sequential` or a module whose forward can be traced symbolically, of this library's layers and
            neurons, `PerStep` and torch's stateless layers, and of modules that are `Described`.
        path: of the net in a larger one.

    Raises:
        Unsupported: a module that is none of these; the message names it by its path.
    """
    walk = Walk()
    with torch.no_grad():
        walk.graph.output = walk.module(path, net, walk.graph.input, lead=2)
    return walk.graph


class Walk:
    """Collects the steps of a graph while modules are walked over."""

    def __init__(self) -> None:
        self.graph = Graph(Step("", "net", "", None, ()))

    def add(self, path: str, where: str, part: str, operation: Operation, *sources: Step) -> Step:
        """Returns a new step."""
        step = Step(path, where, part, operation, sources)
        self.graph.steps.append(step)
        return step

    def module(  # noqa: PLR0911 - one for each kind of module
        self, path: str, module: nn.Module, value: Step, lead: int
    ) -> Step:
        """Adds a module's operations on a value, and returns the step whose value the module gives.

        Args:
            path, module: the module.
            value: what it reads.
            lead: how many axes stand before those of a frame: time and batch, or batch alone.

        Raises:
            Unsupported: the module has no counterpart; the message names it by its path.
        """
        where = name_of(path, module)
        with naming(where):
            if isinstance(module, PASSED_ON):
                return value
            if isinstance(module, Described):
                return module.add_to(self, path, value, lead)
            if isinstance(module, PerStep):
                return self.chain(path, module, value, 1)
            if isinstance(module, Fused) or type(module) is nn.Sequential:
                return self.chain(path, module, value, lead)
            if isinstance(module, SpikingRNN):
                return self.chain(path, module.layers, value, lead)
            if isinstance(module, Residual):
                return self._residual(path, module, value, lead)
            parts = operations_of(module, lead)
            if parts is None:
                return self._traced(path, module, value, lead)
            for part, operation in parts:
                value = self.add(path, where, part, operation, value)
            return value

    def chain(self, path: str, modules: nn.Module, value: Step, lead: int) -> Step:
        """Adds a module's children one after the other."""
        for key, child in called_children(modules):
            value = self.module(f"{path}.{key}".lstrip("."), child, value, lead)
        return value

    def _residual(self, path: str, module: Residual, value: Step, lead: int) -> Step:
        if module.join not in ("add", "event_add"):
            raise Unsupported(f"join={module.join!r} has no counterpart: inputs of a node are added")
        body = self.module(f"{path}.body".lstrip("."), module.body, value, lead)
        shortcut = self.module(f"{path}.shortcut".lstrip("."), module.shortcut, value, lead)
        return self.add(path, name_of(path, module), "", Sum(), body, shortcut)

    def _traced(self, path: str, module: nn.Module, value: Step, lead: int) -> Step:
        """Adds a module with a forward of its own, by the symbolic trace of torch."""
        if not list(module.children()):
            raise Unsupported(f"no layer, neuron or pool does what {type(module).__name__} does")
        try:
            calls = _Tracer().trace(module).nodes
        except Exception as error:
            raise Unsupported(f"its forward cannot be traced: {error}") from error
        known: dict[fx.Node, Step] = {}
        for call in calls:
            if call.op == "placeholder":
                if known:
                    raise Unsupported("a forward with more than one input has no counterpart")
                known[call] = value
            elif call.op == "call_module":
                inputs = [known.get(arg) if isinstance(arg, fx.Node) else None for arg in call.args]
                if call.kwargs or len(inputs) != 1 or inputs[0] is None:
                    raise Unsupported(
                        f"the call of {call.target} with other arguments than one sequence has no counterpart"
                    )
                child = module.get_submodule(str(call.target))
                known[call] = self.module(f"{path}.{call.target}".lstrip("."), child, inputs[0], lead)
            elif call.op == "output":
                result = known.get(call.args[0]) if isinstance(call.args[0], fx.Node) else None
                if result is None:
                    raise Unsupported("an output other than one sequence has no counterpart")
                return result
            else:
                known[call] = self._function(path, module, call, known, lead)
        raise Unsupported("a forward without an output has no counterpart")

    def _function(
        self, path: str, module: nn.Module, call: fx.Node, known: dict[fx.Node, Step], lead: int
    ) -> Step:
        """Adds a function or method of a trace."""
        args: list[Any] = [known.get(arg, arg) if isinstance(arg, fx.Node) else arg for arg in call.args]
        values = [arg for arg in args if isinstance(arg, Step)]
        own, where = f"{path}.{call.name}".lstrip("."), name_of(path, module)
        if call.target in (operator.add, torch.add, "add", operator.iadd) and len(values) == len(args) == 2:
            return self.add(own, where, "", Sum(), *values)
        if call.target in (torch.flatten, "flatten") and len(values) == 1:
            dims = [*args[1:], *call.kwargs.values()]
            start, end = (*dims, -1)[:2] if dims else (0, -1)
            return self.add(own, where, "", Flatten(start, end, lead), *values)
        what = getattr(call.target, "__name__", call.target)
        raise Unsupported(f"the call of {what} in its forward has no counterpart")


class _Tracer(fx.Tracer):
    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        """Keeps modules that a walk knows, and those of torch, in one piece."""
        containers = (PerStep, Fused, Residual, SpikingRNN)
        known = isinstance(m, (*PASSED_ON, *containers, Described)) or is_operation(m)
        return known or super().is_leaf_module(m, module_qualified_name)


def called_children(chain: nn.Module) -> list[tuple[str, nn.Module]]:
    """Returns what a chain calls, by name; `named_children` leaves out the second place of a module."""
    return [(key, child) for key, child in chain._modules.items() if child is not None]


def name_of(path: str, module: nn.Module) -> str:
    """Returns a module's path and kind, for messages."""
    return f"{path or 'net'} ({type(module).__name__})"
