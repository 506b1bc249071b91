"""Events of sensors without an image, such as cochleas, to spike tensors `[T, channels]`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from snnlib.checks import check_choice
from snnlib.data.checks import check_int
from snnlib.data.events import Events, check_events
from snnlib.data.frames import check_field, check_steps

__all__ = ["ToChannels"]


@dataclass(frozen=True, kw_only=True)
class ToChannels:
    """Bins events by time and channel: `count[k, x] = #{events : floor(t / step_us) = k, channel x}`.

    For data sets whose events have x = channel, y = 0 and p = 1: `data.SHD`, `data.SSC` and
    `data.NTIDIGITS`. `data.collate_ragged` makes batches of recordings of different lengths.

    Args:
        step_us: length of a time step in microseconds.
        channels: number of channels C.
        time_steps: number of steps T; later events are left out. None (default): up to the last event of each
            recording, at least one.
        mode: `"binary"` (default, a cell with events is 1) or `"count"` (the number of its events, at most 255).
        dtype: of the result. Default float32.

    Raises:
        TypeError: in a call, not an event array.
        ValueError: an argument out of its range; in a call, an event before time 0 or of a missing channel, or so many
            steps that the times must be absolute time stamps.

    >>> from snnlib.data import ToChannels, as_events
    >>> events = as_events(t=[100, 2500, 2600], x=[4, 0, 0], y=[0, 0, 0], p=[1, 1, 1])
    >>> ToChannels(step_us=1000, channels=5)(events).tolist()
    [[0.0, 0.0, 0.0, 0.0, 1.0], [0.0, 0.0, 0.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0, 0.0]]
    """

    step_us: int
    channels: int
    time_steps: int | None = None
    mode: Literal["binary", "count"] = "binary"
    dtype: torch.dtype = torch.float32

    def __post_init__(self) -> None:
        check_int("step_us", self.step_us, 1)
        check_int("channels", self.channels, 1)
        if self.time_steps is not None:
            check_int("time_steps", self.time_steps, 1)
        check_choice("mode", self.mode, "binary", "count")

    def __call__(self, events: Events) -> torch.Tensor:
        events = check_events("events", events)
        t, x = events["t"].astype(np.int64), events["x"].astype(np.int64)
        check_field("t", t, None)
        check_field("x", x, self.channels - 1)
        bins = t // self.step_us
        steps = self.time_steps or int(bins.max(initial=0)) + 1
        if self.time_steps is None:
            check_steps(steps, self.step_us)
        cells = (bins * self.channels + x)[bins < steps]
        counts = np.bincount(cells, minlength=steps * self.channels)
        counts = np.minimum(counts, 1 if self.mode == "binary" else 255).astype(np.uint8)
        return torch.from_numpy(counts).view(steps, self.channels).to(self.dtype)
