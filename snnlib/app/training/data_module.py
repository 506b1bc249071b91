"""The data of a run: which sets, in which order, in which process."""

from __future__ import annotations

import math
import os
from collections.abc import Sized
from functools import partial
from itertools import islice
from typing import Any, cast

import lightning.pytorch as pl
import torch
from torch.utils.data import DataLoader, Dataset, Subset

from snnlib.app.read_options import folder_options
from snnlib.app.training.choices import IMAGES, SEQUENCES
from snnlib.app.training.config import TrainConfig
from snnlib.app.training.data_facts import data_facts
from snnlib.app.training.errors import ConfigError
from snnlib.app.training.frames import collate, frames_of
from snnlib.app.training.images import open_images
from snnlib.app.training.order import SeededCopies, TrainingBatches, stack_copies
from snnlib.app.training.sequences import Sequences, open_sequences
from snnlib.data import (
    MNIST,
    NMNIST,
    AugmentFrames,
    EventCache,
    EventDigits,
    EventFolder,
    FrameCache,
    SimulatedEvents,
    collate_ragged,
)
from snnlib.data.datasets.splits import Split

Samples = Dataset[tuple[torch.Tensor, Any]]


class EventData(pl.LightningDataModule):
    """Training, validation and test set of a run as batches `[T, N, C, H, W]` (uint8) and labels `[N]`.

    Images are kept as frames of one step, in which they are augmented, and become sequences (float32) in the batch.
    Sequences without frames are batches `[T, N, channels]`, labels `[N]` or `[T, N]`, and lengths `[N]`. The validation
    set is the data set's own, or a share of the training samples (`config.val_split`), chosen by the seed. Frames are
    kept in memory where they fit into half of it, so that only the first epoch reads files; else the events are kept in
    an `EventCache`.

    Args:
        config: the run's settings.
        progress: show a bar while data is made and read.

    Raises:
        ConfigError: the data folder is missing or damaged, or a package for the data is missing.
    """

    def __init__(self, config: TrainConfig, progress: bool = True) -> None:
        super().__init__()
        self.config, self.progress, self.facts = config, progress, data_facts(config)
        self.train_set: Samples
        # None where no samples are held out.
        self.val_set: Samples | None = None
        self.test_set: Samples

    def setup(self, stage: str) -> None:
        """Open the sets that `stage` needs; opening twice is free."""
        self._check_batches(self.config.copies if stage == "fit" else 1)
        if not hasattr(self, "test_set"):
            self.test_set = self._open("test")
        if stage == "fit" and not hasattr(self, "train_set"):
            self.train_set = self._open("train")
            if self.config.val_split and self.config.data in (*SEQUENCES, *IMAGES, "folder"):
                self.val_set = self._open("val")
            elif self.config.val_split:
                self.train_set, self.val_set = self._hold_out(self.train_set)

    def train_dataloader(self) -> DataLoader[Any]:
        """Augmented batches; samples, order and random numbers follow from the seed and the epoch alone."""
        config = self.config
        sequences = isinstance(self.train_set, Sequences)
        moved = not sequences and (config.shift or config.rotate or config.warp)
        augment = AugmentFrames(shift=config.shift, rotate=config.rotate, warp=config.warp) if moved else None
        samples = SeededCopies(self.train_set, augment, config.copies, config.seed)
        batches = TrainingBatches(
            len(samples),
            config.batch_size,
            config.seed,
            config.accumulate * self._processes,
            self._rank,
            self._processes,
            lengths=self.train_set.lengths if isinstance(self.train_set, Sequences) else None,
        )
        return self._loader(
            samples, batch_sampler=batches, collate_fn=partial(stack_copies, collate=collate(config))
        )

    def val_dataloader(self) -> list[DataLoader[Any]]:
        """The test set and, where there is one, the validation set, in their own order.

        With several processes each has its share, none twice.
        """
        loaders = []
        for samples in (self.test_set, self.val_set):
            if samples is not None:
                share = range(self._rank, len(cast(Sized, samples)), self._processes)
                loader = self._loader(
                    Subset(samples, share),
                    batch_size=self.config.batch_size,
                    collate_fn=collate(self.config),
                )
                loaders.append(loader)
        return loaders

    def first_batch(self) -> torch.Tensor:
        """The spike trains of one batch of the training set, chosen by the seed, for calibration.

        Recordings without events where the net looks are passed over, as they say nothing about rates.

        Raises:
            ConfigError: no training sample has an event there.
        """
        self.setup("fit")
        generator = torch.Generator().manual_seed(self.config.seed)
        order = torch.randperm(len(cast(Sized, self.train_set)), generator=generator)
        if isinstance(self.train_set, Sequences):
            # Of like lengths, cut to the shortest: padding would count as time without spikes.
            drawn = sorted(
                order[: 8 * self.config.batch_size].tolist(), key=self.train_set.lengths.__getitem__
            )
            start = (len(drawn) - min(self.config.batch_size, len(drawn))) // 2
            near = [self.train_set[i] for i in drawn[start : start + self.config.batch_size]]
            return collate_ragged(near)[0][: min(len(sequence) for sequence, _ in near)]
        samples = (self.train_set[index] for index in order.tolist())
        chosen = list(islice((sample for sample in samples if sample[0].any()), self.config.batch_size))
        if not chosen:
            raise ConfigError(
                "root" if self.config.crop is None else "crop",
                f"expected training samples with events in the part of the sensor and the time that the net sees, got "
                f"{len(order)} without any",
            )
        return collate(self.config)(chosen)[0]

    def untrained_classes(self) -> list[str]:
        """Names of the classes that the test set of recordings has and the training set has not."""
        if self.config.data in SEQUENCES:
            return []
        missing = set(_targets(self.test_set).tolist()) - set(_targets(self.train_set).tolist())
        return [self.facts.classes[label] for label in sorted(missing)]

    def batch_bytes(self, copies: int) -> int:
        """Bytes of a batch's frames as float32; 0 for sequences, whose lengths are their own."""
        if self.config.data in SEQUENCES:
            return 0
        return (
            4 * copies * self.config.batch_size * self.config.time_steps * math.prod(self.facts.input_shape)
        )

    def _check_batches(self, copies: int) -> None:
        """Raise ConfigError where not even the frames of a batch fit into memory."""
        config, memory, size = self.config, _memory_bytes(), self.batch_bytes(copies)
        if size > memory:
            raise ConfigError(
                "time_steps",
                f"expected batches that fit into memory, {memory / 1e9:.0f} GB, got {copies * config.batch_size} "
                f"samples of {config.time_steps} steps: {size / 1e9:.0f} GB for the frames alone",
            )

    @property
    def _processes(self) -> int:
        return 1 if self.trainer is None else self.trainer.world_size

    @property
    def _rank(self) -> int:
        return 0 if self.trainer is None else self.trainer.global_rank

    def _loader(self, samples: Dataset[Any], **options: Any) -> DataLoader[Any]:
        return DataLoader(
            samples,
            num_workers=self.config.workers,
            persistent_workers=self.config.workers > 0,
            # From pinned memory a batch moves to the GPU while the step before it runs; Lightning does not wait for it.
            pin_memory=self.trainer is not None and self.trainer.strategy.root_device.type == "cuda",
            # Of its own: loaders draw a number when they start, which a resumed run does at another moment.
            generator=torch.Generator().manual_seed(self.config.seed),
            **options,
        )

    def _open_sequences(self, *splits: Split) -> Sequences:
        try:
            sequences = open_sequences(
                self.config, splits, memory=_memory_bytes() / 2, progress=self.progress
            )
        except (OSError, ValueError, ImportError) as error:
            raise ConfigError("root", str(error)) from error
        if not len(sequences):
            raise ConfigError(
                "root", f"expected samples to {'/'.join(splits)} with in {self.config.root}, got none"
            )
        return sequences

    def _open_images(self, split: Split) -> Samples:
        try:
            return open_images(self.config, split, memory=_memory_bytes() / 2, progress=self.progress)
        except (OSError, ValueError, ImportError) as error:
            raise ConfigError("root", str(error)) from error

    def _open(self, split: Split) -> Samples:
        config, train = self.config, split == "train"
        if config.data in IMAGES:
            return self._open_images(split)
        if config.data in SEQUENCES:
            return self._open_sequences(split, *(("val",) if train and not config.val_split else ()))
        transform = frames_of(config, torch.uint8)
        try:
            samples: NMNIST | EventFolder | EventCache
            if config.data == "nmnist":
                assert config.root is not None
                samples = NMNIST(config.root, train)
            elif config.data == "mnist-events":
                # Simulated once, for this run and others.
                samples = EventCache(SimulatedEvents(MNIST(config.root or "", train)), progress=self.progress)
            elif config.data == "folder":
                options = folder_options(config.read)
                samples = EventFolder(config.root or "", split, val_share=config.val_split, **options)
                if tuple(samples.classes) != self.facts.classes:
                    raise ValueError(
                        f"expected the classes that the net was made for, {', '.join(self.facts.classes)}; found "
                        f"{', '.join(samples.classes)} in {config.root}"
                    )
            else:
                samples = EventDigits(config.root, train, progress=self.progress)
            fits = len(samples) * config.time_steps * math.prod(self.facts.input_shape) <= _memory_bytes() / 2
            if not fits and not isinstance(samples, EventCache):
                return EventCache(samples, transform=transform, progress=self.progress)
            samples.transform = transform
            if not fits:
                return samples
            return FrameCache(samples, preload=True, progress=self.progress, dtype=torch.uint8)
        except (OSError, ValueError) as error:
            raise ConfigError("val_split" if split == "val" else "root", str(error)) from error

    def _hold_out(self, samples: Samples) -> tuple[Samples, Samples]:
        """The samples to train on, and those held out: the same share of each class."""
        targets = _targets(samples)
        order = torch.randperm(len(targets), generator=torch.Generator().manual_seed(self.config.seed))
        held: list[int] = []
        for label in sorted(set(targets.tolist())):
            members = order[targets[order] == label]
            held += members[: round(self.config.val_split * len(members))].tolist()
        kept = sorted(set(range(len(targets))) - set(held))
        if not held or not kept:
            raise ConfigError(
                "val_split",
                f"expected a share that leaves samples to train on and to validate with, got {self.config.val_split} "
                f"of {len(targets)} samples",
            )
        return Subset(samples, kept), Subset(samples, sorted(held))


def _targets(samples: Any) -> torch.Tensor:
    """Labels of all samples, of a data set, a part of one, or what holds its frames in memory."""
    if isinstance(samples, Subset):
        return _targets(samples.dataset)[torch.as_tensor(samples.indices)]
    targets: torch.Tensor = samples.dataset.targets if isinstance(samples, FrameCache) else samples.targets
    return targets


def _memory_bytes() -> float:
    # Where the system does not say (Windows), 8 GB: what laptops have at least.
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 8e9
