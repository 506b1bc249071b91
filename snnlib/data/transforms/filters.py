"""Filters of recordings: noise, events in quick succession, hot pixels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from snnlib.data.checks import check_int, check_number
from snnlib.data.events import Events, check_events, check_ordered
from snnlib.data.statistics import HOT_FACTOR, hot_limit

__all__ = ["Denoise", "RefractoryFilter", "RemoveHotPixels"]

Array = npt.NDArray[Any]
_NEIGHBOURS = [(dy, dx) for dy in (-1, 0, 1) for dx in (-1, 0, 1) if (dy, dx) != (0, 0)]


@dataclass(frozen=True)
class Denoise:
    """Keeps events with a recent event at one of the eight neighbouring pixels, which removes background activity.

    An event at pixel q and time t stays if an earlier event at a pixel next to q (not at q itself) has a time >= t -
    filter_us. The earlier event need not stay itself.

    Args:
        filter_us: how long an event supports its neighbours, in microseconds. Default 10 ms.

    Returns (called): the events `[K]` that stay of `[E]`, in their order.

    Source: Delbruck, "Frame-free dynamic digital vision", Symposium on Secure-Life Electronics, 2008; the filter
    BackgroundActivityFilter of jAER.

    Example:
        >>> from snnlib.data import as_events
        >>> events = as_events(t=[0, 5, 9], x=[1, 2, 30], y=[1, 2, 9], p=[1, 0, 1])
        >>> Denoise(filter_us=10)(events).tolist()
        [(5, 2, 2, 0)]
    """

    filter_us: int = 10_000

    def __post_init__(self) -> None:
        check_int("filter_us", self.filter_us, 0, 2**62)

    def __call__(self, events: Events) -> Events:
        events = check_ordered(events)
        count = len(events)
        if count == 0:
            return events.copy()
        t, x, y = (events[field].astype(np.int64) for field in ("t", "x", "y"))
        # A column free on either side, so that no neighbour is on another row.
        width = int(x.max()) + 3
        pixel = (y + 1) * width + x + 1
        order = np.argsort(pixel, kind="stable")
        # Number of the event within its pixel's, in one key that rises: the last one before a place is found by search.
        keys = pixel[order] * count + order
        supported = np.zeros(count, bool)
        for dy, dx in _NEIGHBOURS:
            neighbour = pixel[order] + dy * width + dx
            place = np.searchsorted(keys, neighbour * count + order) - 1
            found = np.maximum(place, 0)
            same = (place >= 0) & (keys[found] // count == neighbour)
            supported |= same & (t[order] - t[order[found]] <= self.filter_us)
        stays = np.zeros(count, bool)
        stays[order] = supported
        return np.asarray(events[stays])


@dataclass(frozen=True)
class RefractoryFilter:
    """Removes events of a pixel less than `period_us` after the pixel's last remaining event.

    Both polarities count as one pixel. The filter thins out several events of a pixel at one edge.

    Args:
        period_us: in microseconds.

    Returns (called): the events `[K]` that stay of `[E]`, in their order.

    Example:
        >>> from snnlib.data import as_events
        >>> events = as_events(t=[0, 5, 10, 12], x=[1, 1, 1, 2], y=[0, 0, 0, 0], p=[1, 0, 1, 1])
        >>> RefractoryFilter(period_us=8)(events)["t"].tolist()
        [0, 10, 12]
    """

    period_us: int

    def __post_init__(self) -> None:
        check_int("period_us", self.period_us, 0, 2**40)

    def __call__(self, events: Events) -> Events:
        events = check_ordered(events)
        count = len(events)
        if count == 0:
            return events.copy()
        t = events["t"] - events["t"][0]
        _, pixel = np.unique(
            events["y"].astype(np.int64) << 16 | events["x"].astype(np.int64), return_inverse=True
        )
        order = np.argsort(pixel, kind="stable")
        pixel, t = pixel[order], t[order]
        # Index of the next event that may follow each event at its pixel; `count` where there is none.
        span = int(t.max()) + self.period_us + 1
        following = np.searchsorted(pixel * span + t, pixel * span + t + self.period_us)
        # Without a pause, the next one itself.
        following = np.maximum(following, np.arange(count) + 1)
        ends = np.append(np.flatnonzero(np.diff(pixel)) + 1, count)
        following[following >= ends[pixel]] = count
        # Events that stay are reached from the first of each pixel; steps of 1, 2, 4, ... reach all of them.
        step = np.append(following, count)
        stays = np.zeros(count + 1, bool)
        stays[np.append(0, ends[:-1])] = True
        while bool((step[:-1] < count).any()):
            stays[step[stays]] = True
            step = step[step]
        kept = np.zeros(count, bool)
        kept[order] = stays[:-1]
        return np.asarray(events[kept])


@dataclass(frozen=True)
class RemoveHotPixels:
    """Removes all events of pixels that fire far more often than others.

    A pixel is hot if its number of events exceeds the mean over active pixels `factor` times, and by more than ten
    standard deviations of a Poisson count; `snnlib data info` lists the same pixels.

    Args:
        factor: of the mean. Default 10.

    Returns (called): the events `[K]` that stay of `[E]`, in their order.

    Example:
        >>> from snnlib.data import as_events
        >>> quiet, hot = list(range(200)), [7] * 800
        >>> events = as_events(t=range(1000), x=quiet + hot, y=[0] * 1000, p=[1] * 1000)
        >>> len(RemoveHotPixels()(events))
        199
    """

    factor: float = HOT_FACTOR

    def __post_init__(self) -> None:
        check_number("factor", self.factor, 0, 1e9, "a number >= 0")

    def __call__(self, events: Events) -> Events:
        events = check_events("events", events)
        if len(events) == 0:
            return events.copy()
        pixel = events["y"].astype(np.int64) << 16 | events["x"].astype(np.int64)
        _, inverse, counts = np.unique(pixel, return_inverse=True, return_counts=True)
        return np.asarray(events[(counts <= hot_limit(counts, self.factor))[inverse]])
