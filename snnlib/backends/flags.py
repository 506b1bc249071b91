"""Options of neurons of the linear family, as kernels take them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from snnlib.backends.levels import Levels
from snnlib.backends.memo import once
from snnlib.backends.surrogate import KINDS, SPREADS

# Steps that a state in float32 counts one by one.
LONGEST_REFRACTORY = 1 << 24
# Whole numbers that float32 holds one by one.
MOST_LEVELS = 1 << 24


class Flags(NamedTuple):
    """Options of a call; `Dynamics.options`."""

    kind: int
    strict: bool
    detach_reset: bool
    detach_jump: bool
    reset_next: bool
    membrane: bool
    through_time: bool
    rectified: bool
    quadratic: bool
    # Options from here on have defaults, so that callers may leave their numbers out.
    fixed_point: bool = False
    # Steps, -1 for all of them; in the state the steps that are left.
    refractory: int = 0
    # Most spikes in a step, -1 for no bound; beyond 1 whether they are rounded, and the place of `SPREADS` of the
    # surrogate.
    levels: int = 1
    rounds: bool = False
    spread: int = 0

    @property
    def graded(self) -> bool:
        """Returns whether a step can have several spikes."""
        return self.levels != 1

    @property
    def levels_of(self) -> Levels:
        """Returns the rule of the numbers of spikes."""
        return Levels(self.levels if self.levels > 0 else math.inf, self.rounds)

    @classmethod
    @once
    def of(cls, numbers: Sequence[int]) -> Flags:
        """Returns the options from numbers in the order of the fields, those that have a default left out or not."""
        count = len(cls._fields)
        given = dict(zip(cls._fields, numbers, strict=False))
        bounds = {
            "kind": (0, len(KINDS) - 1),
            "refractory": (-1, LONGEST_REFRACTORY),
            "levels": (-1, MOST_LEVELS),
            "spread": (0, len(SPREADS) - 1),
        }
        fits = count - len(cls._field_defaults) <= len(numbers) <= count and given.get("levels") != 0
        for name, number in given.items():
            least, most = bounds.get(name, (0, 1))
            fits = fits and least <= number <= most
        if not fits:
            ranges = ", ".join(f"{name} from {least} to {most}" for name, (least, most) in bounds.items())
            raise ValueError(
                f"flags: expected {count} numbers, {', '.join(cls._fields)}: {ranges}, levels not 0, all others 0 or "
                f"1, got {list(numbers)}"
            )
        whole = {name: number if name in bounds else bool(number) for name, number in given.items()}
        return cls(**whole)  # type: ignore[arg-type]
