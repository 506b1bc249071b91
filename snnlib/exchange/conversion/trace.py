"""Trace of a call of a net: modules and functions with their tensors, in order.

The net runs with real tensors, so loops, branches and hidden states of any kind are simply what they were in this call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from snnlib.exchange.structure.unsupported import Unsupported
from snnlib.structure.peers import attributes_kept, clear_states


def _with_item(tensor: Tensor, index: Any, value: Any) -> Tensor:
    changed = tensor.clone()
    changed[index] = value
    return changed


# Functions that change their first argument, and those that give the result instead.
_IN_PLACE = {
    "__setitem__": _with_item,
    "__iadd__": torch.add,
    "__isub__": torch.sub,
    "__imul__": torch.mul,
    "__itruediv__": torch.div,
    "add_": torch.add,
    "sub_": torch.sub,
    "mul_": torch.mul,
    "div_": torch.div,
}


# Functions that give their argument itself where it is what they are asked for.
_SAME = ("to", "float", "double", "bfloat16", "half", "type_as", "contiguous", "cpu")


@dataclass(frozen=True)
class InTraining:
    """A flag among the arguments of a call that is True in training mode of the module at this path."""

    inside: str


# Context managers of torch by name, with their arguments.
Modes = set[tuple[Any, ...]]


def modes_of_torch() -> Modes:
    """Returns whether gradients are recorded, inference mode, and autocast of each kind of device."""
    kinds = ("cpu", "cuda")
    casts = {("autocast", k, torch.get_autocast_dtype(k), torch.is_autocast_enabled(k)) for k in kinds}
    inference = ("inference_mode", torch.is_inference_mode_enabled())
    return casts | {("set_grad_enabled", torch.is_grad_enabled()), inference}


@dataclass(frozen=True)
class Ref:
    """A tensor that the net was given or made, by its number."""

    value: int


@dataclass
class Call:
    """A call of a module or a function.

    Args:
        target: the module's path, or the function.
        args: leaves of the arguments; tensors of the net as `Ref`, all else as it was.
        spec: how the leaves make `(args, kwargs)`.
        outputs: numbers of the tensors among the leaves of the result; None for a leaf that is none.
        inside: path of the module whose `forward` made the call; empty for the net's own.
        modes: modes of torch in which it was made, where they are other than around the net.
    """

    target: str | Callable[..., Any]
    args: list[Any]
    spec: pytree.TreeSpec
    outputs: list[int | None]
    inside: str = ""
    modes: Modes = field(default_factory=set)

    @property
    def name(self) -> str:
        """For messages."""
        return (
            self.target
            if isinstance(self.target, str)
            else getattr(self.target, "__name__", str(self.target))
        )

    @property
    def place(self) -> str:
        """Returns which call it is, for messages."""
        return f"its call of {self.name}" + (f" in {self.inside}" if self.inside else "")

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Within it torch is in the modes of the call."""
        with ExitStack() as stack:
            for name, *options in self.modes:
                stack.enter_context(getattr(torch, name)(*options))
            yield

    @property
    def refs(self) -> list[Ref]:
        """Tensors that it got."""
        return [leaf for leaf in self.args if isinstance(leaf, Ref)]


@dataclass
class NetTrace:
    """All calls, and where inputs and results of the net are.

    Args:
        calls: in their order.
        inputs: numbers of the net's input tensors.
        output: leaves of the result, as in `Call.args`.
        out_spec: how they make the result.
        shapes: shape of every tensor.
    """

    calls: list[Call]
    inputs: list[int]
    output: list[Any]
    out_spec: pytree.TreeSpec
    shapes: list[torch.Size]


