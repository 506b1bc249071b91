"""A batch of recordings as events, converted to frames for a part of the time steps at a time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from snnlib.backends import cpu_memory
from snnlib.data.events import Events
from snnlib.data.formats.nmnist_bin import NMNIST_SENSOR_SIZE
from snnlib.data.frames import Late, Mode, ToFrames, check_steps, columns_of

__all__ = ["EventBatch"]


class EventBatch:
    """N recordings as input of any length, binned to frames `[T, N, 2, H, W]` on demand.

    `frames(first, end)` returns the steps from `first` to `end`, bit for bit as `to_frames` over the whole length. An
    event takes 8 bytes; at bins of 0.1 ms, frames of N-MNIST would take 28 MB per second and sample. Pass it to
    `snnlib.checkpoint_time`.

    Args:
        events: N arrays of events; `t` in microseconds from the start of each recording.
        step_us: length of a time step in microseconds.
        sensor_size: `(height, width)` in pixels. Default: N-MNIST's.
        time_steps: number of steps T; None: the length of the longest recording.
        mode, late: as in `to_frames`.

    Raises:
        TypeError: `events` are not arrays of events.
        ValueError: no recording, an event outside the sensor or before time 0, an option out of its range, or so many
            steps that the times must be absolute time stamps.

    >>> from snnlib.data import EventBatch, as_events
    >>> one = as_events(t=[0, 120, 250], x=[1, 1, 0], y=[0, 0, 1], p=[1, 1, 0])
    >>> two = as_events(t=[110], x=[1], y=[1], p=[0])
    >>> batch = EventBatch([one, two], step_us=100, sensor_size=(2, 2))
    >>> batch.time_steps, batch.frames(1, 3).shape, batch.frames(1, 3).sum().item()
    (3, torch.Size([2, 2, 2, 2, 2]), 3.0)
    """

    def __init__(
        self,
        events: Sequence[Events],
        *,
        step_us: int,
        sensor_size: tuple[int, int] = NMNIST_SENSOR_SIZE,
        time_steps: int | None = None,
        mode: Mode = "binary",
        late: Late = "clamp",
    ) -> None:
        if len(events) == 0:
            raise ValueError("events: expected at least one recording, got none")
        steps = 1 if time_steps is None else time_steps
        binning = ToFrames(time_steps=steps, step_us=step_us, sensor_size=sensor_size, mode=mode, late=late)
        self.step_us, self.sensor_size = binning.step_us, binning.sensor_size
        self.mode, self.late, self.batch_size = mode, late, len(events)
        bins, cells, (height, width) = [], [], self.sensor_size
        for number, recording in enumerate(events):
            t, x, y, p = columns_of(recording, self.sensor_size)
            bins.append(t // self.step_us)
            cells.append(((number * height + y) * width + x) * 2 + p)
        step, cell = np.concatenate(bins), np.concatenate(cells)
        longest = int(step.max()) + 1 if step.size else 1
        if time_steps is None:
            check_steps(longest, self.step_us)
        self.time_steps = longest if time_steps is None else binning.time_steps
        late_events = step >= self.time_steps
        if late == "error" and late_events.any():
            raise ValueError(
                f"events: expected all within {self.time_steps} steps of {self.step_us} us, "
                f"got {int(late_events.sum())} later ones"
            )
        if late == "drop":
            step, cell = step[~late_events], cell[~late_events]
        step = np.minimum(step, self.time_steps - 1)
        order = np.argsort(step, kind="stable")
        # Four bytes number the cells of a step, but of a thousand recordings of a megapixel.
        cells_per_step = self.batch_size * 2 * height * width
        self._cells = torch.from_numpy(cell[order].astype(np.int32 if cells_per_step <= 2**31 else np.int64))
        # Events of step k are those from number `starts[k]` on.
        self._starts = np.searchsorted(step[order], np.arange(self.time_steps + 1))

    def frames(self, first: int, end: int) -> Tensor:
        """Frames `[end - first, N, 2, H, W]` of the steps from `first` to `end`, float32."""
        if not 0 <= first <= end <= self.time_steps:
            raise ValueError(
                f"first, end: expected 0 <= first <= end <= {self.time_steps}, got {first} and {end}"
            )
        height, width = self.sensor_size
        per_step = self.batch_size * 2 * height * width
        low, high = int(self._starts[first]), int(self._starts[end])
        counts = torch.from_numpy(np.diff(self._starts[first : end + 1]))
        steps = torch.arange(end - first).repeat_interleave(counts)
        where = steps * per_step + self._cells[low:high]
        flat = cpu_memory.empty_strided([(end - first) * per_step], [1], torch.float32).zero_()
        if self.mode == "binary":
            flat[where] = 1.0
        else:
            flat.index_add_(0, where, torch.ones(len(where)))
        # Channels-last, as event-driven layers read it.
        return flat.view(end - first, self.batch_size, height, width, 2).movedim(-1, 2)

    def __len__(self) -> int:
        return self.batch_size

    def __repr__(self) -> str:
        events = f"{len(self._cells)} events, {self.time_steps} steps of {self.step_us} us"
        return f"EventBatch({self.batch_size} recordings, {events}, sensor {self.sensor_size})"
