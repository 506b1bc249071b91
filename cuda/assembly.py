"""Disassembly of a kernel: its instructions, its loops, and the instructions per neuron and step.

A GPU issues one instruction of a warp per cycle and scheduler, so instructions per element and bytes per element decide
together how near a kernel comes to the memory's speed (docs/measurements/cuda.md has the formula).
"""

from __future__ import annotations

import re
from typing import NamedTuple


class Instruction(NamedTuple):
    """An instruction without its predicate, such as `LDG.E.128`, and the whole text."""

    address: int
    name: str
    text: str


_LINE = re.compile(r"\s*/\*([0-9a-f]{4,})\*/\s+((?:@!?U?P\w+\s+)?(\S+).*?)\s*;")
_BACK = re.compile(r"BRA\S*\s.*?0x([0-9a-f]+)")


def functions(assembly: str) -> dict[str, list[Instruction]]:
    """Instructions of every kernel in what cuobjdump prints."""
    found: dict[str, list[Instruction]] = {}
    now: list[Instruction] = []
    for line in assembly.splitlines():
        if "Function : " in line:
            now = found.setdefault(line.partition("Function : ")[2], [])
        elif match := _LINE.match(line):
            now.append(Instruction(int(match[1], 16), match[3], match[2]))
    return found


def loops(kernel: list[Instruction]) -> list[list[Instruction]]:
    """Bodies of the innermost loops, which branch back to an earlier address."""
    ends = []
    for step in kernel:
        target = _BACK.search(step.text)
        if target and int(target[1], 16) < step.address:
            ends.append((int(target[1], 16), step.address))
    inner = [
        (first, last)
        for first, last in ends
        if not any((first, last) != other and first <= other[0] and other[1] <= last for other in ends)
    ]
    return [[step for step in kernel if first <= step.address <= last] for first, last in inner]


def count(body: list[Instruction], name: str) -> int:
    """How often an instruction stands there, by the first part of its name."""
    return sum(step.name.partition(".")[0] == name for step in body)


class Phase(NamedTuple):
    """A loop over time steps: what it must and may not hold, and which instruction it has `per_step` times a step."""

    holds: tuple[str, ...]
    without: tuple[str, ...]
    counted: str
    per_step: int = 1


# Forward: loads a pack and stores a pack. Backward: asynchronous copies; the recurrence with its reciprocals (the loop
# with calls has exact divisions, and runs where a number is beyond the range of the others); the two signals.
FORWARD = (Phase(("LDG", "STG"), (), "LDG"),)
BACKWARD = (
    Phase(("LDGSTS",), (), "LDGSTS", 2),
    Phase(("MUFU", "STS"), ("CALL",), "STS"),
    Phase(("LDS", "STG"), (), "LDS"),
)
# Backward of linear neurons, which loads straight into registers: the repeated recurrence, and the adjoint with a
# surrogate gradient that does not divide.
REPEATED = Phase(("LDG", "STS"), (), "LDG")
ADJOINT = (REPEATED, Phase(("LDS", "LDG", "STG", "FMNMX"), ("CALL", "MUFU"), "STG"))
RECIPROCAL_ADJOINT = (REPEATED, Phase(("LDS", "LDG", "STG", "FMNMX", "MUFU"), ("CALL",), "STG"))
# The adjoint of neurons of several states, whose loop holds all surrogate gradients but those with exp, which it calls.
ANY_ADJOINT = (REPEATED, Phase(("LDS", "LDG", "STG"), (), "STG"))
# Scans with their pool: a thread loads as many packs of cells per step, and stores them backward, as there are rows in
# a window, or in channels-last cells.
POOLED_FORWARD, POOLED_LAST_FORWARD = ((Phase(("LDG", "STG"), (), "LDG", packs),) for packs in (2, 4))
POOLED_ADJOINT, POOLED_LAST_ADJOINT = (
    (
        Phase(("LDG", "STS"), (), "LDG", packs),
        Phase(("LDS", "LDG", "STG", "FMNMX"), ("CALL", "MUFU"), "STG", packs),
    )
    for packs in (2, 4)
)
# SRM neurons with their pool: the repeated recurrence with its reciprocals, and one or two signals.
POOLED_WEIGHT_CREDIT, POOLED_CREDIT = (
    (Phase(("LDG", "STS", "MUFU"), (), "LDG", 3), Phase(("LDS", "STG"), ("LDG",), "STG", 2 * signals))
    for signals in (1, 2)
)
# Sums of recurrent neurons, in the place of steps: of the rows of weights or signals of a list of events, and of the
# products of a column of weights with a signal.
EVENTS = (Phase(("LDG", "LDS", "FMUL"), ("STG", "STS"), "LDG"),)


def per_step(kernel: list[Instruction], phases: tuple[Phase, ...]) -> float:
    """Instructions per time step of a thread, in the shortest of the loops that take most steps at a time.

    Others are for options that few nets have.
    """
    bodies = loops(kernel)
    total = 0.0
    for phase in phases:
        costs = [
            (count(body, phase.counted) / phase.per_step, -len(body))
            for body in bodies
            if all(count(body, name) for name in phase.holds)
            and not any(count(body, name) for name in phase.without)
        ]
        if not costs:
            raise ValueError(f"expected a loop with {' and '.join(phase.holds)}, got none")
        steps, length = max(costs)
        total -= length / steps
    return total
