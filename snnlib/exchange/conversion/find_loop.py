"""Folds T equal steps of a trace into one call over the sequence.

Every call of the trace belongs to a step, to what comes before the loop, or to what comes after it. The steps must be
alike: the same calls with the same arguments, where a tensor of the step itself, of the step before (a neuron's state
or a running sum), of the loop's surroundings or the step's slice of a sequence stands in the same place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from snnlib.exchange.conversion.loop import (
    AtStep,
    CannotFold,
    Loop,
    Previous,
    RunningSum,
    Slice,
    StackOverTime,
    StepValue,
)
from snnlib.exchange.conversion.trace import Call, NetTrace, Ref

_ADDITIONS = ("add", "__add__", "__radd__", "sum")


def fold(trace: NetTrace, stepped: set[str]) -> Loop:
    """Fold a trace.

    Args:
        trace: one call of a net.
        stepped: paths of the modules that hold states, which are called once per step.

    Raises:
        CannotFold: steps differ; the message names the first that does.
    """
    # Additions that looked like the start of a running sum and were not.
    no_sums: set[int] = set()
    while True:
        try:
            return _Folder(trace, stepped, no_sums).fold()
        except _NoSum as mistake:
            no_sums.add(mistake.start)


class _NoSum(Exception):  # noqa: N818 - a step of a search
    """Raised where a seeming running sum is read before the last step; `start` is its first call."""

    def __init__(self, start: int) -> None:
        super().__init__(start)
        self.start = start


@dataclass(frozen=True)
class _Sum:
    """A sum of a value over the steps up to this one, and the number of its first call."""

    of: StepValue
    initial: Any
    step: int
    start: int


class _Folder:
    def __init__(self, trace: NetTrace, stepped: set[str], no_sums: set[int]) -> None:
        # Calls are written anew, as those of any step.
        trace = replace(trace, calls=[replace(call, outputs=list(call.outputs)) for call in trace.calls])
        self.trace, self.no_sums, self.stepped = trace, no_sums, stepped
        self.order = {id(call): number for number, call in enumerate(trace.calls)}
        counts = Counter(call.target for call in trace.calls if isinstance(call.target, str))
        neurons = {path: counts[path] for path in sorted(stepped) if counts[path]}
        if len(set(neurons.values())) > 1:
            shown = ", ".join(f"{path} {count}" for path, count in neurons.items())
            raise CannotFold(f"expected every neuron to be called once per step, got calls: {shown}")
        self.steps = next(iter(neurons.values()), 1)
        # Whatever is called once per step belongs to it, though its arguments may not depend on the step.
        self.per_step = {path for path, count in counts.items() if count == self.steps}
        self.calls: list[list[Call]] = [[] for _ in range(self.steps)]
        # Meaning of a tensor in its step, and the number of that step, by the tensor's number.
        self.in_step: dict[int, tuple[Slice | StepValue, int]] = {}
        self.before: list[Call] = []
        self.after: list[Call] = []
        # Running sums by the number of their tensor.
        self.sums: dict[int, _Sum] = {}
        # Values behind the loop, and what stands in their place there.
        self.replaced: dict[int, Any] = {}
        self.known: dict[Hashable, Call] = {}
        # Tensors that a loop made anew in every step, though nothing in them changes.
        self.same: dict[int, int] = {}

    def fold(self) -> Loop:
        calls_so_far: Counter[str] = Counter()
        for call in self.trace.calls:
            self._place(call, calls_so_far)
        self._tail()
        self._compare()
        output = [self._outer(leaf) for leaf in self.trace.output]
        return Loop(self.steps, self.before, self.calls[0], self.after, output)

    def _step_of(self, leaf: Any) -> int | None:
        """The step that a tensor belongs to, if it does."""
        if not isinstance(leaf, Ref):
            return None
        if leaf.value in self.sums:
            return self.sums[leaf.value].step
        return self.in_step[leaf.value][1] if leaf.value in self.in_step else None

    def _found(self, leaf: Any) -> tuple[Slice | StepValue | None, int]:
        """Returns the role of a tensor in its step, and the step."""
        return self.in_step.get(leaf.value, (None, 0)) if isinstance(leaf, Ref) else (None, 0)

    def _value_of(self, leaf: Any) -> StepValue | None:
        """Returns what a tensor is in its step, if a call of the step made it."""
        value, _ = self._found(leaf)
        return value if isinstance(value, StepValue) else None

    def _place(self, call: Call, calls_so_far: Counter[str]) -> None:
        steps = {step for leaf in call.refs if (step := self._step_of(leaf)) is not None}
        if isinstance(call.target, str) and call.target in self.per_step:
            step = calls_so_far[call.target]
            calls_so_far[call.target] += 1
            if steps <= {step, step - 1}:
                return self._into_step(call, step)
        if any(ref.value in self.replaced for ref in call.refs) or self._gathers(call):
            return self._later(call)
        if not steps:
            return self._unstepped(call)
        if self._adds_up(call):
            return None
        step = max(steps)
        if steps <= {step, step - 1}:
            return self._into_step(call, step)
        return self._later(call)

    def _unstepped(self, call: Call) -> None:
        """A slice of a sequence, or something that does not depend on the step."""
        cut = _as_slices(call, self.trace, self.steps)
        if cut is not None:
            self.in_step |= cut
            return
        # Made once, however often the loop asked for it.
        key = (
            call.name,
            call.target,
            frozenset(call.modes),
            str(call.spec),
            tuple(_key(self._plain(leaf)) for leaf in call.args),
        )
        first = self.known.setdefault(key, call)
        if first is call:
            self.before.append(call)
        for mine, other in zip(call.outputs, first.outputs, strict=True):
            if mine is not None and other is not None and mine != other:
                self.same[mine] = other

    def _into_step(self, call: Call, step: int) -> None:
        # A tensor that is given twice is its first place.
        for position, number in reversed(list(enumerate(call.outputs))):
            if number is not None:
                self.in_step[number] = (StepValue(len(self.calls[step]), position), step)
        self.calls[step].append(call)

    def _later(self, call: Call) -> None:
        self.after.append(call)
        for number in call.outputs:
            if number is not None:
                self.replaced[number] = Ref(number)

    def _gathers(self, call: Call) -> bool:
        """Returns whether a call stacks a value of all steps."""
        if call.target is not torch.stack:
            return False
        args, kwargs = pytree.tree_unflatten(call.args, call.spec)
        values = {self._value_of(leaf) for leaf in args[0]}
        value = next(iter(values))
        if len(values) > 1 or value is None or [*map(self._step_of, args[0])] != list(range(self.steps)):
            return False
        if call.modes - self.calls[0][value.call].modes:
            # Without gradients of values that have some, for example.
            return False
        dim = kwargs.get("dim", args[1] if len(args) > 1 else 0)
        assert call.outputs[0] is not None
        self.replaced[call.outputs[0]] = StackOverTime(value, dim)
        # Nothing is to be done in its place.
        call.outputs[0] = None
        return True

    def _adds_up(self, call: Call) -> bool:
        """Returns whether a call adds a step's value to the sum of the steps before."""
        if call.name not in _ADDITIONS or isinstance(call.target, str) or len(call.args) != 2:
            return False
        for total, term in (call.args, call.args[::-1]):
            value, step, before = self._value_of(term), self._step_of(term), self._step_of(total)
            if value is None or step is None or call.modes - self.calls[step][value.call].modes:
                continue
            so_far = self.sums.get(total.value) if isinstance(total, Ref) else None
            if so_far is not None:
                if so_far.of == value and so_far.step == step - 1:
                    return self._sum(call, replace(so_far, step=step))
            elif step == 1 and before == 0 and self._value_of(total) == value:
                # The first step's value itself was the start.
                return self._sum(call, _Sum(value, None, 1, self.order[id(call)]))
            elif step == 0 and self.steps > 1 and before is None and _is_start(total):
                # Zeros of the batch in the trace say nothing of others.
                initial = None if isinstance(total, Tensor) and not bool(total.any()) else total
                return self._sum(call, _Sum(value, initial, 0, self.order[id(call)]))
        return False

    def _sum(self, call: Call, found: _Sum) -> bool:
        if found.start in self.no_sums:
            return False
        number = call.outputs[0]
        assert number is not None
        self.sums[number] = found
        if found.step + 1 == self.steps:
            self.replaced[number] = RunningSum(found.of, found.initial)
        return True

    def _tail(self) -> None:
        """Calls on the last step's values alone come after the loop."""
        length = len(self.calls[0])
        if self.steps > 1:
            for call in self.calls[-1][length:]:
                for number in call.outputs:
                    self.in_step.pop(number, None)  # type: ignore[arg-type]
                self._later(call)
            del self.calls[-1][length:]

    def _compare(self) -> None:
        """Raise where a step differs from the first, and write the first one's arguments as those of any step."""
        usual = self.calls[min(1, self.steps - 1)]
        expected = [self._signature(call, min(1, self.steps - 1)) for call in usual]
        for step, calls in enumerate(self.calls):
            found = [self._signature(call, step) for call in calls]
            for number, (one, other) in enumerate(zip(expected, found, strict=False)):
                if not _alike(one, other, first=step == 0):
                    self._check_reads(calls[number], step)
                    self._check_reads(usual[number], min(1, self.steps - 1))
                    raise CannotFold(f"step {step} differs from the others at {calls[number].place}")
            if len(found) != len(expected):
                longer = calls if len(found) > len(expected) else usual
                verb = "has" if longer is calls else "lacks"
                call = longer[min(len(found), len(expected))]
                self._check_reads(call, step if longer is calls else min(1, self.steps - 1))
                raise CannotFold(f"step {step} {verb} {call.place}")
        for call, signature in zip(self.calls[0], expected, strict=True):
            call.args = list(signature[3])
        for call in self.before:
            call.args = [self._plain(leaf) for leaf in call.args]
        kept = (call for call in self.after if any(number is not None for number in call.outputs))
        self.after = sorted(kept, key=lambda call: self.order[id(call)])
        for call in self.after:
            call.args = [self._outer(leaf) for leaf in call.args]

    def _check_reads(self, call: Call, step: int) -> None:
        """Raise where a call of a step reads another step of a sequence, or changes a neuron's state."""
        for leaf in call.args:
            value, at = self._found(leaf)
            if isinstance(value, Slice) and at != step:
                raise CannotFold(
                    f"{call.place} reads step {at} of a sequence in step {step}", own_state=False
                )
            if not isinstance(value, StepValue) or value.out == 0 or isinstance(call.target, str):
                continue
            neuron = self.calls[at][value.call]
            detached = "; a snnlib neuron with gradient_through_time=False is detached so" * (
                call.name == "detach"
            )
            reason = f"the state of {neuron.name} is changed between steps by {call.place}{detached}"
            if neuron.target in self.stepped:
                raise CannotFold(reason, own_state=False)

    def _signature(self, call: Call, step: int) -> tuple[Any, ...]:
        return (
            (call.name, call.modes),
            call.target,
            str(call.spec),
            tuple(self._inner(leaf, step) for leaf in call.args),
        )

    def _plain(self, leaf: Any) -> Any:
        if isinstance(leaf, Ref) and leaf.value in self.sums:
            raise _NoSum(self.sums[leaf.value].start)
        return Ref(self.same[leaf.value]) if isinstance(leaf, Ref) and leaf.value in self.same else leaf

    def _inner(self, leaf: Any, step: int) -> Any:
        """An argument of a call of the step, as that of any step."""
        value, at = self._found(leaf)
        if value is None:
            return self._plain(leaf)
        if at == step:
            return value
        return Previous(value) if at == step - 1 and isinstance(value, StepValue) else leaf

    def _outer(self, leaf: Any) -> Any:
        """An argument of a call outside of the steps, or a part of the result."""
        if isinstance(leaf, Ref) and leaf.value in self.replaced:
            return self.replaced[leaf.value]
        value, at = self._found(leaf)
        if value is None:
            return self._plain(leaf)
        return value if isinstance(value, Slice) else AtStep(value, at - self.steps)


