"""Recordings of event cameras as frames: the embedded digits, N-MNIST, and MNIST before a simulated camera."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from snnlib.app.errors import ConfigError, naming
from snnlib.app.kinds.base import DataFacts, Kind, Reader, Samples, fits_into_memory
from snnlib.app.read_options import read_options
from snnlib.data import (
    MNIST,
    NMNIST,
    CropPool,
    EventCache,
    EventDigits,
    Events,
    FrameCache,
    SimulatedEvents,
    ToFrames,
    read,
)
from snnlib.data.datasets.reader_options import ReaderOptions
from snnlib.data.datasets.splits import Split

if TYPE_CHECKING:
    from snnlib.app.training.config import TrainConfig


class CroppedFrames:
    """`CropPool`, then `ToFrames`; a class, so that processes that read data can be sent it."""

    def __init__(self, crop: CropPool, frames: ToFrames) -> None:
        self.crop, self.frames = crop, frames

    def __call__(self, events: Events) -> torch.Tensor:
        return self.frames(self.crop(events))

    def __repr__(self) -> str:
        return f"{self.crop} -> {self.frames}"


@dataclass(frozen=True, kw_only=True)
class EventKind(Kind):
    """Recordings as frames `[T, 2, H, W]`, which are kept in memory, or else their events in an `EventCache`.

    Args:
        recordings: opens the training or the test set.
        reading: options of `snnlib.data.read` for files that are to be classified.
    """

    has: frozenset[str] = frozenset({"frames", "sensor"})
    own_validation: bool = False
    recordings: Callable[[TrainConfig, Split, bool], Any]
    reading: Mapping[str, Any] = field(default_factory=dict)

    def sensor(self, config: TrainConfig) -> tuple[Sequence[str], tuple[int, int]]:
        """Classes and sensor size: N-MNIST's, which the embedded digits and simulated events share."""
        (height, width), box = NMNIST.sensor_size, config.data.crop_box
        if box and (box[0] + box[2] > height or box[1] + box[3] > width):
            raise ConfigError(
                "crop", f"expected a part of the sensor of {width}x{height} pixels, got {config.data.crop}"
            )
        return NMNIST.classes, NMNIST.sensor_size

    def facts(self, config: TrainConfig) -> DataFacts:
        """Reads no recording, but those of a folder whose settings give no crop."""
        classes, sensor_size = self.sensor(config)
        size = CropPool(config.data.crop_box or (0, 0, *sensor_size), config.data.pool).output_size
        return DataFacts(tuple(classes), (2, *size))

    def open(self, config: TrainConfig, split: Split, progress: bool) -> Samples:
        """Frames are uint8; where they fit into memory only the first epoch reads files."""
        shape = self.facts(config).input_shape
        transform = _frames(config, shape[1:], torch.uint8)
        with naming("val_split" if split == "val" else "root"):
            samples = self.recordings(config, split, progress)
            in_memory = fits_into_memory(len(samples) * config.data.time_steps * math.prod(shape))
            if not (in_memory or isinstance(samples, EventCache)):
                samples = EventCache(samples, progress=progress)
            samples.transform = transform
            return (
                FrameCache(samples, preload=True, progress=progress, dtype=torch.uint8)
                if in_memory
                else samples
            )

    def transform(self, config: TrainConfig, dtype: torch.dtype) -> ToFrames | CroppedFrames:
        """Frames of events."""
        return _frames(config, self.facts(config).input_shape[1:], dtype)

    def reader(self, config: TrainConfig) -> Reader:
        """Event files of any format."""
        # A crop leaves out what is outside the sensor; without one that is an error.
        whole = config.data.crop is None and config.data.pool == 1
        size = self.facts(config).input_shape[1:] if whole else None
        return event_reader(config.data.reader_options, sensor_size=size, **self.reading)


def _frames(config: TrainConfig, size: tuple[int, int], dtype: torch.dtype) -> ToFrames | CroppedFrames:
    frames = ToFrames(
        time_steps=config.data.time_steps,
        step_us=config.data.step_us,
        sensor_size=size,
        mode=config.data.frames,
        late=config.data.overflow,
        dtype=dtype,
    )
    if config.data.crop is None and config.data.pool == 1:
        return frames
    # Without a crop all of the sensor is pooled, its last row and column perhaps of fewer pixels.
    whole = (0, 0, size[0] * config.data.pool, size[1] * config.data.pool)
    return CroppedFrames(CropPool(config.data.crop_box or whole, config.data.pool), frames)


def event_reader(options: Sequence[str] | None = None, **reading: Any) -> Reader:
    """Returns what reads event files of any format: with these options, and with those of their own readers."""
    own = ReaderOptions(read_options(options))
    return lambda file: (read(file, **{"strict": True, **reading, **own.of(file)}).events, "")


EVENTS = (
    EventKind(
        name="digits",
        place="the embedded digits: handwritten digits before a simulated event camera, no download",
        help="the embedded digits, which need no download",
        folder=None,
        recordings=lambda config, split, progress: EventDigits(
            config.data.root, split == "train", progress=progress
        ),
    ),
    EventKind(
        name="nmnist",
        help="a copy of N-MNIST",
        folder="N-MNIST copy",
        public="nmnist",
        recordings=lambda config, split, _: NMNIST(config.data.root or "", split == "train"),
    ),
    EventKind(
        name="mnist-events",
        help="MNIST's images as a simulated event camera sees them",
        recipe="mnist-events",
        public="mnist",
        # Simulated once, for this run and others.
        recordings=lambda config, split, progress: EventCache(
            SimulatedEvents(MNIST(config.data.root or "", split == "train")), progress=progress
        ),
    ),
)
