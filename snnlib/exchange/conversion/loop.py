"""A folded loop over time: the calls of one step, and where each of their arguments comes from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from snnlib.exchange.conversion.trace import Call


class CannotFold(ValueError):  # noqa: N818 - an answer
    """Raised where a trace is no loop over equal steps.

    Args:
        reason: where steps differ.
        own_state: whether a module with a state of its own may be the cause.
    """

    def __init__(self, reason: str, own_state: bool = True) -> None:
        super().__init__(reason)
        self.own_state = own_state


@dataclass(frozen=True)
class Slice:
    """The step's part of a sequence: `value` at index t of dimension `dim`."""

    value: int
    dim: int


@dataclass(frozen=True)
class StepValue:
    """A tensor of the step: output `out` of the step's call number `call`."""

    call: int
    out: int


@dataclass(frozen=True)
class Previous:
    """Tensor of the previous step; in the first step the initial value."""

    of: StepValue


@dataclass(frozen=True)
class RunningSum:
    """The sum of a value over all steps, on top of an initial value (a `Ref`, a constant or None)."""

    of: StepValue
    initial: Any = None


@dataclass(frozen=True)
class StackOverTime:
    """A step value of all steps along dimension `dim`."""

    of: StepValue
    dim: int


@dataclass(frozen=True)
class AtStep:
    """A step value in one step."""

    of: StepValue
    step: int


@dataclass
class Loop:
    """The folded trace.

    Args:
        steps: number of steps in the trace.
        before: calls that do not depend on the step.
        step: calls of one step; arguments are `Ref`, `Slice`, `StepValue`, `Previous` or constants.
        after: calls on what the loop gave; arguments are `Ref`, `RunningSum`, `StackOverTime`, `AtStep` or constants.
        output: leaves of the net's result, as the arguments of `after`.
    """

    steps: int
    before: list[Call]
    step: list[Call]
    after: list[Call]
    output: list[Any]

    @property
    def slices(self) -> list[Slice]:
        """Sequences that are cut into steps, as often as a call reads one."""
        return [leaf for call in self.step for leaf in call.args if isinstance(leaf, Slice)]

    def batch(self, shape_of: Callable[[int], torch.Size], first_input: int) -> int:
        """Size of the batch, by the shapes of the tensors of these numbers."""
        for cut in self.slices:
            shape = shape_of(cut.value)
            return shape[1 - cut.dim] if cut.dim < 2 <= len(shape) else shape[0]
        return shape_of(first_input)[0]
