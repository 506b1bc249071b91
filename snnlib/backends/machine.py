"""Codes of programs for the machine of cpp/include/snnlib/program/machine.h: registers, pairs and saved values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from snnlib.backends import native
from snnlib.backends.program import Adjoint, Program, Step

# A sum or product of the result of one of these, which nothing else reads, is one instruction with it.
_PAIRED = frozenset({"add", "sub", "mul"})
# Numbers of an instruction: operation, target, operands.
_NUMBERS = 5


@dataclass(frozen=True)
class Codes:
    """A step and its adjoint as the kernels take them.

    Args:
        literals: float64 numbers of the program.
        states, constants: of the step.
        saved: values of a step that its adjoint reads.
        temporaries: tiles of intermediate values.
        learned: indices of the constants that get a gradient.
        forward, again, back: instructions `[n, 5]` of a step, of a step that saves, and of the adjoint.
    """

    literals: Tensor
    states: int
    constants: int
    saved: int
    temporaries: int
    learned: tuple[int, ...]
    forward: Tensor
    again: Tensor
    back: Tensor

    @property
    def instructions(self) -> tuple[int, int, int]:
        """Number of instructions of `forward`, `again` and `back`."""
        return len(self.forward), len(self.again), len(self.back)


def compile_step(step: Step, adjoint: Adjoint) -> Codes:
    """Returns the codes of a step and its adjoint."""
    p, states = step.program, len(step.after)
    literals = [i for i, node in enumerate(p.nodes) if node.op == "lit"]
    after = [p.source(i) for i in step.after]
    forward = p.needed(step.results)
    # Values of the step that the adjoint reads, but for those that are states.
    given = set(forward)
    back = p.needed(adjoint.results, given)
    read = {arg for i in back for arg in p.operands(i)} | {p.source(i) for i in adjoint.results}
    saved = [i for i in forward if i in read and i not in after]
    r = _Registers(len(literals), step.constants, states, len(saved), len(adjoint.constants))
    leaves = {i: j for j, i in enumerate(literals)}
    kinds = {"x": r.current, "q": r.gradient, "y": r.before, "g": r.carry, "const": len(literals)}
    for i, (op, _, value) in enumerate(p.nodes):
        if op in kinds:
            leaves[i] = kinds[op] + int(value or 0)
    to_states = [(i, r.after + k) for k, i in enumerate(after)]
    to_saved = [(i, r.saved + k) for k, i in enumerate(saved)]
    to_value = [(p.source(step.value), r.value)]
    to_gradients = [(p.source(adjoint.current), r.value)]
    to_gradients += [(p.source(i), r.carried + k) for k, i in enumerate(adjoint.states)]
    known = {**dict(reversed(to_states)), **dict(to_saved), **leaves}
    parts = [
        _assemble(p, [*to_value, *to_states], leaves, r.temporary),
        _assemble(p, [*to_states, *to_saved], leaves, r.temporary),
        _assemble(p, to_gradients, known, r.temporary, [p.source(i) for i in adjoint.constants.values()]),
    ]
    temporaries = max(count for _, count in parts)
    codes = [_resolved(code, r.temporary + temporaries) for code, _ in parts]
    values = torch.tensor([p.nodes[i].value or 0.0 for i in literals], dtype=torch.float64)
    learned = tuple(adjoint.constants)
    return Codes(values, states, step.constants, len(saved), temporaries, learned, *codes)


class _Registers:
    """Numbers of the first register of each kind, in the order of cpp/include/snnlib/program/program.h."""

    def __init__(self, literals: int, constants: int, states: int, saved: int, learned: int) -> None:
        self.current = literals + constants
        self.gradient = self.current + 1
        self.before = self.gradient + 1
        self.after = self.before + states
        self.value = self.after + states
        self.carry = self.value + 1
        self.carried = self.carry + states
        self.saved = self.carried + states
        self.temporary = self.saved + saved


def _assemble(
    p: Program,
    outputs: Sequence[tuple[int, int]],
    leaves: Mapping[int, int],
    first: int,
    sums: Sequence[int] = (),
) -> tuple[list[list[int | str]], int]:
    """Returns instructions that write nodes to registers, and their number of temporaries.

    Args:
        p: the program.
        outputs: nodes and their registers.
        leaves: registers of the nodes that are there.
        first: register of the first temporary.
        sums: nodes that are added to sums; the registers of the sums, behind the temporaries, are -1, -2 and so on.
    """
    order = p.needed([*(i for i, _ in outputs), *sums], leaves)
    pairs = _pairs(p, order, {i for i, _ in outputs} | set(sums))
    reads = {i: _reads(p, i, pairs.get(i)) for i in order if i not in pairs.values()}
    last = {arg: i for i in reads for arg in reads[i]}
    targets = {i: register for i, register in reversed(outputs) if i not in leaves}
    where, free, count = dict(leaves), list[int](), 0
    code = list[list[int | str]]()
    for i, args in reads.items():
        registers = [where[arg] for arg in args]
        # The target may be the register of an operand that nothing reads later.
        stays = (*leaves, *targets, *sums)
        free += [where[arg] for arg in dict.fromkeys(args) if last[arg] == i and arg not in stays]
        if i not in targets and not free:
            free.append(first + count)
            count += 1
        where[i] = targets[i] if i in targets else free.pop()
        code.append(_instruction(_name(p, i, pairs.get(i)), where[i], registers))
    code += [_instruction("copy", to, [where[i]]) for i, to in outputs if where[i] != to]
    code += [_instruction("add", ~j, [~j, where[i]]) for j, i in enumerate(sums)]
    return code, count


def _pairs(p: Program, order: Sequence[int], kept: set[int]) -> dict[int, int]:
    """Returns which nodes are one instruction with an operand."""
    uses: dict[int, int] = {}
    for i in order:
        for arg in p.operands(i):
            uses[arg] = uses.get(arg, 0) + 1
    alone = {i for i in order if p.nodes[i].op in _PAIRED and uses.get(i) == 1 and i not in kept}
    pairs: dict[int, int] = {}
    for i in order:
        inner = [arg for arg in p.operands(i) if arg in alone and arg not in pairs]
        if p.nodes[i].op in _PAIRED and inner:
            pairs[i] = inner[0]
    return pairs


def _reads(p: Program, i: int, inner: int | None) -> list[int]:
    """Returns the operands of an instruction."""
    args = list(p.operands(i))
    if inner is None:
        return args
    args.remove(inner)
    return [*p.operands(inner), *args]


def _name(p: Program, i: int, inner: int | None) -> str:
    """Returns the operation of an instruction: `mul_rsub` is `c - a b`."""
    op = p.nodes[i].op
    if inner is None:
        return op
    turned = op == "sub" and p.operands(i)[1] == inner
    return f"{p.nodes[inner].op}_{'rsub' if turned else op}"


def _instruction(name: str, target: int, operands: Sequence[int]) -> list[int | str]:
    # Operands that an operation lacks name a register that is there.
    return [name, target, *operands, *[operands[0]] * (3 - len(operands))]


def _resolved(code: Sequence[Sequence[int | str]], sums: int) -> Tensor:
    """Returns instructions as numbers `[n, 5]`, with the registers of sums, the first of which is given.

    Without the compiled module operations have no numbers.
    """
    numbers = native.program_ops()
    rows = [
        [numbers.get(str(name), -1), *(sums + ~r if r < 0 else r for r in map(int, registers))]
        for name, *registers in code
    ]
    return torch.tensor(rows, dtype=torch.int32).reshape(-1, _NUMBERS)
