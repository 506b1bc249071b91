"""How a run makes frames of events, and batches of samples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from snnlib.app.training.choices import IMAGES, SEQUENCES
from snnlib.app.training.config import TrainConfig
from snnlib.app.training.data_facts import data_facts
from snnlib.app.training.images import CollateImages, sequence_of_image
from snnlib.data import CropPool, Events, ToFrames, collate_ragged, stack_time_first


class CroppedFrames:
    """`CropPool`, then `ToFrames`; a class, so that processes that read data can be sent it."""

    def __init__(self, crop: CropPool, frames: ToFrames) -> None:
        self.crop, self.frames = crop, frames

    def __call__(self, events: Events) -> torch.Tensor:
        return self.frames(self.crop(events))

    def __repr__(self) -> str:
        return f"{self.crop} -> {self.frames}"


def frames_of(config: TrainConfig, dtype: torch.dtype) -> ToFrames | CroppedFrames:
    """How a run makes frames of events."""
    size = data_facts(config).input_shape[1:]
    frames = ToFrames(
        time_steps=config.time_steps,
        step_us=config.step_us,
        sensor_size=size,
        mode=config.frames,
        late=config.late,
        dtype=dtype,
    )
    if config.crop is None and config.pool == 1:
        return frames
    # Without a crop all of the sensor is pooled, its last row and column perhaps of fewer pixels.
    whole = (0, 0, size[0] * config.pool, size[1] * config.pool)
    return CroppedFrames(CropPool(config.crop_box or whole, config.pool), frames)


def collate(config: TrainConfig) -> Callable[[Sequence[Any]], tuple[torch.Tensor, ...]]:
    """How samples become a batch: `(x, labels)`, and of sequences without frames `(x, labels, lengths)`."""
    if config.data in IMAGES:
        return CollateImages(sequence_of_image(config, torch.float32))
    return collate_ragged if config.data in SEQUENCES else stack_time_first
