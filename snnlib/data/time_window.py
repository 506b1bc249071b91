"""Warnings of a time window that does not fit: events after its end, or most events in one step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

# N-MNIST at 300 ms has 0.25 % late events; a window in the wrong unit or origin loses far more than 5 %.
LATE_SHARE = 0.05
ONE_STEP_SHARE = 0.5
# Few events, or few steps, meet in one step by chance.
ONE_STEP_LEAST_EVENTS = 20
ONE_STEP_LEAST_STEPS = 4


@dataclass
class WindowCheck:
    """Counts the events of recordings that a time window misses or squeezes into one step.

    Shares are over all recordings so far, since a single unusual recording (one of 800 in N-MNIST has 9.5 % late
    events) does not show that the window is wrong.

    Args:
        time_steps: number of steps T of the window.
        step_us: length of a step in microseconds.
        late: what becomes of events after the window: `"clamp"`, `"drop"` or `"error"`.

    Example:
        >>> check = WindowCheck(time_steps=20, step_us=1_000, late="drop")
        >>> print(check.add(np.arange(30)))
        events: 33.3 % of 30 lie after the last time step (from 20000 us on, up to 29000 us) and are left out; ...
    """

    time_steps: int
    step_us: int
    late: str
    events: int = 0
    events_late: int = 0
    last_step: int = 0
    # Number of recordings with enough events to judge.
    events_judged: int = 0
    events_in_fullest: int = 0

    def add(self, steps: npt.NDArray[np.int64]) -> str:
        """Counts the events of a recording, given their time steps `t // step_us` `[E]`; returns a warning text.

        Returns:
            A sentence with the share of events after the last step where that is above 5 %, else with the share of
            events in the fullest step of their recording where that is above 50 % (of recordings with 20 events or
            more, in windows of 4 steps or more); else "".

        Raises:
            ValueError: any late event with `late="error"`.
        """
        if steps.size == 0:
            return ""
        last = int(steps.max())
        after = int((steps >= self.time_steps).sum()) if last >= self.time_steps else 0
        end_us = self.time_steps * self.step_us
        if after and self.late == "error":
            raise ValueError(
                f"events: expected all before {end_us} us with late='error', got {_percent(after, steps.size)} "
                f"after the last time step (up to {last * self.step_us} us)"
            )
        self.events += steps.size
        self.events_late += after
        self.last_step = max(self.last_step, last)
        if self.events_late > LATE_SHARE * self.events:
            fate = "are counted in the last step" if self.late == "clamp" else "are left out"
            return (
                f"events: {_percent(self.events_late, self.events)} lie after the last time step (from {end_us} us "
                f"on, up to {self.last_step * self.step_us} us) and {fate}; {_REMEDY}"
            )
        if steps.size < ONE_STEP_LEAST_EVENTS or self.time_steps < ONE_STEP_LEAST_STEPS:
            return ""
        counts = np.bincount(steps[steps < self.time_steps] if after else steps)
        self.events_judged += steps.size
        self.events_in_fullest += int(counts.max())
        if self.events_in_fullest <= ONE_STEP_SHARE * self.events_judged:
            return ""
        return (
            f"events: {_percent(self.events_in_fullest, self.events_judged)} lie in a single time step of "
            f"{self.time_steps} (here step {counts.argmax()}; {self.step_us} us each); {_REMEDY}"
        )


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.3g} % of {whole}"


_REMEDY = (
    "choose time_steps and step_us for the recordings, or make the events with as_events(..., unit=, "
    "origin='first')"
)
