"""Programs in torch, node by node and step by step: the reference of the machine.

Comparisons are 1 or 0, as in the machine. Backward keeps the states of all steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from snnlib.backends.native import state_dtype
from snnlib.backends.program import Program, Step
from snnlib.backends.surrogate import SHAPES
from snnlib.checks import step_shape

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


def _begin(current: Tensor, neuron: ProgramKernel, time_dim: int) -> tuple[Tensor, list[Tensor], _Values]:
    """Returns currents `[T, N, ...]` in the dtype of states, the first states, and the values of nodes."""
    steps = current.to(state_dtype(current)).movedim(time_dim, 0)
    start = neuron.state
    if start is None:
        start = steps.new_zeros((neuron.states, *step_shape(current.shape, time_dim)))
    values = _Values(neuron.step.program, start[0], neuron.constants)
    return steps, list(start), values


def _leaves(step: Step, x: Tensor, states: Iterable[Tensor]) -> dict[tuple[str, Any], Tensor]:
    return {("x", None): x, **{("y", k): y for k, y in enumerate(states)}}


def forward(current: Tensor, neuron: ProgramKernel, time_dim: int) -> tuple[Tensor, Tensor]:
    """Returns the value of every step and the last state."""
    steps, states, values = _begin(current, neuron, time_dim)
    found = []
    for x in steps:
        value, *states = values.of(neuron.step.results, _leaves(neuron.step, x, states), x)
        found.append(value)
    value = torch.stack(found) if found else steps
    return value.movedim(0, time_dim), torch.stack(states)


def backward(
    grad_value: Tensor, grad_state: Tensor | None, current: Tensor, neuron: ProgramKernel, time_dim: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns dL/dcurrent, dL/dconstants `[learned, N, ...]` of every neuron, and dL/dstate before the first step."""
    steps, states, values = _begin(current, neuron, time_dim)
    step, adjoint = neuron.step, neuron.adjoint
    before = []
    for x in steps:
        before.append(states)
        states = values.of(step.after, _leaves(step, x, states), x)
    carry = (
        [torch.zeros_like(state) for state in states] if grad_state is None else list(grad_state.to(steps))
    )
    sums = steps.new_zeros((len(adjoint.constants), *steps.shape[1:]))
    found = []
    for x, q, y in zip(
        reversed(steps), reversed(grad_value.to(steps).movedim(time_dim, 0)), reversed(before), strict=True
    ):
        leaves = {**_leaves(step, x, y), ("q", None): q, **{("g", k): g for k, g in enumerate(carry)}}
        grad, *parts = values.of(adjoint.results, leaves, x)
        carry, rows = parts[: neuron.states], parts[neuron.states :]
        if rows:
            sums = sums + torch.stack(rows)
        found.append(grad)
    grads = torch.stack(found[::-1]) if found else steps
    return grads.movedim(0, time_dim), sums, torch.stack(carry)
