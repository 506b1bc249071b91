"""A net as a graph of operations."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from snnlib.exchange.structure.operations import Operation


@dataclass(frozen=True, eq=False)
class Step:
    """An operation of a net, and the value that it gives.

    Args:
        path: of the module in the net.
        where: the module's path and kind, for messages.
        part: what the operation is called within the module; empty where it is all of it.
        operation: what it does; None for the input of the net.
        sources: the steps whose values it reads.
    """

    path: str
    where: str
    part: str
    operation: Operation | None
    sources: tuple[Step, ...]


@dataclass
class Graph:
    """A net as steps, each after those that it reads.

    Args:
        input: the step that stands for the net's input.
        steps: all others, in the order of the calls.
        output: the step whose value the net gives.
    """

    input: Step
    steps: list[Step] = field(default_factory=list)
    output: Step | None = None

    def readers(self) -> Counter[Step]:
        """Returns how many steps read each step's value; the net's output counts as one."""
        read = Counter(source for step in self.steps for source in step.sources)
        return read + Counter([] if self.output is None else [self.output])
