"""Neurons whose step is a program, as their kernels take them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from snnlib import checks
from snnlib.backends.arguments import NeuronKernel, Neurons
from snnlib.backends.machine import Codes
from snnlib.backends.native import state_dtype
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
    runs_in_layer = records = records_states = pools = reorders = False
    recurs = True

    @property
    def states(self) -> int:
        """See `Neurons.states`."""
        return len(self.step.after)

    @property
    def learned(self) -> Sequence[int]:
        """See `Neurons.learned`."""
        return self.codes.learned

    def settings(self) -> dict[str, Any]:
        """Returns the fields of `ProgramFlags`."""
        codes, parts = self.codes, ("forward", "again", "back")
        counts = {"saved": codes.saved, "temporaries": codes.temporaries, "learned": len(codes.learned)}
        counts |= {"literals": len(codes.literals), "constants": codes.constants}
        literals = codes.literals.to(self.constants.dtype)
        programs = {
            name: {"numbers": getattr(codes, name), "count": len(getattr(codes, name))} for name in parts
        }
        return {**counts, "literal_values": literals, **programs}

    def check(self, channels: int, like: Tensor) -> None:
        """See `Neurons.check`."""
        # Literals have the constants' dtype.
        assert self.constants.dtype == state_dtype(like)
        if len(self.constants):
            checks.check_coefficients(self.constants, channels, like)

    def __str__(self) -> str:
        first, second, third = self.codes.instructions
        return f"a program of {first}, {second} and {third} instructions"


AnyKernel = NeuronKernel | ProgramKernel
