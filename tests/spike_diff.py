"""Says in words how two spike trains differ: which neuron, which step, and whether spikes came, went or moved."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Spikes = NDArray[np.bool_]
SHOWN = 8
AXES = {1: ("n",), 2: ("n", "c"), 3: ("n", "c", "x"), 4: ("n", "c", "y", "x")}


class Change(NamedTuple):
    step: int
    neuron: tuple[int, ...]
    text: str


def _neuron_changes(expected: Spikes, actual: Spikes, neuron: tuple[int, ...]) -> Iterator[Change]:
    """A spike that went and one that came in the same neuron are one spike that moved, nearest first in time."""
    went = np.flatnonzero(expected & ~actual).tolist()
    came = np.flatnonzero(actual & ~expected).tolist()
    while went and came:
        old, new = min(((a, b) for a in went for b in came), key=lambda pair: abs(pair[0] - pair[1]))
        went.remove(old)
        came.remove(new)
        yield Change(old, neuron, f"moved to step {new}")
    for step in went:
        yield Change(step, neuron, "vanished")
    for step in came:
        yield Change(step, neuron, "appeared")


def changes(expected: Spikes, actual: Spikes) -> list[Change]:
    """All changes of trains `[T, N, ...]`, earliest first."""
    found: list[Change] = []
    for neuron in zip(*np.nonzero((expected != actual).any(axis=0)), strict=True):
        index = tuple(int(i) for i in neuron)
        found += _neuron_changes(expected[(slice(None), *index)], actual[(slice(None), *index)], index)
    return sorted(found, key=lambda change: change[:2])


def describe(layer: str, expected: Spikes, actual: Spikes) -> str:
    """Empty if equal; else a count and the first changes, the place where a cause is to be looked for."""
    if expected.shape != actual.shape:
        return f"{layer}: spikes have shape {actual.shape}, expected {expected.shape}"
    found = changes(expected, actual)
    if not found:
        return ""
    counts = {
        kind: sum(change.text.startswith(kind) for change in found)
        for kind in ("appeared", "vanished", "moved")
    }
    head = ", ".join(f"{count} {kind}" for kind, count in counts.items())
    lines = [f"{layer}: of {int(expected.sum())} spikes {head}"]
    for change in found[:SHOWN]:
        names = AXES.get(len(change.neuron), tuple(f"axis {i}" for i in range(len(change.neuron))))
        where = ", ".join(f"{name}={i}" for name, i in zip(names, change.neuron, strict=True))
        lines.append(f"  step {change.step}, neuron ({where}): {change.text}")
    if len(found) > SHOWN:
        lines.append(f"  and {len(found) - SHOWN} more")
    return "\n".join(lines)