class _Recorder(TorchFunctionMode):
    """Writes down what happens to tensors of the net: functions by this mode, modules by `watching`."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.calls, self.shapes = list[Call](), list[torch.Size]()
        # Computations on parameters alone are written down as well, so that every call computes them anew.
        self.parameters = {id(parameter) for parameter in net.parameters()}
        # Numbers by identity; tensors are held, so that no identity is used twice.
        self.numbers, self.held = dict[int, int](), list[Tensor]()
        # Numbers of what leaves gave, whose backward pass is their own affair.
        self.of_leaves = set[int]()
        self.paused, self.around = False, modes_of_torch()
        # Modules that are running, the innermost last.
        self.running = [""]

    def new(self, tensor: Tensor) -> int:
        """Number a tensor."""
        self.shapes.append(tensor.shape)
        self.held.append(tensor)
        self.numbers[id(tensor)] = len(self.held) - 1
        return len(self.held) - 1

    def known(self, leaf: Any) -> Any:
        """A tensor of the net as `Ref`; anything else as it is."""
        number = self.numbers.get(id(leaf)) if isinstance(leaf, Tensor) else None
        if number is None:
            return leaf
        function = getattr(type(leaf.grad_fn), "_forward_cls", None)
        if function is not None and number not in self.of_leaves:
            name = function.__name__.replace("BackwardHookFunction", "a backward hook of a module")
            raise Unsupported(
                f"{name}, a torch.autograd.Function that {self.running[-1] or 'the net'} calls, has a "
                "backward pass of its own, which a conversion would lose"
            )
        return Ref(number)

    def inputs_of(self, args: Any, kwargs: Any) -> tuple[list[Any], pytree.TreeSpec]:
        """Leaves and structure of a call's arguments, before it runs."""
        leaves, spec = pytree.tree_flatten((tuple(args), dict(kwargs)))
        return [self.known(leaf) for leaf in leaves], spec

    def write(
        self, target: str | Callable[..., Any], inputs: tuple[list[Any], pytree.TreeSpec], result: Any
    ) -> None:
        """Write down a call, with `inputs_of` its arguments."""
        flat = pytree.tree_leaves(result)
        # A tensor that is given twice, as a potential that is output and state, is one.
        tensors = {id(leaf): leaf for leaf in flat if isinstance(leaf, Tensor)}
        numbers = {identity: self.new(leaf) for identity, leaf in tensors.items()}
        if isinstance(target, str):
            self.of_leaves |= {*numbers.values()}
        outputs = [numbers.get(id(leaf)) for leaf in flat]
        modes = modes_of_torch() - self.around
        self.calls.append(Call(target, *inputs, outputs, self.running[-1], modes))

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs, name = kwargs or {}, getattr(func, "__name__", "")
        if self.paused:
            return func(*args, **kwargs)
        leaves, spec = self.inputs_of(args, kwargs)
        if name in _IN_PLACE and isinstance(leaves[0], Tensor):
            # Copy of the value before it is changed.
            leaves[0] = leaves[0].clone()
        result = func(*args, **kwargs)
        if name in _SAME and result is args[0]:
            return result
        if any(isinstance(leaf, Ref) or id(leaf) in self.parameters for leaf in leaves):
            # A value set in place gives nothing, and would be missed.
            given = args[0] if name == "__setitem__" else result
            if any(isinstance(leaf, Tensor) for leaf in pytree.tree_leaves(given)):
                self.write(_IN_PLACE.get(name, func), (leaves, spec), given)
        return result

    def call_inside(self, path: str, forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Run a module whose own calls are written down."""
        self.running.append(path)
        try:
            return forward(*args, **kwargs)
        finally:
            self.running.pop()

    @contextmanager
    def watching(self, net: nn.Module, leaves: Mapping[str, nn.Module]) -> Iterator[None]:
        """Calls of the net's modules go through this recorder, those of leaves with all their hooks."""
        given: dict[str, tuple[list[Any], pytree.TreeSpec]] = {}

        def before(path: str, _module: nn.Module, args: Any, kwargs: Any) -> None:
            if not self.paused:
                given[path] = self.inputs_of(args, kwargs)
                self.paused = True

        def after(path: str, _module: nn.Module, _args: Any, _kwargs: Any, result: Any) -> None:
            if path in given:
                self.paused = False
                self.write(path, given.pop(path), result)

        with ExitStack() as stack:
            for path, module in {**dict(net.named_modules()), **leaves}.items():
                if path in leaves:
                    kwargs: Any = {"with_kwargs": True}
                    first = module.register_forward_pre_hook(partial(before, path), prepend=True, **kwargs)
                    last = module.register_forward_hook(partial(after, path), **kwargs)
                    stack.callback(first.remove)
                    stack.callback(last.remove)
                else:
                    module.__dict__["forward"] = partial(self.call_inside, path, module.forward)
                    stack.callback(module.__dict__.pop, "forward", None)
            yield


def trace_in_both_modes(
    net: nn.Module, leaves: dict[str, nn.Module], run: Callable[..., Any], x: Any
) -> NetTrace:
    """Run a net in evaluation and in training mode, and write down its calls.

    Raises:
        Unsupported: training differs in more than flags that functions get, as `F.dropout` does.
    """
    with attributes_kept(net):
        written = trace(net.eval(), leaves, run, x)
    try:
        with attributes_kept(net):
            clear_states(net)
            trained = trace(net.train(), leaves, run, x)
    except (RuntimeError, ValueError):
        # Statistics of a single sample, for example.
        return written
    for call, other in zip(written.calls, trained.calls, strict=False):
        shapes = [(each.name, len(each.args), len(each.outputs), each.modes) for each in (call, other)]
        if shapes[0] != shapes[1]:
            raise Unsupported(
                f"{call.inside or 'the net'} does something else in training, from {call.place} on"
            )
        for position, (a, b) in enumerate(zip(call.args, other.args, strict=True)):
            if a is False and b is True:
                call.args[position] = InTraining(call.inside)
            elif not _same(a, b):
                raise Unsupported(
                    f"{call.inside or 'the net'} computes with {_shown(b)} in training and {_shown(a)} in "
                    f"evaluation, at {call.place}"
                )
    if len(written.calls) != len(trained.calls):
        raise Unsupported("the net calls more functions in training mode or fewer")
    outputs = written.output, trained.output
    if len({*map(len, outputs)}) > 1 or not all(map(_same, *outputs)):
        raise Unsupported("the net gives something else in training")
    return written


def _same(a: Any, b: Any) -> bool:
    """Returns whether two runs have the same argument, as far as its type has values."""
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return a is b or (a.shape == b.shape and bool(torch.isclose(a, b, 0, 0, equal_nan=True).all()))
    return type(a) is type(b) and (not isinstance(a, int | float | str | slice | Ref) or a == b)


def _shown(leaf: Any) -> str:
    return f"a tensor of shape {tuple(leaf.shape)}" if isinstance(leaf, Tensor) else repr(leaf)


def _with_gradient(x: Tensor) -> Tensor:
    # No leaf of autograd, which nothing may change in place.
    return x.detach().requires_grad_().clone() if x.is_floating_point() else x


def trace(net: nn.Module, leaves: dict[str, nn.Module], run: Callable[..., Any], *args: Any) -> NetTrace:
    """Run a net once and write down its calls.

    Args:
        net: the net.
        leaves: modules by path that are written down as one call, whatever they do inside.
        run: calls the net.
        args: what `run` is called with.
    """
    recorder = _Recorder(net)
    with torch.enable_grad():
        # With gradients, by which functions with a backward pass of their own are recognised.
        args = pytree.tree_map_only(Tensor, _with_gradient, args)
        inputs = [recorder.new(leaf) for leaf in pytree.tree_leaves(args) if isinstance(leaf, Tensor)]
        with recorder.watching(net, leaves), recorder:
            result = run(*args)
    output, out_spec = pytree.tree_flatten(result)
    return NetTrace(recorder.calls, inputs, [*map(recorder.known, output)], out_spec, recorder.shapes)
