"""Neurons whose step is a program, as their kernels take them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from snnlib import checks
from snnlib.backends.arguments import NeuronKernel, Neurons
from snnlib.backends.machine import Codes
from snnlib.backends.program import Adjoint, Step


@dataclass(frozen=True)
class ProgramKernel(Neurons):
    """Neurons whose step is a program: `ProgramArgs` of program/program.h.

    Args:
        constants: the program's constants `[P, C]`.
        step, adjoint: its nodes.
        codes: the same as instructions.
        state: before the first step `[K, N, ...]`; None: zero.
    """

    constants: Tensor
    step: Step
    adjoint: Adjoint
    codes: Codes
    state: Tensor | None = None

    family, constants_name, moves_spikes = "program", "constants", False
    flags: ClassVar[Sequence[int]] = ()
    taus: ClassVar[Sequence[float]] = ()
    runs_in_layer = records = records_states = pools = recurs = reorders = False

    @property
    def states(self) -> int:
        """See `Neurons.states`."""
        return len(self.step.after)

    def check(self, channels: int, like: Tensor) -> None:
        """See `Neurons.check`."""
        if len(self.constants):
            checks.check_coefficients(self.constants, channels, like)

    def __str__(self) -> str:
        first, second, third = self.codes.instructions
        return f"a program of {first}, {second} and {third} instructions"


AnyKernel = NeuronKernel | ProgramKernel
