"""The data of a run: which sets, in which order, in which process."""

from __future__ import annotations

import math
from collections.abc import Sized
from functools import partial
from itertools import islice
from typing import Any, cast

import lightning.pytorch as pl
import torch
from torch.utils.data import DataLoader, Dataset, Subset

from snnlib.app.errors import ConfigError
from snnlib.app.kinds.base import Samples, memory_bytes
from snnlib.app.training.config import TrainConfig
from snnlib.app.training.order import SeededCopies, TrainingBatches, stack_copies
from snnlib.data import FrameCache, collate_ragged


class EventData(pl.LightningDataModule):
    """Training, validation and test set of a run as batches `[T, N, C, H, W]` (uint8) and labels `[N]`.

    Images are kept as frames of one step, in which they are augmented, and become sequences (float32) in the batch.
    Sequences without frames are batches `[T, N, channels]`, labels `[N]` or `[T, N]`, and lengths `[N]`. The validation
    set is the data set's own, or a share of the training samples (`config.learning.val_split`), chosen by the seed.

    Args:
        config: the run's settings.
        progress: show a bar while data is made and read.

    Raises:
        ConfigError: the data folder is missing or damaged, or a package for the data is missing.
    """

    def __init__(self, config: TrainConfig, progress: bool = True) -> None:
        super().__init__()
        self.config, self.kind, self.progress = config, config.data.kind, progress
        self.facts = self.kind.facts(config)
        self.train_set: Samples
        # Absent where no samples are held out.
        self.val_set: Samples | None = None
        self.test_set: Samples

    def setup(self, stage: str) -> None:
        """Open the sets that `stage` needs; opening twice is free."""
        self._check_batches(self.config.learning.copies if stage == "fit" else 1)
        if not hasattr(self, "test_set"):
            self.test_set = self.kind.open(self.config, "test", self.progress)
        if stage == "fit" and not hasattr(self, "train_set"):
            self.train_set = self.kind.open(self.config, "train", self.progress)
            if self.config.learning.val_split and self.kind.own_validation:
                self.val_set = self.kind.open(self.config, "val", self.progress)
            elif self.config.learning.val_split:
                self.train_set, self.val_set = self._hold_out(self.train_set)

    def train_dataloader(self) -> DataLoader[Any]:
        """Augmented batches; samples, order and random numbers follow from the seed and the epoch alone."""
        config = self.config
        samples = SeededCopies(
            self.train_set, self.kind.augment(config), config.learning.copies, config.learning.seed
        )
        batches = TrainingBatches(
            len(samples),
            config.learning.batch_size,
            config.learning.seed,
            config.learning.accumulate * self._processes,
            self._rank,
            self._processes,
            lengths=self._lengths,
        )
        collate = partial(stack_copies, collate=self.kind.collate(config))
        return self._loader(samples, batch_sampler=batches, collate_fn=collate)

    def val_dataloader(self) -> list[DataLoader[Any]]:
        """The test set and, where there is one, the validation set, in their own order.

        With several processes each has its share, none twice.
        """
        collate, size = self.kind.collate(self.config), self.config.learning.batch_size
        loaders = []
        for samples in (self.test_set, self.val_set):
            if samples is not None:
                share = range(self._rank, len(cast(Sized, samples)), self._processes)
                loaders.append(self._loader(Subset(samples, share), batch_size=size, collate_fn=collate))
        return loaders

    def first_batch(self) -> torch.Tensor:
        """The spike trains of one batch of the training set, chosen by the seed, for calibration.

        Recordings without events where the net looks are passed over, as they say nothing about rates.

        Raises:
            ConfigError: no training sample has an event there.
        """
        self.setup("fit")
        generator, size = (
            torch.Generator().manual_seed(self.config.learning.seed),
            self.config.learning.batch_size,
        )
        order = torch.randperm(len(cast(Sized, self.train_set)), generator=generator).tolist()
        if self._lengths is not None:
            # Samples of like lengths, cut to the shortest: padding would count as time without spikes.
            drawn = sorted(order[: 8 * size], key=self._lengths.__getitem__)
            start = (len(drawn) - min(size, len(drawn))) // 2
            near = [self.train_set[i] for i in drawn[start : start + size]]
            return collate_ragged(near)[0][: min(len(sequence) for sequence, _ in near)]
        samples = (self.train_set[index] for index in order)
        chosen = list(islice((sample for sample in samples if sample[0].any()), size))
        if not chosen:
            raise ConfigError(
                "root" if self.config.data.crop is None else "crop",
                f"expected training samples with events within the crop and the time steps of the net, got "
                f"{len(order)} without events",
            )
        return self.kind.collate(self.config)(chosen)[0]

    def untrained_classes(self) -> list[str]:
        """Names of the classes that the test set of recordings has and the training set has not."""
        if self.kind.ragged:
            return []
        missing = set(_targets(self.test_set).tolist()) - set(_targets(self.train_set).tolist())
        return [self.facts.classes[label] for label in sorted(missing)]

    def batch_bytes(self, copies: int) -> int:
        """Bytes of a batch's frames as float32; 0 for sequences, whose lengths are their own."""
        if self.kind.ragged:
            return 0
        samples = copies * self.config.learning.batch_size
        return 4 * samples * self.config.data.time_steps * math.prod(self.facts.input_shape)

    def _check_batches(self, copies: int) -> None:
        """Raise ConfigError where not even the frames of a batch fit into memory."""
        config, memory, size = self.config, memory_bytes(), self.batch_bytes(copies)
        if size > memory:
            raise ConfigError(
                "time_steps",
                f"expected batches that fit into memory, {memory / 1e9:.0f} GB, got "
                f"{copies * config.learning.batch_size} samples of {config.data.time_steps} steps: "
                f"{size / 1e9:.0f} GB for the frames alone",
            )

    @property
    def _lengths(self) -> list[int] | None:
        """Time steps of each training sample, where they have lengths of their own."""
        return getattr(self.train_set, "lengths", None)

    @property
    def _processes(self) -> int:
        return 1 if self.trainer is None else self.trainer.world_size

    @property
    def _rank(self) -> int:
        return 0 if self.trainer is None else self.trainer.global_rank

    def _loader(self, samples: Dataset[Any], **options: Any) -> DataLoader[Any]:
        return DataLoader(
            samples,
            num_workers=self.config.run.workers,
            persistent_workers=self.config.run.workers > 0,
            # From pinned memory a batch moves to the GPU while the step before it runs; Lightning does not wait for it.
            pin_memory=self.trainer is not None and self.trainer.strategy.root_device.type == "cuda",
            # A separate generator: loaders draw a number when they start, which a resumed run does at another moment.
            generator=torch.Generator().manual_seed(self.config.learning.seed),
            **options,
        )

    def _hold_out(self, samples: Samples) -> tuple[Samples, Samples]:
        """The samples to train on, and those held out: the same share of each class."""
        targets = _targets(samples)
        order = torch.randperm(
            len(targets), generator=torch.Generator().manual_seed(self.config.learning.seed)
        )
        held: list[int] = []
        for label in sorted(set(targets.tolist())):
            members = order[targets[order] == label]
            held += members[: round(self.config.learning.val_split * len(members))].tolist()
        kept = sorted(set(range(len(targets))) - set(held))
        if not held or not kept:
            raise ConfigError(
                "val_split",
                "expected a share that leaves samples to train on and to validate with, got "
                f"{self.config.learning.val_split} of {len(targets)} samples",
            )
        return Subset(samples, kept), Subset(samples, sorted(held))


def _targets(samples: Any) -> torch.Tensor:
    """Labels of all samples, of a data set, a part of one, or what holds its frames in memory."""
    if isinstance(samples, Subset):
        return _targets(samples.dataset)[torch.as_tensor(samples.indices)]
    targets: torch.Tensor = samples.dataset.targets if isinstance(samples, FrameCache) else samples.targets
    return targets
