"""Differences of two tensors, neuron by neuron: spikes that moved, appeared and vanished, or potentials far apart."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

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


class Difference(NamedTuple):
    """Number of changes of a tensor, and a text that sums them up and names the first."""

    changes: int
    text: str


def spike_difference(expected: Spikes, actual: Spikes) -> Difference:
    """Returns the changes from `expected` to `actual`, spike tensors `[T, N, ...]` of one shape, the earliest first.

    >>> before, after = np.zeros((2, 5, 1, 2), dtype=bool)
    >>> before[1, 0, 0] = after[2, 0, 0] = after[4, 0, 1] = True
    >>> print(spike_difference(before, after).text)
    2 spikes, expected 1: 1 moved by 1 step (0 earlier, 1 later), 1 appeared, 0 vanished
      [T=1, N=0, C=0] moved to T=2
      [T=4, N=0, C=1] appeared
    """
    changes = spike_changes(expected, actual)
    _, old, new = changes.T
    shift = (new - old)[(old != NONE) & (new != NONE)]
    distance = np.abs(shift)
    by = ""
    if len(shift):
        low, high = distance.min(), distance.max()
        steps = f"{low} to {high} steps" if low < high else f"{low} step{'s' * bool(low > 1)}"
        by = f" by {steps} ({np.sum(shift < 0)} earlier, {np.sum(shift > 0)} later)"
    summary = (
        f"{actual.sum()} spikes, expected {expected.sum()}: {len(shift)} moved{by}, "
        f"{np.sum(old == NONE)} appeared, {np.sum(new == NONE)} vanished"
    )
    return _told(len(changes), summary, [_change_text(expected.shape, *row) for row in changes[:_SHOWN]])


def potential_difference(expected: Potentials, actual: Potentials, tolerance: float) -> Difference:
    """Returns the places where two tensors `[T, N, ...]` of one shape are farther apart than `tolerance`.

    NaN and infinity equal only themselves.

    >>> before = np.zeros((3, 1, 2))
    >>> after = before.copy()
    >>> after[1:, 0, 1] = 0.5, 0.25
    >>> print(potential_difference(before, after, tolerance=0.1).text)
    2 of 6 values differ by more than 0.1, by at most 0.5 at [T=1, N=0, C=1]
      [T=1, N=0, C=1] 0.5, expected 0
      [T=2, N=0, C=1] 0.25, expected 0
    """
    with np.errstate(invalid="ignore"):
        distance = np.abs(actual.astype(np.float64) - expected.astype(np.float64))
    same = (actual == expected) | (np.isnan(actual) & np.isnan(expected))
    # A distance that is NaN, as between NaN and 0, is infinite.
    distance = np.where(same, 0.0, np.where(np.isnan(distance), np.inf, distance))
    places = np.flatnonzero(distance > tolerance)
    if not len(places):
        return Difference(0, "")
    worst = int(distance.argmax())
    summary = (
        f"{len(places)} of {distance.size} values differ by more than {tolerance:g}, by at most "
        f"{distance.flat[worst]:.3g} at {_place(expected.shape, worst)}"
    )
    lines = [
        f"{_place(expected.shape, i)} {actual.flat[i]:.6g}, expected {expected.flat[i]:.6g}"
        for i in places[:_SHOWN]
    ]
    return _told(len(places), summary, lines)


def _told(changes: int, summary: str, lines: Sequence[str]) -> Difference:
    more = [f"and {changes - len(lines)} more"] * (changes > len(lines))
    return Difference(changes, "\n  ".join((summary, *lines, *more)))


def _place(shape: tuple[int, ...], place: int) -> str:
    step, neuron = divmod(place, math.prod(shape[1:]))
    return index_text(shape, neuron, step)


def _change_text(shape: tuple[int, ...], neuron: int, old: int, new: int) -> str:
    if old == NONE:
        return f"{index_text(shape, neuron, new)} appeared"
    where = index_text(shape, neuron, old)
    return f"{where} vanished" if new == NONE else f"{where} moved to T={new}"


def index_text(shape: tuple[int, ...], neuron: int, step: int | None = None) -> str:
    """Returns the index of a neuron, and a step, in a sequence of `shape`: `[T=5, N=0, C=3]`."""
    names = _AXES.get(len(shape)) or ["T", "N", *(f"axis {axis}" for axis in range(2, len(shape)))]
    index = [step, *np.unravel_index(neuron, shape[1:])]
    return f"[{', '.join(f'{name}={i}' for name, i in zip(names, index, strict=True) if i is not None)}]"


def spike_changes(expected: Spikes, actual: Spikes) -> NDArray[np.int64]:
    """Returns rows (neuron, old step, new step), the earliest change first.

    The neuron is a flat index into `[N, ...]`; the old step is `NONE` for a spike that appeared, the new one for a
    spike that vanished. Spikes are paired nearest first; of two equally near ones the later.

    >>> before, after = np.zeros((2, 5, 1, 2), dtype=bool)
    >>> before[1, 0, 0] = after[2, 0, 0] = after[4, 0, 1] = True
    >>> spike_changes(before, after).tolist()
    [[0, 1, 2], [1, -1, 4]]
    """
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
