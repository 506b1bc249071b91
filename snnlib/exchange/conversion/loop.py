"""A folded loop over time: the calls of one step, and where each of their arguments comes from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from snnlib.exchange.conversion.trace import Call


class CannotFold(ValueError):  # noqa: N818 - an answer
    """Raised where a trace is no loop over equal steps."""


@dataclass(frozen=True)
class Slice:
    """The step's part of a sequence: `value` at index t of dimension `dim`."""

    value: int
    dim: int


@dataclass(frozen=True)
class Lane:
    """A tensor of the step: output `out` of the step's call number `call`."""

    call: int
    out: int


@dataclass(frozen=True)
class Before:
    """The same of the step before; in the first step it was the initial value."""

    lane: Lane


@dataclass(frozen=True)
class Total:
    """The sum of a lane over all steps, on top of an initial value (a `Ref`, a constant or None)."""

    lane: Lane
    initial: Any = None


@dataclass(frozen=True)
class Stacked:
    """A lane's values of all steps along dimension `dim`."""

    lane: Lane
    dim: int


@dataclass(frozen=True)
class At:
    """A lane's value in one step."""

    lane: Lane
    step: int


@dataclass
class Loop:
    """The folded trace.

    Args:
        steps: number of steps in the trace.
        before: calls that do not depend on the step.
        step: calls of one step; arguments are `Ref`, `Slice`, `Lane`, `Before` or constants.
        after: calls on what the loop gave; arguments are `Ref`, `Total`, `Stacked`, `At` or constants.
        output: leaves of the net's result, as the arguments of `after`.
    """

    steps: int
    before: list[Call]
    step: list[Call]
    after: list[Call]
    output: list[Any]
