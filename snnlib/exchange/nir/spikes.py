"""Spikes of two runs, compared one by one."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from snnlib.structure.cells import Array


class SpikeCounts(NamedTuple):
    """Numbers of spikes that two runs have, and share.

    Args:
        matched: spikes at the same step, sample and neuron.
        missing: spikes of the first run alone.
        extra: spikes of the second run alone.
        first: step, sample and neuron of the first difference; None without one.
    """

    matched: int
    missing: int
    extra: int
    first: tuple[int, ...] | None

    @classmethod
    def of(cls, expected: Array, found: Array) -> SpikeCounts:
        """Compare spike tensors `[T, N, ...]`; several spikes in a step count by their number."""
        a, b = np.rint(expected), np.rint(found)
        both = np.minimum(a, b)
        differ = np.argwhere(a != b)
        first = tuple(int(i) for i in differ[0]) if len(differ) else None
        return cls(int(both.sum()), int((a - both).sum()), int((b - both).sum()), first)

    @property
    def total(self) -> int:
        """Spikes of either run, those of both once."""
        return self.matched + self.missing + self.extra

    @property
    def identical(self) -> float:
        """`matched / total`; 1 without any spike."""
        return self.matched / self.total if self.total else 1.0

    def __str__(self) -> str:
        if not self.total:
            return "no spike in either, so nothing was compared"
        text = f"{self.matched} alike, {self.missing} missing, {self.extra} extra ({self.identical:.4%} identical)"
        if self.first is not None:
            step, sample, *neuron = self.first
            text += f"; first at step {step}, sample {sample}, neuron {tuple(neuron)}"
        return text