def _is_start(total: Any) -> bool:
    """Returns whether a running sum may start with this: a tensor of the net, a number, or zeros."""
    return not isinstance(total, Tensor) or total.numel() == 1 or not bool(total.any())


def _key(leaf: Any) -> Hashable:
    if isinstance(leaf, Tensor):
        return id(leaf)
    try:
        hash(leaf)
    except TypeError:
        return id(leaf)
    return (type(leaf).__name__, leaf)


def _alike(one: tuple[Any, ...], other: tuple[Any, ...], first: bool) -> bool:
    """Returns whether two calls do the same in their steps; in the first, states are initial or left out."""
    if one[:2] != other[:2]:
        return False
    if len(one[3]) != len(other[3]):
        return first and any(isinstance(leaf, Previous) for leaf in one[3])
    return all(
        (isinstance(a, Previous) and first)
        or (_same_tensor(a, b) if isinstance(a, Tensor) or isinstance(b, Tensor) else a == b)
        for a, b in zip(one[3], other[3], strict=True)
    )


def _same_tensor(a: Any, b: Any) -> bool:
    """Returns whether both are one tensor, or constants that a step makes anew."""
    if a is b or not all(isinstance(leaf, Tensor) and not isinstance(leaf, nn.Parameter) for leaf in (a, b)):
        return a is b
    return a.shape == b.shape and a.dtype == b.dtype and torch.equal(a, b)


