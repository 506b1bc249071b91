"""Augmentation of event recordings, in the sensor's coordinates."""

from __future__ import annotations

import sys
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from snnlib.data.checks import check_number, check_sensor_size
from snnlib.data.events import Events, check_events, sort_by_time
from snnlib.data.formats.nmnist_bin import NMNIST_SENSOR_SIZE
from snnlib.data.frames import check_field
from snnlib.data.transforms.options import AugmentOptions, Matrix, draw_window, sample_generator

__all__ = ["AugmentEvents"]


@dataclass(frozen=True, kw_only=True)
class AugmentEvents(AugmentOptions):
    """Augments a recording at random, as a picklable `transform` of a data set.

    An event at `(x, y)` moves by a flip F, a rotation R about the centre c of the sensor and a shift d, all in one, and
    is rounded to the nearest pixel once::

        (x', y') = round(R F ((x, y) - c) + c + d)

    Events that leave the sensor are lost. Then the polarity is swapped, events are dropped and times jittered. The
    order of the events that stay is kept (after jitter, sorted by time), and so are dtype and further fields. The
    recording itself is not changed. Options that are left out do nothing.

    Each call takes one draw from torch's global generator. A `DataLoader` seeds that of each worker anew each epoch:
    workers and epochs differ, and `torch.manual_seed` before training repeats a run with the same number of workers.

    Args:
        shift: largest shift in pixels, along x and along y each a whole number, uniform in `-shift..shift`.
        rotate: largest angle in degrees, uniform in `-rotate..rotate`.
        flip_horizontal: probability to mirror left and right. As `flip_vertical`, only where the label allows it: a
            mirrored digit is another sign or none.
        flip_vertical: probability to mirror top and bottom.
        flip_polarity: probability that ON and OFF change places in the whole recording.
        drop: probability of each event to be dropped, independently.
        drop_time: share of the recording's duration in which all events are dropped, one window anywhere in it.
        drop_area: share of the sensor on which all events are dropped, one rectangle of the sensor's shape anywhere
            on it, its sides rounded to whole pixels.
        sensor_size: `(height, width)` in pixels.
        jitter_us: standard deviation in microseconds of a Gaussian that is added to each time. Times are rounded to
            microseconds and stay between the first and the last one of the recording.
        jitter_pixels: standard deviation in pixels of a Gaussian that is added to x and to y of each event, then
            rounded; events that leave the sensor are lost.

    Raises:
        TypeError: an argument of the wrong type; `events` is not an event array.
        ValueError: an argument out of range; an event outside the sensor or of another polarity than 0 and 1.

    Source: the three kinds of dropping are from Gu et al., "EventDrop: Data Augmentation for Event-based Learning",
    IJCAI 2021, which draws one kind and its share per sample; here all requested kinds apply.

    Example:
        >>> from snnlib.data import NMNIST, ToFrames, Transformed, as_events
        >>> augment = AugmentEvents(shift=2, rotate=10, drop=0.1, jitter_us=1000)
        >>> def training_set(root):
        ...     return Transformed(NMNIST(root), augment, ToFrames())

        >>> events = as_events(t=[5, 8], x=[0, 9], y=[4, 4], p=[1, 0])
        >>> AugmentEvents(flip_horizontal=1.0)(events)["x"].tolist()
        [33, 24]
    """

    sensor_size: tuple[int, int] = NMNIST_SENSOR_SIZE
    jitter_us: float = 0.0
    jitter_pixels: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_sensor_size("sensor_size", self.sensor_size)
        check_number("jitter_us", self.jitter_us, 0, sys.float_info.max, "finite microseconds >= 0")
        check_number("jitter_pixels", self.jitter_pixels, 0, 2**15, "pixels in 0..32768")

    def __call__(self, events: Events) -> Events:
        events = check_events("events", events)
        height, width = self.sensor_size
        for field, high in (("x", width - 1), ("y", height - 1), ("p", 1)):
            check_field(field, events[field], high)
        rng = sample_generator()
        if events.size == 0:
            return events.copy()
        start, end = int(events["t"].min()), int(events["t"].max())

        # Drawn in the order of AugmentFrames, so that one seed moves both alike.
        moved = move_events(events, *self._draw_motion(rng), self.sensor_size)
        if rng.random() < self.flip_polarity:
            moved["p"] = 1 - moved["p"]
        rows, columns = self._draw_area(rng, height, width)
        times = draw_window(rng, end - start + 1, self.drop_time)
        gone = _within(moved["y"], rows) & _within(moved["x"], columns)
        gone |= _within(moved["t"] - start, times)
        gone |= rng.random(moved.size) < self.drop
        kept = moved[~gone]
        if self.jitter_pixels > 0:
            x, y = (kept[field] + rng.normal(0, self.jitter_pixels, kept.size) for field in ("x", "y"))
            kept = _placed(kept, np.rint(x).astype(np.int64), np.rint(y).astype(np.int64), self.sensor_size)
        if self.jitter_us == 0:
            return kept
        # No jitter can be longer than the recording, and a double that long may not fit into an int64.
        noise = np.clip(rng.normal(0, self.jitter_us, kept.size), start - end, end - start)
        kept["t"] = np.clip(kept["t"] + np.rint(noise).astype(np.int64), start, end)
        return sort_by_time(kept)


def move_events(
    events: Events, matrix: Matrix, shift: npt.NDArray[np.int64], sensor_size: tuple[int, int]
) -> Events:
    """A copy of the events at `matrix ((x, y) - c) + c + shift`, without those outside the sensor."""
    height, width = sensor_size
    centre = np.array([[width - 1], [height - 1]]) / 2
    centred = np.stack((events["x"], events["y"])) - centre
    x, y = np.rint(matrix @ centred + centre + shift[:, None]).astype(np.int64)
    return _placed(events, x, y, sensor_size)


def _placed(
    events: Events, x: npt.NDArray[np.int64], y: npt.NDArray[np.int64], sensor_size: tuple[int, int]
) -> Events:
    """A copy of the events at other places, without those outside the sensor."""
    inside = _within(x, slice(0, sensor_size[1])) & _within(y, slice(0, sensor_size[0]))
    moved: Events = events[inside]
    moved["x"], moved["y"] = x[inside], y[inside]
    return moved


def _within(column: npt.NDArray[np.int64], window: slice) -> npt.NDArray[np.bool_]:
    return np.asarray((column >= window.start) & (column < window.stop))
