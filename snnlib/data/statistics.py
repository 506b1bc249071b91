"""Statistics of a recording: counts, duration, rate over time, polarities, hot pixels."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from snnlib.data.checks import check_int
from snnlib.data.events import Events, check_events

__all__ = ["RecordingStatistics", "describe_events"]

# A pixel is hot that has more events than this many times the mean of the pixels that have any, and more than that
# many standard deviations of a Poisson count of that mean.
HOT_FACTOR = 10
HOT_DEVIATIONS = 10


@dataclass(frozen=True)
class RecordingStatistics:
    """Numbers that describe a recording.

    Args:
        events: number of events.
        duration_us: time from the first to the last event.
        on_share: share of ON events; NaN without events.
        box: smallest box with all events, `(top, left, height, width)`; zeros without events.
        rate: events per second in each of the equal parts of the duration.
        active_pixels: pixels with at least one event.
        hot_pixels: `(x, y, events)` of pixels that fire far more often than others, the busiest first.
    """

    events: int
    duration_us: int
    on_share: float
    box: tuple[int, int, int, int]
    rate: tuple[float, ...]
    active_pixels: int
    hot_pixels: tuple[tuple[int, int, int], ...]


def describe_events(events: Events, parts: int = 20) -> RecordingStatistics:
    """Counts the events of a recording.

    Args:
        events: events `[E]`, ordered by time.
        parts: number of parts of the duration for which the rate is given.

    Example:
        >>> from snnlib.data import as_events
        >>> found = describe_events(as_events(t=[0, 10, 1000], x=[1, 1, 3], y=[5, 5, 6], p=[1, 1, 0]), parts=2)
        >>> found.events, found.duration_us, found.box, [round(rate) for rate in found.rate]
        (3, 1000, (5, 1, 2, 3), [4000, 2000])
    """
    check_events("events", events)
    parts = check_int("parts", parts, 1)
    if len(events) == 0:
        return RecordingStatistics(0, 0, float("nan"), (0, 0, 0, 0), (0.0,) * parts, 0, ())
    t = events["t"] - events["t"].min()
    x, y = events["x"].astype(np.int64), events["y"].astype(np.int64)
    duration = int(t.max())
    part = np.minimum(t * parts // max(duration, 1), parts - 1)
    seconds = max(duration, 1) / parts / 1e6
    left, top = int(x.min()), int(y.min())
    box = (top, left, int(y.max()) - top + 1, int(x.max()) - left + 1)
    counts = np.bincount((y - top) * box[3] + x - left)
    active = counts[counts > 0]
    hot = np.flatnonzero(counts > hot_limit(active))
    hot = hot[np.argsort(-counts[hot], kind="stable")]
    return RecordingStatistics(
        len(events),
        duration,
        float(np.mean(events["p"] == 1)),
        box,
        tuple((np.bincount(part, minlength=parts) / seconds).tolist()),
        len(active),
        tuple((int(place % box[3]) + left, int(place // box[3]) + top, int(counts[place])) for place in hot),
    )


def hot_limit(active: npt.NDArray[np.int64], factor: float = HOT_FACTOR) -> float:
    """Returns the largest number of events of a pixel that is not hot."""
    mean = float(active.mean())
    return max(factor * mean, mean + HOT_DEVIATIONS * math.sqrt(mean))
