"""Data without frames: sequences `[T, channels]` of different lengths, with a label each or at every step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils.data import ConcatDataset, Dataset

from snnlib.app.errors import ConfigError, naming
from snnlib.app.kinds.base import DataFacts, Kind, Reader, fits_into_memory
from snnlib.app.kinds.events import event_reader
from snnlib.data import ECG, SHD, SSC, ToChannels, collate_ragged
from snnlib.data.datasets.shd import UNITS
from snnlib.data.datasets.splits import Split
from snnlib.data.progress import progress_bar

if TYPE_CHECKING:
    from snnlib.app.training.config import TrainConfig


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
        self._samples: ConcatDataset[Any] = ConcatDataset(parts)
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
        return len(self._samples)

    def __getitem__(self, index: int) -> tuple[Tensor, Any]:
        return self._kept[index] if self._kept else self._read(index)

    def _read(self, index: int) -> tuple[Tensor, Any]:
        sequence, label = self._samples[index]
        return sequence.to(torch.uint8), label


@dataclass(frozen=True, kw_only=True)
class SequenceKind(Kind):
    """Sequences; here spikes of speech in HDF5 files, whose classes are the file's.

    Args:
        dataset: the data set.
        channels: of its sequences.
    """

    recipe: str = "ecg"
    sample: str = "steps of {step_ms:g} ms, {channels} channels"
    ragged: bool = True
    dataset: Callable[[str, Split, Callable[[Any], Tensor]], Any]
    channels: int = UNITS

    def facts(self, config: TrainConfig) -> DataFacts:
        """Channels, 1 and 1."""
        with naming("root"):
            return DataFacts(tuple(self._opened(config, "test").classes), (self.channels, 1, 1))

    def open(self, config: TrainConfig, split: Split, progress: bool) -> Sequences:
        """The validation set trains too where none is asked for."""
        splits: tuple[Split, ...] = (
            ("train", "val") if split == "train" and not config.learning.val_split else (split,)
        )
        with naming("root"):
            parts = [self._opened(config, part) for part in splits]
            # Pieces last a second at least; a piece that is read anew each time costs time only.
            size = sum(map(len, parts)) * 1000 / config.data.step_ms * self.channels
            sequences = Sequences(parts, keep=fits_into_memory(size), progress=progress)
        if not len(sequences):
            raise ConfigError(
                "root", f"expected samples to {'/'.join(splits)} with in {config.data.root}, got none"
            )
        return sequences

    def transform(self, config: TrainConfig, dtype: torch.dtype) -> Callable[[Any], Tensor]:
        """Time steps of spikes in channels."""
        return ToChannels(
            step_us=config.data.step_us, channels=self.channels, mode=config.data.frames, dtype=dtype
        )

    def collate(self, config: TrainConfig) -> Callable[[Sequence[Any]], tuple[Tensor, ...]]:
        """With lengths."""
        return collate_ragged

    def reader(self, config: TrainConfig) -> Reader:
        """Events whose column is the channel."""
        return event_reader()

    def _opened(self, config: TrainConfig, split: Split) -> Any:
        return self.dataset(config.data.root or "", split, self.transform(config, torch.uint8))


@dataclass(frozen=True, kw_only=True)
class _ECG(SequenceKind):
    def facts(self, config: TrainConfig) -> DataFacts:
        return DataFacts(ECG.classes, (self.channels, 1, 1))

    def transform(self, config: TrainConfig, dtype: torch.dtype) -> Callable[[Any], Tensor]:
        return partial(torch.as_tensor, dtype=dtype)


SEQUENCES = (
    _ECG(
        name="ecg",
        help="electrocardiograms with a label at every step",
        labels_steps=True,
        dataset=lambda root, split, _: ECG(root, split),
        channels=ECG.channels,
    ),
    SequenceKind(
        name="shd", help="Spiking Heidelberg Digits", dataset=SHD, public="shd", changes={"net": "256R-20"}
    ),
    SequenceKind(
        name="ssc", help="Spiking Speech Commands", dataset=SSC, public="ssc", changes={"net": "512R-35"}
    ),
)
