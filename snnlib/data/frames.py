"""Events to spike trains: time bins on the sensor's grid, `[T, 2, H, W]`."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, SupportsIndex

import numpy as np
import numpy.typing as npt
import torch

from snnlib.checks import check_choice, check_fits
from snnlib.data.checks import check_int, check_sensor_size
from snnlib.data.events import Events, check_events
from snnlib.data.formats.nmnist_bin import NMNIST_SENSOR_SIZE
from snnlib.data.time_window import WindowCheck

__all__ = ["ToFrames", "stack_time_first", "to_frames"]

Mode = Literal["binary", "count"]
Late = Literal["clamp", "drop", "error"]
By = Literal["time", "count", "slices"]
# Seven hours in steps of 0.1 ms.
_MOST_STEPS = 2**28


def to_frames(
    events: Events,
    *,
    time_steps: int = 30,
    step_us: int = 10_000,
    sensor_size: tuple[int, int] = NMNIST_SENSOR_SIZE,
    mode: Mode = "binary",
    late: Late = "clamp",
    dtype: torch.dtype = torch.float32,
    by: By = "time",
    events_per_step: int | None = None,
) -> torch.Tensor:
    """Bins events into a spike train.

    `count[k, p, y, x] = #{events : bin = k, polarity p, pixel (x, y)}`; `mode="binary"` gives `min(count, 1)`. `by`
    says what the bin of an event is:

    - `"time"`: `floor(t / step_us)`;
    - `"count"`: `floor(i / events_per_step)` of the i-th event by time, so that steps hold equal numbers of events;
    - `"slices"`: `floor((t - t_first) T / (t_last - t_first + 1))`, T equal parts of the recording.

    Args:
        events: events `[E]`; `t` in microseconds from the start of the recording. The order does not matter.
        time_steps: number of bins T. Default 30: with 10 ms bins, N-MNIST's three saccades of 100 ms.
        step_us: length of a bin in microseconds.
        sensor_size: `(height, width)` in pixels.
        mode: `"binary"` (default, spikes are 0 or 1) or `"count"` (several events in one cell add up).
        late: events after the last bin (`t >= time_steps * step_us`, or beyond `time_steps * events_per_step` events):
            `"clamp"` (default, no event is lost) puts them into the last bin, `"drop"` leaves them out, `"error"`
            raises an error. In N-MNIST at 300 ms these are 0.25 % of the events.
        dtype: of the result. Counts must fit into it.
        by: `"time"` (default), `"count"` or `"slices"`.
        events_per_step: with `by="count"`; default: the recording is spread over all T bins.

    Returns:
        Tensor `[T, 2, H, W]`; channel 0 holds OFF events, channel 1 ON events. No events give zeros.

    Raises:
        TypeError: `events` is not an event array, or an argument has the wrong type.
        ValueError: an event outside the sensor, before time 0 or of another polarity than 0 and 1; an
            argument out of range; counts that do not fit `dtype`; late events with `late="error"`.

    Warns:
        UserWarning: the time window does not fit the recording, see `snnlib.data.time_window`: more than
            5 % of the events are late, or more than half of them share one bin.

    Example:
        >>> from snnlib.data import as_events
        >>> events = as_events(t=[0, 5, 15], x=[1, 1, 0], y=[0, 0, 1], p=[1, 1, 0])
        >>> frames = to_frames(events, time_steps=2, step_us=10, sensor_size=(2, 2), mode="count")
        >>> frames.nonzero().tolist(), frames.sum().item()
        ([[0, 1, 0, 1], [1, 0, 1, 0]], 3.0)
    """
    transform = ToFrames(
        time_steps=time_steps,
        step_us=step_us,
        sensor_size=sensor_size,
        mode=mode,
        late=late,
        dtype=dtype,
        by=by,
        events_per_step=events_per_step,
    )
    frames, complaint = transform.bin(events)
    if complaint:
        warnings.warn(complaint, stacklevel=2)
    return frames


def columns_of(
    events: object, sensor_size: tuple[int, int], *, any_time: bool = False
) -> tuple[npt.NDArray[np.int64], ...]:
    """The columns t, x, y and p `[E]` of events.

    Raises:
        TypeError: no event array.
        ValueError: an event outside the sensor, of another polarity than 0 and 1, or (not with `any_time`) before time
            0.
    """
    checked, (height, width) = check_events("events", events), sensor_size
    columns = tuple(checked[field].astype(np.int64) for field in "txyp")
    for field, column, high in zip("txyp", columns, (None, width - 1, height - 1, 1), strict=True):
        if field != "t" or not any_time:
            check_field(field, column, high)
    return columns


def check_field(field: str, column: npt.NDArray[np.int64], high: int | None) -> None:
    """Raise ValueError unless all values of an event field lie in `0..high`."""
    if column.size == 0 or (column.min() >= 0 and (high is None or column.max() <= high)):
        return
    bad = np.flatnonzero((column < 0) | (False if high is None else column > high))
    wanted = ">= 0" if high is None else f"in 0..{high}"
    hint = '; as_events(..., origin="first") starts at the first event' if field == "t" else ""
    raise ValueError(
        f"events: expected field {field} {wanted}, got {column[bad[0]]} at event {bad[0]} ({bad.size} such events, "
        f"{bad.size / column.size:.3g} of all){hint}"
    )


def check_steps(steps: int, step_us: int) -> None:
    """Raises ValueError if a recording is so long that its times must be absolute time stamps."""
    if steps > _MOST_STEPS:
        raise ValueError(
            f"events: expected recordings of at most {_MOST_STEPS} steps of {step_us} us, got {steps}; "
            'as_events(..., origin="first") starts at the first event, time_steps= sets the length'
        )


@dataclass(kw_only=True, eq=False)
class ToFrames:
    """`to_frames` with fixed options, as a picklable `transform` of a data set.

    Arguments, defaults and errors are those of `to_frames`; wrong arguments raise here, not at the first sample. A
    warning, once per transform and process, tells if the time window does not fit the recordings so far.

    Example:
        >>> from snnlib.data import as_events
        >>> transform = ToFrames(time_steps=60, step_us=5_000)
        >>> transform(as_events(t=[7_000], x=[3], y=[4], p=[1])).nonzero().tolist()
        [[1, 1, 4, 3]]
    """

    time_steps: int = 30
    step_us: int = 10_000
    sensor_size: tuple[int, int] = NMNIST_SENSOR_SIZE
    mode: Mode = "binary"
    late: Late = "clamp"
    dtype: torch.dtype = torch.float32
    by: By = "time"
    events_per_step: int | None = None

    def __post_init__(self) -> None:
        self.time_steps = check_int("time_steps", self.time_steps, 1)
        self.step_us = check_int("step_us", self.step_us, 1)
        self.sensor_size = check_sensor_size("sensor_size", self.sensor_size)
        check_choice("mode", self.mode, "binary", "count")
        check_choice("late", self.late, "clamp", "drop", "error")
        if not isinstance(self.dtype, torch.dtype) or self.dtype.is_complex:
            raise TypeError(f"dtype: expected a real torch dtype, got {self.dtype!r}")
        check_choice("by", self.by, "time", "count", "slices")
        if self.events_per_step is not None:
            check_int("events_per_step", self.events_per_step, 1)
            if self.by != "count":
                raise ValueError(
                    f"events_per_step: expected None with by={self.by!r}, got {self.events_per_step}"
                )
        self._window = WindowCheck(self.time_steps, self.step_us, self.late)
        self._warned = False

    def __call__(self, events: Events) -> torch.Tensor:
        frames, complaint = self.bin(events)
        if complaint and not self._warned:
            self._warned = True
            warnings.warn(complaint + " (of the recordings so far; said once)", stacklevel=2)
        return frames

    def bin(self, events: Events) -> tuple[torch.Tensor, str]:
        """Returns frames and the text of a warning or ""; counts the recording, but issues no warning."""
        steps, (height, width) = self.time_steps, self.sensor_size
        t, x, y, p = columns_of(events, self.sensor_size)
        if self.by == "time":
            bins = t // self.step_us
            complaint = self._window.add(bins)
        else:
            bins, complaint = self._bins(t), ""
        cells = (np.minimum(bins, steps - 1) * 2 + p) * (height * width) + y * width + x
        if self.late == "drop":
            cells = cells[bins < steps]
        flat = np.zeros(steps * 2 * height * width, np.uint8 if self.mode == "binary" else np.int32)
        if self.mode == "binary":
            flat[cells] = 1
        else:
            # A Python 1 would be cast per event: 30 times slower.
            np.add.at(flat, cells, np.int32(1))
            check_fits(int(flat.max()), self.dtype)
        return torch.from_numpy(flat).view(steps, 2, height, width).to(self.dtype), complaint

    def _bins(self, t: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Bins by count or by slices."""
        if t.size == 0:
            return t
        if self.by == "slices":
            return np.asarray((t - t.min()) * self.time_steps // (t.max() - t.min() + 1))
        rank = np.empty(t.size, np.int64)
        rank[np.argsort(t, kind="stable")] = np.arange(t.size)
        if self.events_per_step is None:
            return rank * self.time_steps // t.size
        bins: npt.NDArray[np.int64] = rank // self.events_per_step
        if self.late == "error" and bins.max() >= self.time_steps:
            raise ValueError(
                f"events: expected at most {self.time_steps * self.events_per_step} with late='error', got {t.size}"
            )
        return bins


def stack_time_first(batch: Sequence[tuple[torch.Tensor, int]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Collates samples into a batch in the library's order, time first.

    Args:
        batch: N pairs of a spike train `[T, ...]` (usually `[T, C, H, W]`) and an integer label. Shapes must
            agree.

    Returns:
        `(spikes, labels)`: `[T, N, ...]` and int64 `[N]`. Frames keep their dtype.

    Raises:
        ValueError: an empty batch, or samples of different shapes.
        TypeError: a label is not an integer.

    Example:
        >>> import torch
        >>> sample = torch.zeros(30, 2, 34, 34)
        >>> spikes, labels = stack_time_first([(sample, 3), (sample, 8), (sample, 1)])
        >>> spikes.shape, labels
        (torch.Size([30, 3, 2, 34, 34]), tensor([3, 8, 1]))
    """
    if not batch:
        raise ValueError("batch must hold at least one sample, got none")
    shapes = {tuple(frames.shape) for frames, _ in batch}
    if len(shapes) > 1:
        raise ValueError(f"batch must hold spike trains of one shape, got {sorted(shapes)}")
    spikes = torch.stack([frames for frames, _ in batch], dim=1)
    return spikes, torch.tensor([_as_label(label) for _, label in batch], dtype=torch.int64)


def _as_label(label: SupportsIndex) -> int:
    try:
        return operator.index(label)
    except TypeError:
        raise TypeError(f"batch: expected integer labels, got {label!r}") from None
