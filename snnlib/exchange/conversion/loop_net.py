"""A net whose loop over time is folded: every call of a step is made once, over the sequence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from snnlib.exchange.conversion.loop import At, Before, Lane, Loop, Slice, Stacked, Total
from snnlib.exchange.conversion.trace import Call, Ref, Trace
from snnlib.structure.graph import Step
from snnlib.structure.operations import Flatten, Operation, Sum
from snnlib.structure.unsupported import Unsupported
from snnlib.structure.walk import Walk, name_of

# Functions whose first size is that of the batch.
_SIZED = ("view", "reshape", "expand", "repeat")
_ADDITIONS = ("add", "__add__", "__radd__", "__iadd__")


class FoldedNet(nn.Module):
    """A converted net: its modules under their own names, and the order in which they are called.

    `print` shows the modules; `code()` the calls.

    Args:
        modules: leaves by path, over sequences.
        plain: torch modules by path that are called before or after the loop, as they are.
        loop: the calls.
        trace: where they come from.
        batch: size of the batch in the trace.
    """

    def __init__(
        self,
        modules: Mapping[str, nn.Module],
        plain: Mapping[str, nn.Module],
        loop: Loop,
        trace: Trace,
        batch: int,
        outside: bool,
    ) -> None:
        super().__init__()
        for path, module in {**plain, **modules}.items():
            _put(self, path, module)
        self._paths = dict(modules)
        self._plain = dict(plain)
        self.loop, self.inputs = loop, trace.inputs
        self.out_spec, self.batch, self.outside = trace.out_spec, batch, outside

    def forward(self, *args: Any) -> Any:
        """Returns what the net that it comes from gives."""
        values: dict[int, Any] = dict(
            zip(
                self.inputs,
                (leaf for leaf in pytree.tree_leaves(args) if isinstance(leaf, Tensor)),
                strict=False,
            )
        )
        for call in self.loop.before:
            self._store(call, self._call(call, [self._outer(leaf, values, {}) for leaf in call.args]), values)
        steps = self._steps(values)
        if steps != self.loop.steps and self._length_is_written():
            raise ValueError(
                f"x: expected {self.loop.steps} time steps, as in the input that the net was converted with, got "
                f"{steps}: the net computes with this number"
            )
        lanes: dict[tuple[int, int], Tensor] = {}
        for number, call in enumerate(self.loop.step):
            result = self._over_time(call, values, lanes, steps)
            for position, leaf in enumerate(pytree.tree_leaves(result)):
                lanes[number, position] = leaf
        for call in self.loop.after:
            self._store(
                call, self._call(call, [self._outer(leaf, values, lanes) for leaf in call.args]), values
            )
        output = [self._outer(leaf, values, lanes) for leaf in self.loop.output]
        return pytree.tree_unflatten(output, self.out_spec)

    def leaf(self, path: str) -> nn.Module:
        """Returns the module over sequences that a call of a step names."""
        return self._paths[path]

    def add_to(self, walk: Walk, path: str, value: Step, lead: int) -> Step:
        """Adds the calls of a step to a graph, one after the other.

        Raises:
            Unsupported: a call that is no operation, or an output that is not one sequence.
        """
        if len(self.inputs) != 1:
            raise Unsupported("a net with several inputs has no counterpart")
        lanes: dict[int, Step] = {}
        for number, call in enumerate(self.loop.step):
            read = [leaf for leaf in call.args if isinstance(leaf, Slice | Lane)]
            states = any(isinstance(leaf, Lane) and leaf.out != 0 for leaf in read)
            if states:
                raise Unsupported(f"the state of a neuron that {call.name} reads has no counterpart")
            values = [value if isinstance(leaf, Slice) else lanes[leaf.call] for leaf in read]
            name = f"{path}.{call.name}".lstrip(".")
            if isinstance(call.target, str) and values:
                lanes[number] = walk.module(name, self.leaf(call.target), values[0], 2)
            else:
                operation = _operation(call, len(values))
                lanes[number] = walk.add(f"{name}_{number}", name_of(path, self), "", operation, *values)
        return lanes[self.loop.output[self.sequence].lane.call]

    @property
    def sequence(self) -> int:
        """Returns which leaf of an output is the sequence of spikes, among potentials, sums and single steps.

        Raises:
            Unsupported: there is none, or more than one.
        """
        found = {
            leaf.lane.call: number
            for number, leaf in enumerate(self.loop.output)
            if isinstance(leaf, Stacked) and leaf.lane.out == 0
        }
        if len(found) != 1:
            raise Unsupported(f"an output of {len(found)} sequences of spikes has no counterpart")
        return next(iter(found.values()))

    def spikes_in(self, output: Any) -> Tensor:
        """Returns that sequence `[T, N, ...]` of an output."""
        spikes: Tensor = pytree.tree_leaves(output)[self.sequence]
        return spikes.movedim(self.loop.output[self.sequence].dim, 0)

    def code(self) -> str:
        """The calls of a step, one per line."""
        return "\n".join(
            f"{number}: {call.name}({', '.join(_shown(leaf) for leaf in call.args)})"
            for number, call in enumerate(self.loop.step)
        )

    def _steps(self, values: Mapping[int, Tensor]) -> int:
        """Length of the sequences that are cut into steps; that of the trace if none is."""
        for call in self.loop.step:
            for leaf in call.args:
                if isinstance(leaf, Slice):
                    return values[leaf.value].shape[leaf.dim]
        return self.loop.steps

    def _length_is_written(self) -> bool:
        """Returns whether a number in the calls is that of the steps or its inverse, and so fits no others."""
        steps = self.loop.steps
        leaves = (leaf for call in (*self.loop.step, *self.loop.after) for leaf in call.args)
        return (
            any(isinstance(leaf, int | float) and leaf in (steps, 1 / steps) for leaf in leaves) and steps > 1
        )

    def _over_time(
        self, call: Call, values: Mapping[int, Tensor], lanes: Mapping[tuple[int, int], Tensor], steps: int
    ) -> Any:
        leaves = [self._inner(leaf, values, lanes) for leaf in call.args]
        if isinstance(call.target, str):
            # States of the step before are the module's own affair now.
            x = next(leaf for leaf in leaves if isinstance(leaf, tuple | Tensor))
            if isinstance(x, Tensor):
                x = (x.unsqueeze(0).expand(steps, *x.shape),)
            return self._paths[call.target](x[0])
        sequences = [
            leaf[0] for leaf in leaves if isinstance(leaf, tuple) and leaf and isinstance(leaf[0], Tensor)
        ]

        def one_step(*parts: Tensor) -> Any:
            given = iter(parts)
            filled = [
                next(given) if isinstance(leaf, tuple) and leaf and isinstance(leaf[0], Tensor) else leaf
                for leaf in leaves
            ]
            return self._call(call, filled, self._batch_of(values))

        if not sequences:
            once = one_step()
            return pytree.tree_map(lambda leaf: leaf.unsqueeze(0).expand(steps, *leaf.shape), once)
        return torch.vmap(one_step, randomness="different")(*sequences)

    def _batch_of(self, values: Mapping[int, Tensor]) -> int:
        shape = values[self.inputs[0]].shape
        for call in self.loop.step:
            for leaf in call.args:
                if isinstance(leaf, Slice):
                    shape = values[leaf.value].shape
                    return shape[1 - leaf.dim] if leaf.dim < 2 else shape[0]
        return shape[0]

    def _call(self, call: Call, leaves: list[Any], batch: int | None = None) -> Any:
        args, kwargs = pytree.tree_unflatten(leaves, call.spec)
        if isinstance(call.target, str):
            return self._plain[call.target](*args, **kwargs)
        if call.name in _SIZED and batch is not None:
            args = _resized(args, self.batch, batch)
        # Of a sequence with its channels last in memory there may be no such view.
        shaped = call.name == "view" and not kwargs and not isinstance(args[1], torch.dtype)
        return (Tensor.reshape if shaped else call.target)(*args, **kwargs)

    def _store(self, call: Call, result: Any, values: dict[int, Any]) -> None:
        for number, leaf in zip(call.outputs, pytree.tree_leaves(result), strict=True):
            if number is not None:
                values[number] = leaf

    def _inner(self, leaf: Any, values: Mapping[int, Any], lanes: Mapping[tuple[int, int], Tensor]) -> Any:
        """An argument of a step: a sequence as a tuple of one, all else as it is."""
        if isinstance(leaf, Slice):
            return (values[leaf.value].movedim(leaf.dim, 0),)
        if isinstance(leaf, Lane):
            return (lanes[leaf.call, leaf.out],)
        return values[leaf.value] if isinstance(leaf, Ref) else leaf

    def _outer(self, leaf: Any, values: Mapping[int, Any], lanes: Mapping[tuple[int, int], Tensor]) -> Any:
        """An argument outside of the steps, or a part of the result."""
        if isinstance(leaf, Ref | Slice):
            return values[leaf.value]
        if not isinstance(leaf, Total | Stacked | At):
            return leaf
        lane = lanes[leaf.lane.call, leaf.lane.out]
        if isinstance(leaf, Stacked):
            return lane.movedim(0, leaf.dim)
        if isinstance(leaf, At):
            return lane[leaf.step]
        total = lane.sum(0)
        initial = values[leaf.initial.value] if isinstance(leaf.initial, Ref) else leaf.initial
        return total if initial is None else total + initial


def _operation(call: Call, values: int) -> Operation:
    """Returns what a call of a function within a step does."""
    if call.name in _ADDITIONS and values == len(call.args) == 2:
        return Sum()
    plain = [leaf for leaf in call.args if not isinstance(leaf, Slice | Lane)]
    # `view` gets the size of the batch, and all else.
    views = call.name in ("view", "reshape") and len(plain) == 2 and plain[1] == -1
    if values == 1 and (views or (call.name == "flatten" and plain in ([1], [1, -1]))):
        return Flatten(1, -1, 1)
    raise Unsupported(f"the call of {call.name} in its loop has no counterpart")


def _resized(args: tuple[Any, ...], traced: int, batch: int) -> tuple[Any, ...]:
    first, *sizes = args
    if sizes and isinstance(sizes[0], int) and sizes[0] == traced:
        return (first, batch, *sizes[1:])
    if sizes and isinstance(sizes[0], tuple | list) and sizes[0] and sizes[0][0] == traced:
        return (first, (batch, *sizes[0][1:]), *sizes[1:])
    return args


def _put(net: nn.Module, path: str, module: nn.Module) -> None:
    """Add a module under a path with dots, so that names are those of the net that it comes from."""
    *parents, name = path.split(".")
    for parent in parents:
        if parent not in net._modules:
            net.add_module(parent, nn.Module())
        net = cast(nn.Module, net._modules[parent])
    net.add_module(name, module)


def _shown(leaf: Any) -> str:
    if isinstance(leaf, Lane):
        return f"step[{leaf.call}.{leaf.out}]"
    if isinstance(leaf, Before):
        return f"last step[{leaf.lane.call}.{leaf.lane.out}]"
    if isinstance(leaf, Slice):
        return f"input {leaf.value}[t]"
    return f"value {leaf.value}" if isinstance(leaf, Ref) else type(leaf).__name__
