"""Programs in torch, node by node and step by step: the reference of the machine.

Comparisons are 1 or 0, as in the machine. Backward keeps the states of all steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from snnlib.backends.arguments import LinearKernel
from snnlib.backends.native import state_dtype
from snnlib.backends.program import Program
from snnlib.backends.reference import linear
from snnlib.backends.surrogate import SHAPES

if TYPE_CHECKING:
    from snnlib.backends.program_kernel import ProgramKernel

# Names of slopes, of a distance, the surrogate's scale and its height.
SLOPES: Mapping[str, str] = {"bump_sigmoid" if name == "sigmoid" else name: name for name in SHAPES}


def _fired(u: Tensor, above: Tensor) -> Tensor:
    return torch.where(above, 1.0, u - u)


def _compare(name: str) -> Callable[[Tensor, Tensor], Tensor]:
    compare = getattr(torch, name)
    return lambda a, b: compare(a, b).to(torch.result_type(a, b))


def _slope(kind: str) -> Callable[..., Tensor]:
    return lambda u, scale, height: height * SHAPES[kind]((u * scale).abs())


OPERATIONS: dict[str, Callable[..., Tensor]] = {
    **{
        name: getattr(torch, name)
        for name in ("add", "sub", "mul", "div", "maximum", "minimum", "neg", "pow")
    },
    **{
        name: getattr(torch, name)
        for name in ("reciprocal", "exp", "expm1", "log", "log1p", "sqrt", "sigmoid")
    },
    **{
        name: getattr(torch, name) for name in ("tanh", "sin", "cos", "abs", "floor", "ceil", "round", "sign")
    },
    **{name: _compare(name) for name in ("lt", "le", "gt", "ge", "eq", "ne")},
    "softplus": torch.nn.functional.softplus,
    "clamp_low": lambda a, low: torch.where(a < low, low, a),
    "clamp_high": lambda a, high: torch.where(a > high, high, a),
    "where": lambda chosen, a, b: torch.where(chosen != 0, a, b),
    "fired": lambda u: _fired(u, u >= 0),
    "fired_above": lambda u: _fired(u, u > 0),
    **{name: _slope(kind) for name, kind in SLOPES.items()},
}


class _Values:
    """Values of nodes of one step, from those of the leaves by operation and index."""

    def __init__(self, program: Program, like: Tensor, constants: Tensor) -> None:
        shape = (-1, *[1] * max(like.dim() - 2, 0))
        self._program = program
        self._fixed = {
            i: like.new_tensor(node.value)
            if node.op == "lit"
            else constants[int(node.value or 0)].reshape(shape)
            for i, node in enumerate(program.nodes)
            if node.op in ("lit", "const")
        }

    def of(
        self, roots: Iterable[int], leaves: Mapping[tuple[str, Any], Tensor], like: Tensor
    ) -> list[Tensor]:
        """Returns the values of nodes, each in the shape of a step."""
        p, roots = self._program, list(roots)
        values = dict(self._fixed)
        for i, node in enumerate(p.nodes):
            if (node.op, node.value) in leaves:
                values[i] = leaves[node.op, node.value]
        for i in p.needed(roots):
            values[i] = OPERATIONS[p.nodes[i].op](*(values[arg] for arg in p.operands(i)))
        return [values[p.source(i)].expand_as(like) for i in roots]


class Seen(NamedTuple):
    """A step that was run: its value and the states before it."""

    spike: Tensor
    before: list[Tensor]


class Walk:
    """Steps of neurons forward and back, as recurrence takes them."""

    def __init__(self, neuron: ProgramKernel, own: Tensor) -> None:
        self.neuron, self.values = neuron, _Values(neuron.step.program, own[0], neuron.constants)

    def run(self, currents: Iterable[Tensor], own: Tensor) -> tuple[list[Seen], list[Tensor]]:
        """Returns the steps from a state, and the state after them."""
        step, states, seen = self.neuron.step, list(own), list[Seen]()
        for x in currents:
            value, *after = self.values.of(step.results, _leaves(x, states), x)
            seen.append(Seen(value, states))
            states = after
        return seen, states

    def adjoint(self, own: Tensor, grad_state: Tensor | None) -> _Adjoint:
        """Returns the adjoint after the last step."""
        return _Adjoint(self, own, grad_state)


class _Adjoint:
    """dL/dstates from later steps, and the gradients of the constants so far."""

    def __init__(self, walk: Walk, own: Tensor, grad_state: Tensor | None) -> None:
        self._walk, self.zero = walk, torch.zeros_like(own[0])
        self._carry = list(torch.zeros_like(own) if grad_state is None else grad_state.to(own))
        self._sums = own.new_zeros((len(walk.neuron.learned), *own.shape[1:]))

    def slope(self, step: Seen) -> Tensor:
        """Returns 1: a program does not tell which gradients it reads."""
        return torch.ones_like(self.zero)

    def step(self, q: Tensor, x: Tensor, step: Seen) -> Tensor:
        """Goes a step back; returns dL/dx."""
        neuron = self._walk.neuron
        leaves = {
            **_leaves(x, step.before),
            ("q", None): q,
            **{("g", k): g for k, g in enumerate(self._carry)},
        }
        grad, *parts = self._walk.values.of(neuron.adjoint.results, leaves, x)
        self._carry, rows = parts[: neuron.states], parts[neuron.states :]
        if rows:
            self._sums = self._sums + torch.stack(rows)
        return grad

    def coefficients(self) -> Tensor:
        """Returns dL/dconstants `[learned, N, ...]` of every neuron."""
        return self._sums

    def state(self) -> Tensor:
        """Returns dL/dstate before the first step."""
        return torch.stack(self._carry)


def walk_of(neuron: LinearKernel | ProgramKernel, own: Tensor) -> linear.Walk | Walk:
    """Returns the steps of neurons with states `[K, N, ...]`."""
    return linear.Walk(neuron, own) if isinstance(neuron, LinearKernel) else Walk(neuron, own)


def _leaves(x: Tensor, states: Iterable[Tensor]) -> dict[tuple[str, Any], Tensor]:
    return {("x", None): x, **{("y", k): y for k, y in enumerate(states)}}


def _begin(current: Tensor, neuron: ProgramKernel) -> tuple[Tensor, Tensor]:
    """Returns currents `[T, N, ...]` in the dtype of states, and the first states."""
    steps = current.to(state_dtype(current))
    start = neuron.state
    if start is None:
        start = steps.new_zeros((neuron.states, *steps.shape[1:]))
    return steps, start


def forward(current: Tensor, neuron: ProgramKernel) -> tuple[Tensor, Tensor]:
    """Returns the value of every step and the last state."""
    steps, start = _begin(current, neuron)
    seen, states = Walk(neuron, start).run(steps, start)
    return torch.stack([step.spike for step in seen]) if seen else steps, torch.stack(states)


def backward(
    grad_value: Tensor, grad_state: Tensor | None, current: Tensor, neuron: ProgramKernel
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns dL/dcurrent, dL/dconstants `[learned, N, ...]` of every neuron, and dL/dstate before the first step."""
    steps, start = _begin(current, neuron)
    walk = Walk(neuron, start)
    seen, _ = walk.run(steps, start)
    adjoint, signals = walk.adjoint(start, grad_state), grad_value.to(steps)
    found = [adjoint.step(signals[t], steps[t], seen[t]) for t in reversed(range(len(seen)))]
    grads = torch.stack(found[::-1]) if found else steps
    return grads, adjoint.coefficients(), adjoint.state()
