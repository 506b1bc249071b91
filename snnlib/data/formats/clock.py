"""Times of cameras whose clocks begin again at 0 after a period."""

from __future__ import annotations

import numpy as np

from snnlib.data.formats.event_file import Array


class Unwrapper:
    """Makes the times of a clock of `period` steps count on: a fall by more than half of it is a wrap."""

    def __init__(self, period: int) -> None:
        self.period = period
        self._last: int | None = None
        self._base = 0

    def __call__(self, times: Array) -> Array:
        """Times `[n]` of unsigned integers that count on from those of earlier calls."""
        if times.size == 0:
            return times
        half = self.period // 2
        first = int(times[0]) if self._last is None else self._last
        self._last = int(times[-1])
        # The extremes say whether there can be a wrap; almost no chunk has one.
        if max(int(times.max()), first) - min(int(times.min()), first) <= half:
            return times.astype(np.int64) + self._base if self._base else times
        wide = times.astype(np.int64)
        falls = np.diff(wide, prepend=first)
        turns = self._base // self.period + np.cumsum((falls < -half).astype(np.int64) - (falls > half))
        # A rise can step back over a wrap only where one came before; else it is a long pause.
        turns -= np.minimum(np.minimum.accumulate(turns), 0)
        wide += self.period * turns
        self._base = self.period * int(turns[-1])
        return wide
