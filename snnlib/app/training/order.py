"""Order of the samples and their random numbers, equal for any number of processes and workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Sized
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, Sampler

from snnlib.data import stack_time_first
from snnlib.data.ragged import batches_of_like_lengths

# Epoch and number of a sample.
Draw = tuple[int, int]
Sample = tuple[Tensor, Any]


class TrainingBatches(Sampler[list[Draw]]):
    """Batches of an epoch: its samples in an order that seed and epoch fix, dealt out to the processes in turn.

    Process r of R gets batches r, r + R, ...; so the batches of a step, over all processes, are those that one process
    adds up over R batches. There are a multiple of `group` batches: the last ones take samples from the start again.

    Args:
        samples: how many samples there are.
        batch_size: samples in a batch; the last one of the epoch may have fewer.
        seed: of the order.
        group: batches in a step, over all processes.
        rank: this process, from 0.
        processes: how many there are.
        lengths: time steps of each sample, to put samples of like lengths into a batch; None where all are as long.
    """

    def __init__(
        self,
        samples: int,
        batch_size: int,
        seed: int,
        group: int = 1,
        rank: int = 0,
        processes: int = 1,
        lengths: Sequence[int] | None = None,
    ) -> None:
        self.lengths = lengths
        self.samples, self.batch_size, self.seed = samples, batch_size, seed
        self.group, self.rank, self.processes = group, rank, processes
        self.epoch = 0

    @property
    def sampler(self) -> TrainingBatches:
        """Where Lightning looks for `set_epoch`."""
        return self

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of an epoch."""
        self.epoch = epoch

    def _batches(self) -> int:
        batches = -(-self.samples // self.batch_size)
        return -(-batches // self.group) * self.group

    def __len__(self) -> int:
        return self._batches() // self.processes

    def __iter__(self) -> Iterator[list[Draw]]:
        generator = torch.Generator().manual_seed(self.seed + self.epoch)
        order = torch.randperm(self.samples, generator=generator).tolist()
        if self.lengths is None:
            starts = range(0, self.samples, self.batch_size)
            chunks = [order[first : first + self.batch_size] for first in starts]
        else:
            chunks = batches_of_like_lengths(order, self.lengths, self.batch_size, generator)
        for number in range(self.rank, self._batches(), self.processes):
            yield [(self.epoch, index) for index in chunks[number % len(chunks)]]


class SeededCopies(Dataset[list[Sample]]):
    """Augmented copies of samples, each drawn by a random generator that seed, epoch and sample fix.

    So a sample is moved, turned and bent the same whichever process reads it, and after whatever others.

    Args:
        samples: frames and labels.
        augment: gives new frames from a sample's, with numbers of torch's global generator; None for copies as they
            are.
        copies: of each sample.
        seed: of the run.
    """

    def __init__(
        self, samples: Dataset[Sample], augment: Callable[[Tensor], Tensor] | None, copies: int, seed: int
    ) -> None:
        self.samples, self.augment, self.copies, self.seed = samples, augment, copies, seed

    def __len__(self) -> int:
        return len(cast(Sized, self.samples))

    def __getitem__(self, draw: Draw) -> list[Sample]:
        frames, label = self.samples[draw[1]]
        if self.augment is None:
            return [(frames, label)] * self.copies
        number = int(np.random.SeedSequence((self.seed, *draw)).generate_state(1, np.uint64)[0])
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(number)
            return [(self.augment(frames), label) for _ in range(self.copies)]


def stack_copies(
    batch: Sequence[list[Sample]],
    collate: Callable[[Sequence[Sample]], tuple[Tensor, ...]] = stack_time_first,
) -> tuple[Tensor, ...]:
    """Batch of the samples' copies, those of a sample side by side."""
    return collate([copy for copies in batch for copy in copies])
