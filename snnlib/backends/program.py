"""Programs: one time step of a neuron as a straight line of pointwise operations, and its adjoint.

A program is a list of nodes, each an operation on earlier nodes. Its leaves are the current `x`, the states before the
step `y`, constants that all neurons of a channel share `const`, and numbers `lit`; those of an adjoint are also the
gradients of the value `q` and of the states after the step `g`. Two operations pass a value on and change its gradient
alone: `detach` stops it, and `spike` of a distance, spikes and a slope is the spikes, with the slope as their
derivative by the distance.

`snnlib.neurons.program` makes programs from a `step`, `snnlib.neurons.adjoint` differentiates them,
`snnlib.backends.machine` gives them as codes to the kernels of cpp/include/snnlib/program/machine.h, and
`snnlib.backends.reference.program` runs them in torch.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

# Operations that pass the value of this operand on.
PASSES_ON = {"detach": 0, "spike": 1}
LEAVES = frozenset({"x", "y", "const", "lit", "q", "g"})
# Operations whose derivative is 0.
FLAT = frozenset(
    {"lt", "le", "gt", "ge", "eq", "ne", "fired", "fired_above", "floor", "ceil", "round", "sign"}
)


class Node(NamedTuple):
    """An operation on earlier nodes.

    Args:
        op: its name.
        args: numbers of its operands.
        value: number of a `lit`; index of a `y`, `g` or `const`; of a clamp, whether its gradient stops at the bound.
    """

    op: str
    args: tuple[int, ...] = ()
    value: float | None = None


class Program:
    """Nodes in the order in which they can run; equal nodes are one."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self._known: dict[tuple[str, tuple[int, ...], str], int] = {}

    def add(self, op: str, *args: int, value: float | None = None) -> int:
        """Returns the number of a node, which is added unless an equal one is there."""
        same = self._unchanged(op, args)
        if same is not None:
            return same
        # 0.0 and -0.0 are equal, and NaN is not equal to itself.
        key = (op, args, repr(value))
        if key not in self._known:
            self._known[key] = len(self.nodes)
            self.nodes.append(Node(op, args, value))
        return self._known[key]

    def literal(self, value: float) -> int:
        """Returns the node of a number."""
        return self.add("lit", value=float(value))

    def power(self, a: int, b: int) -> int:
        """Returns the node of `a^b`, by products, quotients and roots for the exponents for which torch takes these."""
        roots = {0.5: ("sqrt",), -0.5: ("sqrt", "reciprocal"), -1: ("reciprocal",), -2: ("mul", "reciprocal")}
        exponent = self.nodes[b].value if self.nodes[b].op == "lit" else None
        if exponent == 0:
            return self.literal(1)
        if exponent in (1, 2, 3):
            found = a
            for _ in range(int(exponent) - 1):
                found = self.add("mul", found, a)
            return found
        for op in roots.get(exponent or 0, ()):
            a = self.add(op, a, a) if op == "mul" else self.add(op, a)
        return a if exponent in roots else self.add("pow", a, b)

    def _unchanged(self, op: str, args: tuple[int, ...]) -> int | None:
        """Returns the operand that an operation returns bit for bit, as `x * 1` and `x - 0` do."""
        if op not in ("sub", "mul", "div"):
            return None
        numbers = [self.nodes[i].value if self.nodes[i].op == "lit" else None for i in args]
        neutral = "0.0" if op == "sub" else "1.0"
        if repr(numbers[1]) == neutral:
            return args[0]
        return args[1] if op == "mul" and repr(numbers[0]) == neutral else None

    def source(self, i: int) -> int:
        """Returns the node whose value a node passes on; itself if it computes one."""
        while self.nodes[i].op in PASSES_ON:
            i = self.nodes[i].args[PASSES_ON[self.nodes[i].op]]
        return i

    def operands(self, i: int) -> tuple[int, ...]:
        """Returns the nodes whose values a node reads."""
        return tuple(map(self.source, self.nodes[i].args))

    def needed(self, roots: Iterable[int], given: Container[int] = ()) -> list[int]:
        """Returns the nodes that have to run for these values, in order, if the values of others are given."""
        wanted: set[int] = set()
        waiting = [self.source(i) for i in roots]
        while waiting:
            i = waiting.pop()
            if i in wanted or i in given or self.nodes[i].op in LEAVES:
                continue
            wanted.add(i)
            waiting += self.operands(i)
        return sorted(wanted)


@dataclass(frozen=True)
class Step:
    """Nodes of the results of a time step.

    Args:
        program: all nodes.
        value: the value of the step.
        after: the states after it.
        constants: number of constants.
    """

    program: Program
    value: int
    after: tuple[int, ...]
    constants: int

    @property
    def results(self) -> tuple[int, ...]:
        """Nodes of the value and the states."""
        return (self.value, *self.after)


@dataclass(frozen=True)
class Adjoint:
    """Nodes of the gradients of a time step, in the program of the step.

    Args:
        current: dL/dcurrent.
        states: dL/dstates before the step.
        constants: dL/dconstant by the index of the constant.
    """

    current: int
    states: tuple[int, ...]
    constants: Mapping[int, int]

    @property
    def results(self) -> tuple[int, ...]:
        """Nodes of all gradients."""
        return (self.current, *self.states, *self.constants.values())
