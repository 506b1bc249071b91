"""Differences of two tensors of potentials: where they are farther apart than a tolerance, and by how much."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from snnlib.testing.diff import index_text, places_text

Potentials = NDArray[np.floating[Any]]
_SHOWN = 8


class PotentialDiff:
    """The places where `actual` is farther than `tolerance` from `expected`, tensors `[T, N, ...]` of one shape.

    NaN and infinity equal only themselves.

    >>> before = np.zeros((3, 1, 2))
    >>> after = before.copy()
    >>> after[1:, 0, 1] = 0.5, 0.25
    >>> print(PotentialDiff(before, after, tolerance=0.1))
    2 of 6 values differ by more than 0.1, by at most 0.5 at [T=1, N=0, C=1]
      all in N=0, C=1
      [T=1, N=0, C=1] 0.5, expected 0
      [T=2, N=0, C=1] 0.25, expected 0
    """

    def __init__(self, expected: Potentials, actual: Potentials, tolerance: float) -> None:
        self.expected, self.actual, self.tolerance = expected, actual, tolerance
        with np.errstate(invalid="ignore"):
            distance = np.abs(actual.astype(np.float64) - expected.astype(np.float64))
        same = (actual == expected) | (np.isnan(actual) & np.isnan(expected))
        # A distance that is no number, as between NaN and 0, is infinite.
        self.distance = np.where(same, 0.0, np.where(np.isnan(distance), np.inf, distance))
        # The earliest first: rows of (step, neuron).
        flat = self.distance.reshape(len(expected), -1)
        self.places = np.argwhere(flat > tolerance)

    def __len__(self) -> int:
        return len(self.places)

    @property
    def is_cut(self) -> bool:
        """Returns whether the text leaves differences out."""
        return len(self) > _SHOWN

    def lines(self) -> list[str]:
        """Every difference with its coordinates, the earliest first."""
        actual, expected = (values.reshape(len(values), -1) for values in (self.actual, self.expected))
        return [
            f"{index_text(self.expected.shape, int(neuron), int(step))} {actual[step, neuron]:.6g}, "
            f"expected {expected[step, neuron]:.6g}"
            for step, neuron in self.places
        ]

    def __str__(self) -> str:
        worst = int(self.distance.argmax())
        step, neuron = divmod(worst, self.distance[0].size)
        lines = [
            f"{len(self)} of {self.distance.size} values differ by more than {self.tolerance:g}, by at most "
            f"{self.distance.flat[worst]:.3g} at {index_text(self.expected.shape, neuron, step)}"
        ]
        if len(self) > 1:
            lines.append(f"  {places_text(self.expected.shape, self.places[:, 1])}")
        lines += [f"  {line}" for line in self.lines()[:_SHOWN]]
        if self.is_cut:
            lines.append(f"  and {len(self) - _SHOWN} more")
        return "\n".join(lines)
