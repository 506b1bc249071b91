"""A net whose loop over time is folded: every call of a step is made once, over the sequence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from snnlib.exchange.conversion.loop import AtStep, Loop, RunningSum, Slice, StackOverTime, StepValue
from snnlib.exchange.conversion.trace import Call, InTraining, NetTrace, Ref
from snnlib.exchange.sequences import over_steps
from snnlib.exchange.structure.graph import Step
from snnlib.exchange.structure.operations import Flatten, Operation, Sum
from snnlib.exchange.structure.unsupported import Unsupported
from snnlib.exchange.structure.walk import Walk, name_of

# Functions whose first size is that of the batch.
_SIZED = ("view", "reshape", "expand", "repeat")
_ADDITIONS = ("add", "__add__", "__radd__", "__iadd__")
# Tensors by their number in the trace, and sequences of what the calls of a step give.
Values = dict[int | StepValue, Any]


class WrongSize(ValueError):  # noqa: N818 - an answer
    """Raised where an input has another size than the one that a net computes with."""


class FoldedNet(nn.Module):
    """A converted net: its modules under their own names, and the order in which they are called.

    Args:
        modules: leaves by path, over sequences.
        plain: torch modules by path that are called as they are: before or after the loop, or step by step.
        loop: the calls.
        trace: where they come from.
        batch: size of the batch in the trace.
    """

    def __init__(
        self,
        modules: Mapping[str, nn.Module],
        plain: Mapping[str, nn.Module],
        loop: Loop,
        trace: NetTrace,
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
        # Sizes that the net computes with, by dimension of x; the proof finds them.
        self.sizes: dict[int, int] = {}
        for call in (*loop.before, *loop.step, *loop.after):
            if any(isinstance(leaf, InTraining) for leaf in call.args):
                _reached(self, call.inside)

    def forward(self, *args: Any) -> Any:
        """Returns what the net that it comes from gives."""
        given = [leaf for leaf in pytree.tree_leaves(args) if isinstance(leaf, Tensor)]
        for dim, size in self.sizes.items():
            if given[0].shape[dim] != size:
                raise WrongSize(
                    f"x: expected size {size} in dimension {dim}, as in the input that the net was converted with, "
                    f"got {given[0].shape[dim]}: the net computes with this number"
                )
        values: Values = dict(zip(self.inputs, given, strict=False))
        for call in self.loop.before:
            self._run_outer(call, values)
        cut = self.loop.slices[:1]
        steps = values[cut[0].value].shape[cut[0].dim] if cut else self.loop.steps
        for number, call in enumerate(self.loop.step):
            with call.entered():
                result = self._over_time(call, values, steps)
            for position, leaf in enumerate(pytree.tree_leaves(result)):
                values[StepValue(number, position)] = leaf
        for call in self.loop.after:
            self._run_outer(call, values)
        output = [self._outer(leaf, values) for leaf in self.loop.output]
        return pytree.tree_unflatten(output, self.out_spec)

    def add_to(self, walk: Walk, path: str, value: Step, lead: int) -> Step:
        """Adds the calls of a step to a graph, one after the other.

        Raises:
            Unsupported: a call that is no operation, or an output that is not one sequence.
        """
        if len(self.inputs) != 1:
            raise Unsupported("a net with several inputs has no counterpart")
        steps: dict[int, Step] = {}
        for number, call in enumerate(self.loop.step):
            read = [leaf for leaf in call.args if isinstance(leaf, Slice | StepValue)]
            states = any(isinstance(leaf, StepValue) and leaf.out != 0 for leaf in read)
            if states:
                raise Unsupported(f"the state of a neuron that {call.name} reads has no counterpart")
            values = [value if isinstance(leaf, Slice) else steps[leaf.call] for leaf in read]
            name = f"{path}.{call.name}".lstrip(".")
            if isinstance(call.target, str) and values:
                steps[number] = walk.module(name, self._paths[call.target], values[0], 2)
            else:
                operation = _operation(call, len(values))
                steps[number] = walk.add(f"{name}_{number}", name_of(path, self), "", operation, *values)
        return steps[self.loop.output[self.sequence].of.call]

    @property
    def sequence(self) -> int:
        """Returns which leaf of an output is the sequence of spikes, among potentials, sums and single steps.

        Raises:
            Unsupported: there is none, or more than one.
        """
        found = {
            leaf.of.call: number
            for number, leaf in enumerate(self.loop.output)
            if isinstance(leaf, StackOverTime) and leaf.of.out == 0
        }
        if len(found) != 1:
            raise Unsupported(f"an output of {len(found)} sequences of spikes has no counterpart")
        return next(iter(found.values()))

    def spikes_in(self, output: Any) -> Tensor:
        """Returns that sequence `[T, N, ...]` of an output."""
        spikes: Tensor = pytree.tree_leaves(output)[self.sequence]
        return spikes.movedim(self.loop.output[self.sequence].dim, 0)

    def _over_time(self, call: Call, values: Values, steps: int) -> Any:
        timed = [isinstance(leaf, Slice | StepValue) for leaf in call.args]
        leaves = [self._inner(leaf, values) for leaf in call.args]
        if call.target in self._paths:
            # States of the step before are the module's own affair now.
            number = next(number for number, leaf in enumerate(leaves) if isinstance(leaf, Tensor))
            x = leaves[number]
            return self._paths[call.target](x if timed[number] else x.expand(steps, *x.shape))
        batch = self.loop.batch(lambda number: values[number].shape, self.inputs[0])

        def one_step(*parts: Tensor) -> Any:
            given = iter(parts)
            filled = [next(given) if over else leaf for leaf, over in zip(leaves, timed, strict=True)]
            return self._call(call, filled, batch)

        if not any(timed):
            return pytree.tree_map(lambda leaf: leaf.expand(steps, *leaf.shape), one_step())
        sequences = [leaf for leaf, over in zip(leaves, timed, strict=True) if over]
        if isinstance(call.target, str):
            return over_steps(one_step, *sequences)
        try:
            return torch.vmap(one_step, randomness="different")(*sequences)
        except RuntimeError:
            # Functions that vmap does not know, such as an assignment by a mask.
            return over_steps(one_step, *sequences)

    def _call(self, call: Call, leaves: list[Any], batch: int | None = None) -> Any:
        args, kwargs = pytree.tree_unflatten(leaves, call.spec)
        if isinstance(call.target, str):
            return self._plain[call.target](*args, **kwargs)
        if call.name in _SIZED and batch is not None:
            args = _resized(args, self.batch, batch)
        # A sequence with its channels last in memory may have no such view.
        shaped = call.name == "view" and not kwargs and not isinstance(args[1], torch.dtype)
        return (Tensor.reshape if shaped else call.target)(*args, **kwargs)

    def _run_outer(self, call: Call, values: Values) -> None:
        with call.entered():
            result = self._call(call, [self._outer(leaf, values) for leaf in call.args])
        for number, leaf in zip(call.outputs, pytree.tree_leaves(result), strict=True):
            if number is not None:
                values[number] = leaf

    def _inner(self, leaf: Any, values: Values) -> Any:
        """An argument of a step: of values that change from step to step the sequence."""
        if isinstance(leaf, Slice):
            return values[leaf.value].movedim(leaf.dim, 0)
        return values[leaf] if isinstance(leaf, StepValue) else self._outer(leaf, values)

    def _outer(self, leaf: Any, values: Values) -> Any:
        """An argument outside of the steps, or a part of the result."""
        match leaf:
            case Ref(number) | Slice(number, _):
                return values[number]
            case StackOverTime(value, dim):
                return values[value].movedim(0, dim)
            case AtStep(value, step):
                return values[value][step]
            case RunningSum(value, initial):
                total = values[value].sum(0)
                return total if initial is None else total + self._outer(initial, values)
        return self.get_submodule(leaf.inside).training if isinstance(leaf, InTraining) else leaf


def _operation(call: Call, values: int) -> Operation:
    """Returns what a call of a function within a step does."""
    if call.name in _ADDITIONS and values == len(call.args) == 2:
        return Sum()
    plain = [leaf for leaf in call.args if not isinstance(leaf, Slice | StepValue)]
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
    parent, _, name = path.rpartition(".")
    _reached(net, parent).add_module(name, module)


def _reached(net: nn.Module, path: str) -> nn.Module:
    """Returns the module at a path, which is made where it is missing."""
    for name in path.split(".") if path else ():
        if name not in net._modules:
            net.add_module(name, nn.Module())
        net = cast(nn.Module, net._modules[name])
    return net
