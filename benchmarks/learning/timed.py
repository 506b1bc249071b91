"""Training for a given processor time, evaluations not counted."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

# Update, seconds of training, accuracy.
Evaluation = tuple[int, float, float]


class Clock:
    """Processor time of this process since the clock was made, without that of `paused` blocks."""

    def __init__(self) -> None:
        self._start = time.process_time()
        self.paused_seconds = 0.0

    def seconds(self) -> float:
        return time.process_time() - self._start - self.paused_seconds

    @contextmanager
    def paused(self) -> Iterator[None]:
        before = time.process_time()
        try:
            yield
        finally:
            self.paused_seconds += time.process_time() - before


def rows(samples: int, batch: int, seed: int) -> Iterator[Tensor]:
    """Indices of batches, epoch after epoch without end, each in an order of its own."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        yield from torch.randperm(samples, generator=generator).split(batch)


def train_for(
    seconds: float,
    clock: Clock,
    batches: Iterator[Tensor],
    step: Callable[[Tensor, float], None],
    evaluate: Callable[[], float],
    evaluations: int,
) -> list[Evaluation]:
    """Steps until the clock shows `seconds`, and evaluates so many times on the way, evenly and last at the end.

    `step` gets the indices of a batch and the share of the time that is gone.
    """
    found: list[Evaluation] = []
    updates = 0
    while True:
        gone = clock.seconds()
        if gone >= seconds * (len(found) + 1) / evaluations:
            with clock.paused():
                found.append((updates, round(gone, 1), round(evaluate(), 4)))
            if len(found) == evaluations:
                return found
        else:
            step(next(batches), gone / seconds)
            updates += 1
