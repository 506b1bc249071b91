"""Differences of two tensors, neuron by neuron: spikes that moved, appeared and vanished, or potentials far apart."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from snnlib.testing.golden import Spikes

# A spike that went and one that came in the same neuron count as one that moved if they are this near. Farther apart
# they have little to do with each other, and in a long sequence every pair would be a move.
FARTHEST_MOVE = 10
NONE = -1

Potentials = NDArray[np.floating[Any]]

_SHOWN = 8
# Axis names by number of axes.
_AXES = {2: "TN", 3: "TNC", 4: "TNCL", 5: "TNCHW", 6: "TNCDHW"}


class Difference(ABC):
    """Changes of a tensor `[T, N, ...]`: a text of the first ones, and a line for each.

    Args:
        shape: of the tensor.
        neurons: flat index into `[N, ...]` of each change.
    """

    def __init__(self, shape: tuple[int, ...], neurons: NDArray[np.int64]) -> None:
        self.shape, self._neurons = shape, neurons

    def __len__(self) -> int:
        return len(self._neurons)

    @property
    def is_cut(self) -> bool:
        """Returns whether the text leaves changes out."""
        return len(self) > _SHOWN

    @abstractmethod
    def summary(self) -> str:
        """Counts, on one line."""

    @abstractmethod
    def lines(self) -> list[str]:
        """Every change with its coordinates, the earliest first."""

    def __str__(self) -> str:
        lines = [self.summary()]
        if len(self) > 1:
            lines.append(f"  {places_text(self.shape, self._neurons)}")
        lines += [f"  {line}" for line in self.lines()[:_SHOWN]]
        if self.is_cut:
            lines.append(f"  and {len(self) - _SHOWN} more")
        return "\n".join(lines)


class SpikeDiff(Difference):
    """The changes from `expected` to `actual`, spike tensors `[T, N, ...]` of one shape.

    Attributes:
        changes: `[changes, 3]`, rows (neuron, old step, new step) with the earliest first. The neuron is a flat index
            into `[N, ...]`; the old step is `NONE` for a spike that appeared, the new one for a spike that vanished.
            Spikes are paired nearest first; of two equally near ones the later.

    >>> before, after = np.zeros((2, 5, 1, 2), dtype=bool)
    >>> before[1, 0, 0] = after[2, 0, 0] = after[4, 0, 1] = True
    >>> diff = SpikeDiff(before, after)
    >>> diff.changes.tolist()
    [[0, 1, 2], [1, -1, 4]]
    >>> print(diff)
    2 spikes, expected 1: 1 moved by 1 step (0 earlier, 1 later), 1 appeared, 0 vanished
      all in N=0; changes per channel: C=0: 1, C=1: 1
      [T=1, N=0, C=0] moved to T=2
      [T=4, N=0, C=1] appeared
    """

    def __init__(self, expected: Spikes, actual: Spikes) -> None:
        self.expected, self.actual = expected, actual
        self.changes = _changes(expected, actual)
        super().__init__(expected.shape, self.changes[:, 0])

    def summary(self) -> str:
        """Counts, on one line."""
        _, old, new = self.changes.T
        shift = (new - old)[(old != NONE) & (new != NONE)]
        distance = np.abs(shift)
        by = ""
        if len(shift):
            low, high = distance.min(), distance.max()
            steps = f"{low} to {high} steps" if low < high else f"{low} step{'s' * bool(low > 1)}"
            by = f" by {steps} ({np.sum(shift < 0)} earlier, {np.sum(shift > 0)} later)"
        return (
            f"{self.actual.sum()} spikes, expected {self.expected.sum()}: {len(shift)} moved{by}, "
            f"{np.sum(old == NONE)} appeared, {np.sum(new == NONE)} vanished"
        )

    def lines(self) -> list[str]:
        """Every change with its coordinates, the earliest first."""
        return [self._describe(*change) for change in self.changes]

    def _describe(self, neuron: int, old: int, new: int) -> str:
        if old == NONE:
            return f"{index_text(self.shape, neuron, new)} appeared"
        where = index_text(self.shape, neuron, old)
        return f"{where} vanished" if new == NONE else f"{where} moved to T={new}"


class PotentialDiff(Difference):
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
        self._places = np.argwhere(self.distance.reshape(len(expected), -1) > tolerance)
        super().__init__(expected.shape, self._places[:, 1])

    def summary(self) -> str:
        """How many are too far apart, and where they are farthest."""
        worst = int(self.distance.argmax())
        step, neuron = divmod(worst, self.distance[0].size)
        return (
            f"{len(self)} of {self.distance.size} values differ by more than {self.tolerance:g}, by at most "
            f"{self.distance.flat[worst]:.3g} at {index_text(self.shape, neuron, step)}"
        )

    def lines(self) -> list[str]:
        """Every difference with its coordinates, the earliest first."""
        actual, expected = (values.reshape(len(values), -1) for values in (self.actual, self.expected))
        return [
            f"{index_text(self.shape, int(neuron), int(step))} {actual[step, neuron]:.6g}, "
            f"expected {expected[step, neuron]:.6g}"
            for step, neuron in self._places
        ]


def index_text(shape: tuple[int, ...], neuron: int, step: int | None = None) -> str:
    """The index of a neuron, and a step, in a sequence of `shape`: `[T=5, N=0, C=3]`."""
    names = _axis_names(len(shape))
    index = [step, *np.unravel_index(neuron, shape[1:])]
    return f"[{', '.join(f'{name}={i}' for name, i in zip(names, index, strict=True) if i is not None)}]"


def places_text(shape: tuple[int, ...], neurons: NDArray[np.int64]) -> str:
    """Returns what the places of changes have in common, and how many changes each channel has.

    Args:
        shape: of the tensor, `[T, N, ...]`.
        neurons: flat index into `[N, ...]` of each change.

    >>> places_text((9, 2, 4, 5), np.array([15, 16, 18]))
    'all in N=0, C=3'
    >>> places_text((9, 2, 4), np.array([0, 1, 1, 5]))
    'changes per channel: C=1: 3, C=0: 1'
    """
    names = _axis_names(len(shape))[1:]
    columns = np.unravel_index(neurons, shape[1:])
    common = [
        f"{name}={column[0]}"
        for name, column in zip(names, columns, strict=True)
        if (column == column[0]).all()
    ]
    parts = [f"all in {', '.join(common)}"] if common else []
    if len(columns) > 1 and (columns[1] != columns[1][0]).any():
        channels, counts = np.unique(columns[1], return_counts=True)
        order = np.argsort(-counts, kind="stable")
        listed = [f"C={channels[i]}: {counts[i]}" for i in order[:_SHOWN]]
        more = f" and {len(order) - _SHOWN} channels more" if len(order) > _SHOWN else ""
        parts.append(f"changes per channel: {', '.join(listed)}{more}")
    return "; ".join(parts) or "in several samples"


def _axis_names(dims: int) -> list[str]:
    return list(_AXES.get(dims) or ["T", "N", *(f"axis {axis}" for axis in range(2, dims))])


def _changes(expected: Spikes, actual: Spikes) -> NDArray[np.int64]:
    flat = (len(expected), math.prod(expected.shape[1:]))
    went, came = (expected & ~actual).reshape(flat), (actual & ~expected).reshape(flat)
    changed = np.flatnonzero((went | came).any(axis=0))
    went, came = went[:, changed], came[:, changed]
    rows = [np.empty((3, 0), dtype=np.int64)]
    for distance in range(1, min(len(expected), FARTHEST_MOVE + 1)):
        early, late = slice(None, -distance), slice(distance, None)
        for old, new, shift in ((early, late, distance), (late, early, -distance)):
            moved = went[old] & came[new]
            went[old] ^= moved
            came[new] ^= moved
            step, neuron = moved.nonzero()
            step += old.start or 0
            rows.append(np.stack((neuron, step, step + shift)))
    for left, column in ((went, 1), (came, 2)):
        step, neuron = left.nonzero()
        row = np.full((3, len(step)), NONE)
        row[0], row[column] = neuron, step
        rows.append(row)
    neuron, old_steps, new_steps = np.concatenate(rows, axis=1)
    first = np.where(old_steps == NONE, new_steps, old_steps)
    order = np.lexsort((neuron, first))
    return np.stack((changed[neuron], old_steps, new_steps), axis=1)[order]
