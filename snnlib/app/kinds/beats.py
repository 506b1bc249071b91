"""Heart beats of records, one after the other, as whole numbers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils.data import Dataset, Subset

from snnlib.app.errors import ConfigError, naming
from snnlib.app.kinds.base import DataFacts, Kind, Reader, Samples
from snnlib.app.kinds.joined_beats import RUNS, join_beats
from snnlib.data import MITBIH, BeatFrames
from snnlib.data.beat_frames import INTERVALS
from snnlib.data.datasets.mitbih import Record
from snnlib.data.datasets.splits import Split
from snnlib.data.ragged import NO_LABEL

if TYPE_CHECKING:
    from snnlib.app.training.config import TrainConfig

# Normal, supraventricular and ventricular beats; fusions and unknown ones are no class of their own.
CLASSES = ("N", "S", "V")
# More than the largest number of a record.
RECORDS = 1000
# Beats of an epoch, and the share of each class: rare ones are drawn often enough to be learned.
DRAWN, _SHARES = 19_200, (0.5, 0.1, 0.4)


class Beats(Dataset[tuple[Tensor, Any]]):
    """Beats of many records, uint8 `[S, T, C]`, their labels, and the record of each.

    Args:
        root, split, fold: as in `MITBIH`.
        front_end: makes frames of a record.
        joined: whether to add records that are joined from the beats of each, numbered k * 1000 + their record for the
            k-th entry of `RUNS`. Default False.
    """

    def __init__(
        self, root: str, split: Split, fold: int | None, front_end: BeatFrames, joined: bool = False
    ) -> None:
        whole = MITBIH(root, split, unit="record", after=front_end.after, labels=CLASSES, fold=fold)
        beats, labels, records = [], [], []
        for number in range(len(whole)):
            signal, over_time = whole[number]
            ends = whole.peaks[number] + front_end.after - 1
            label = over_time[ends[ends < len(signal)]]
            record, peaks = int(whole.records[number]), whole.peaks[number][: len(label)]
            known = label != NO_LABEL
            found = [(record, front_end(signal, peaks)[known], label[known])]
            for kind, runs in enumerate(RUNS if joined else (), 1):
                if other := join_beats(signal, peaks, label.numpy(), runs, RECORDS * kind + record):
                    found.append((RECORDS * kind + record, front_end(*other[:2]), torch.from_numpy(other[2])))
            for name, of_record, of_beats in found:
                beats.append(of_record)
                labels.append(of_beats)
                records.append(torch.full_like(of_beats, name))
        self.beats, self.targets, self.records = torch.cat(beats), torch.cat(labels), torch.cat(records)

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, number: int) -> tuple[Tensor, int]:
        return self.beats[number], int(self.targets[number])


def balanced(targets: Tensor, records: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Numbers of beats, drawn so that classes have their shares and no record has too large a part of its class.

    A beat weighs by the root of how many of its class its record has.
    """
    cell = records * len(CLASSES) + targets
    weight = cell.bincount()[cell].rsqrt()
    for label, share in enumerate(_SHARES):
        of_class = targets == label
        weight[of_class] *= share / weight[of_class].sum().clamp(min=1e-9)
    drawn: Tensor = weight.multinomial(count, replacement=True, generator=generator)
    return drawn


class VaryBeats:
    """Beats `[T, C]` or `[T, N, C]` of whole numbers with other amplitudes of both leads, a shifted zero and noise."""

    def __call__(self, beats: Tensor) -> Tensor:
        batch = beats.unsqueeze(1) if beats.dim() == 2 else beats
        samples, channels = batch.shape[1:]
        signals = channels - INTERVALS
        gain, zero = torch.ones(2, samples, channels)
        gain[:, :signals] = (0.2 * torch.randn(samples, 2)).exp().repeat(1, signals // 2)
        zero[:, :signals] = 2 * torch.randn(samples, 2).repeat(1, signals // 2)
        zero[:, signals:] = 4 * torch.randn(samples, INTERVALS)
        noise = 4 * torch.randn(*batch.shape[:2], signals)
        varied = (batch.float() - 128) * gain + zero
        varied[..., :signals] += noise
        whole: Tensor = (varied + 128).round_().clamp_(0, 255).to(beats.dtype)
        return whole.view(beats.shape)


@dataclass(frozen=True, kw_only=True)
class BeatKind(Kind):
    """Beats of records, with folds by patient."""

    noun: str = "records"
    sample: str = "{time_steps} steps of {channels} channels"
    has: frozenset[str] = frozenset({"folds", "counts"})
    own_validation: bool = False

    def facts(self, config: TrainConfig) -> DataFacts:
        """Classes N, S and V, and the channels."""
        front_end = BeatFrames()
        if config.data.time_steps != front_end.steps:
            raise ConfigError(
                "time_steps", f"expected {front_end.steps} for {self.name}, got {config.data.time_steps}"
            )
        return DataFacts(CLASSES, (front_end.channels, 1, 1))

    def open(self, config: TrainConfig, split: Split, progress: bool) -> Samples:
        """All beats of a set; of the training set as many as an epoch has, balanced."""
        with naming("root"):
            beats = Beats(
                config.data.root or "", split, config.data.fold, BeatFrames(), joined=split == "train"
            )
        if split != "train":
            return beats
        generator = torch.Generator().manual_seed(config.learning.seed)
        chosen = balanced(beats.targets, beats.records, DRAWN, generator)
        return Subset(beats, chosen.tolist())

    def augment(self, config: TrainConfig) -> VaryBeats:
        """Other amplitudes, and noise."""
        return VaryBeats()

    def transform(self, config: TrainConfig, dtype: torch.dtype) -> Any:
        """Signal and R peaks of a record to its beats `[T, beats, C]`."""
        return lambda record: BeatFrames()(*record).transpose(0, 1).to(dtype)

    def reader(self, config: TrainConfig) -> Reader:
        """Records, by any of their files."""
        return _read_record


def _read_record(file: Path) -> tuple[tuple[Tensor, Any], str]:
    record = Record(file.with_suffix(""))
    return (record.millivolts(), record.peaks), ""


BEATS = (
    BeatKind(
        name="beats",
        help="heart beats",
        recipe="beats",
        public="mitbih",
        times=lambda record: (record[1] / MITBIH.sample_rate).tolist(),
    ),
)
