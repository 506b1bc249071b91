"""Reduces a recording: a part of its time, coarser times, one polarity."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from snnlib.checks import check_choice
from snnlib.data.checks import check_int
from snnlib.data.events import Events, check_events
from snnlib.data.transforms.options import sample_generator

__all__ = ["DownsampleTime", "MergePolarities", "TimeWindow"]


@dataclass(frozen=True, kw_only=True)
class TimeWindow:
    """Keeps events with `start_us <= t - t_0 < start_us + length_us`, t_0 the first event; times begin at 0.

    Args:
        length_us: length of the window, in microseconds.
        start_us: start of the window, or `"random"`: anywhere in the recording, in whole microseconds, one draw from
            torch's global generator; a shorter recording is kept whole.

    Returns (called): events `[K]`; the time of the window's start is 0.

    Example:
        >>> from snnlib.data import as_events
        >>> events = as_events(t=[100, 120, 150], x=[1, 2, 3], y=[0, 0, 0], p=[1, 1, 1])
        >>> TimeWindow(start_us=10, length_us=30)(events).tolist()
        [(10, 2, 0, 1)]
    """

    length_us: int
    start_us: int | str = 0

    def __post_init__(self) -> None:
        check_int("length_us", self.length_us, 1, 2**62)
        if isinstance(self.start_us, str):
            check_choice("start_us", self.start_us, "random")
        else:
            check_int("start_us", self.start_us, 0, 2**62)

    def __call__(self, events: Events) -> Events:
        events = check_events("events", events)
        rng = sample_generator() if self.start_us == "random" else None
        if len(events) == 0:
            return events.copy()
        t = events["t"] - events["t"].min()
        if rng is None:
            start = int(self.start_us)
        else:
            start = int(rng.integers(0, max(int(t.max()) + 1 - self.length_us, 0), endpoint=True))
        inside = (t >= start) & (t - start < self.length_us)
        kept: Events = events[inside]
        kept["t"] = t[inside] - start
        return kept


@dataclass(frozen=True, kw_only=True)
class DownsampleTime:
    """Rounds times down to whole steps, `t' = t // step_us * step_us`.

    Args:
        step_us: in microseconds.
        merge: whether to keep only the first of events that become equal in time, pixel and polarity.

    Returns (called): events `[K]`, in their order; K = E without `merge`.

    For coarser pixels use `CropPool`.

    Example:
        >>> from snnlib.data import as_events
        >>> events = as_events(t=[3, 14, 17], x=[1, 1, 1], y=[0, 0, 0], p=[1, 0, 0])
        >>> DownsampleTime(step_us=10, merge=True)(events)["t"].tolist()
        [0, 10]
    """

    step_us: int
    merge: bool = False

    def __post_init__(self) -> None:
        check_int("step_us", self.step_us, 1, 2**62)

    def __call__(self, events: Events) -> Events:
        coarse: Events = check_events("events", events).copy()
        coarse["t"] -= coarse["t"] % self.step_us
        if not self.merge or len(coarse) == 0:
            return coarse
        x, y, p = (coarse[field].astype(np.int64) for field in ("x", "y", "p"))
        _, first = np.unique(np.stack((coarse["t"], y << 32 | x << 8 | p)), axis=1, return_index=True)
        return np.asarray(coarse[np.sort(first)])


@dataclass(frozen=True)
class MergePolarities:
    """Merges polarities: makes all events ON, and joins the two channels of frames.

    Args:
        mode: for frames: `"binary"` takes the maximum of the two channels, `"count"` adds them.

    Returns (called): for events `[E]` the same events with p = 1; for frames `[..., 2, H, W]` frames
    `[..., 1, H, W]` of the same dtype.

    Example:
        >>> import torch
        >>> from snnlib.data import as_events
        >>> MergePolarities()(as_events(t=[3, 14], x=[1, 1], y=[0, 0], p=[1, 0]))["p"].tolist()
        [1, 1]
        >>> MergePolarities()(torch.ones(30, 2, 34, 34)).shape
        torch.Size([30, 1, 34, 34])
    """

    mode: str = "binary"

    def __post_init__(self) -> None:
        check_choice("mode", self.mode, "binary", "count")

    def __call__(self, sample: Any) -> Any:
        if not isinstance(sample, Tensor):
            merged: Events = check_events("sample", sample).copy()
            merged["p"] = 1
            return merged
        if sample.dim() < 3 or sample.shape[-3] != 2:
            raise ValueError(f"sample: expected frames [..., 2, H, W], got shape {tuple(sample.shape)}")
        off, on = sample.unbind(-3)
        return (torch.maximum(off, on) if self.mode == "binary" else off + on).unsqueeze(-3)