def _as_slices(call: Call, trace: NetTrace, steps: int) -> dict[int, tuple[Slice, int]] | None:
    """Numbers of tensors that are parts of a sequence, from a call such as `x[t]`, `x[:, t]`, or `for step in x`."""
    if not call.args or not isinstance(call.args[0], Ref) or len(call.refs) != 1:
        return None
    value, name = call.args[0].value, call.name
    shape = trace.shapes[value]
    if name in ("unbind", "__iter__"):
        args, kwargs = pytree.tree_unflatten(call.args, call.spec)
        dim = kwargs.get("dim", args[1] if len(args) > 1 else 0)
        if shape[dim] != steps:
            return None
        return {n: (Slice(value, dim), t) for t, n in enumerate(call.outputs) if n is not None}
    if name not in ("__getitem__", "select"):
        return None
    args, _ = pytree.tree_unflatten(call.args, call.spec)
    dim, at = (args[1], args[2]) if name == "select" else _one_index(args[1])
    number = call.outputs[0]
    if number is None or not isinstance(at, int) or not 0 <= at < steps or shape[dim] < steps:
        return None
    return {number: (Slice(value, dim), at)}


def _one_index(index: Any) -> tuple[int, int | None]:
    """(dimension, index) of `x[3]` or `x[:, 3]`; no index for any other."""
    if isinstance(index, int):
        return 0, index
    parts = index if isinstance(index, tuple) else ()
    numbers = [number for number, part in enumerate(parts) if isinstance(part, int)]
    if len(numbers) != 1 or any(part != slice(None) for part in parts[: numbers[0]]):
        return 0, None
    if any(part not in (slice(None), Ellipsis) for part in parts[numbers[0] + 1 :]):
        return 0, None
    return numbers[0], parts[numbers[0]]
