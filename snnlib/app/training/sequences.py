"""Data without frames: sequences `[T, channels]` of different lengths, with a label each or at every step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset

from snnlib.app.training.choices import DataName
from snnlib.app.training.config import TrainConfig
from snnlib.data import ECG, SHD, SSC, Cochlea, SpokenDigits, ToChannels
from snnlib.data.datasets.shd import UNITS
from snnlib.data.datasets.splits import Split
from snnlib.data.heard import Heard
from snnlib.data.progress import progress_bar

_HDF5: dict[DataName, type[SHD]] = {"shd": SHD, "ssc": SSC}


class Sequences(Dataset[tuple[Tensor, Any]]):
    """Samples of one data set or of several, `(uint8 [T, channels], label)`, and their lengths.

    Args:
        parts: the data sets.
        keep: whether to keep the sequences in memory.
        progress: show a bar while their lengths are found.

    Attributes:
        lengths: time steps of each sample.
    """

    def __init__(self, parts: Sequence[Any], *, keep: bool, progress: bool) -> None:
        self._places = [(part, number) for part in parts for number in range(len(part))]
        self._kept: list[tuple[Tensor, Any]] = []
        self.lengths: list[int] = []
        with progress_bar(len(self), "reading sequences", "sample", progress) as done:
            for index in range(len(self)):
                sample = self._read(index)
                self.lengths.append(len(sample[0]))
                if keep:
                    self._kept.append(sample)
                done()

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, index: int) -> tuple[Tensor, Any]:
        return self._kept[index] if self._kept else self._read(index)

    def _read(self, index: int) -> tuple[Tensor, Any]:
        part, number = self._places[index]
        sequence, label = part[number]
        return sequence.to(torch.uint8), label


def channels_of(config: TrainConfig) -> int:
    """Channels of the sequences."""
    return {"ecg": ECG.channels, "spoken-digits": config.channels}.get(config.data, UNITS)


def classes_of(config: TrainConfig) -> tuple[str, ...]:
    """Names of the classes; those of speech are the file's.

    Raises:
        OSError, ValueError, ImportError: as of the data set.
    """
    known = {"ecg": ECG.classes, "spoken-digits": SpokenDigits.classes}.get(config.data)
    return tuple(_open(config, "test").classes) if known is None else known


def sequence_of(config: TrainConfig, dtype: torch.dtype) -> Callable[[Any], Tensor]:
    """What makes a sequence `[T, channels]` of a recording: of its events or sound, or of an electrocardiogram."""
    if config.data == "ecg":
        return partial(torch.as_tensor, dtype=dtype)
    bins = ToChannels(step_us=config.step_us, channels=channels_of(config), mode=config.frames, dtype=dtype)
    return Heard(Cochlea(config.channels), bins) if config.data == "spoken-digits" else bins


def open_sequences(
    config: TrainConfig, splits: Sequence[Split], *, memory: float, progress: bool
) -> Sequences:
    """The samples of some splits, kept in memory where they take less of it than `memory` bytes.

    Raises:
        OSError, ValueError, ImportError: as of the data set.
    """
    parts = [_open(config, split) for split in splits]
    # Of a second each, at least; a part that is read anew each time costs time only.
    steps = ECG.steps if config.data == "ecg" else 1000 / config.step_ms
    size = sum(map(len, parts)) * steps * channels_of(config)
    return Sequences(parts, keep=size < memory, progress=progress)


def _open(config: TrainConfig, split: Split) -> Any:
    root = config.root or ""
    if config.data == "ecg":
        return ECG(root, split)
    transform = sequence_of(config, torch.uint8)
    if config.data == "spoken-digits":
        return SpokenDigits(root, split, transform)
    return _HDF5[config.data](root, split, transform)
