"""Folds of recordings for benchmarks of accuracy: the pool, its division, and means over folds with their errors."""

from __future__ import annotations

import math
import os
import statistics
from pathlib import Path

import numpy as np

from snnlib.data import NMNIST, EventDigits, write_nmnist


def recordings() -> tuple[str, list[tuple[np.ndarray, int]]]:
    """Name and pooled `(events, label)` of the data."""
    if os.environ.get("SNNLIB_DATA"):
        root = Path(os.environ["SNNLIB_DATA"]) / "nmnist_800"
        parts: list[NMNIST] = [NMNIST(root, train) for train in (True, False)]
        return "N-MNIST", [sample for part in parts for sample in part]
    parts = [EventDigits(train=train) for train in (True, False)]
    return "embedded digits (SNNLIB_DATA is unset)", [sample for part in parts for sample in part]


def fold_of_samples(labels: list[int], folds: int) -> list[int]:
    """Fold of each sample: classes are dealt out one after the other, each in a random order."""
    generator = np.random.default_rng(0)
    order = generator.permutation(len(labels))
    by_class = sorted(order.tolist(), key=lambda sample: labels[sample])
    fold = [0] * len(labels)
    for place, sample in enumerate(by_class):
        fold[sample] = place % folds
    return fold


def write_fold(root: Path, samples: list[tuple[np.ndarray, int]], fold: list[int], test: int) -> None:
    """The pool as `Train/` and `Test/`, in the layout of N-MNIST."""
    for number, ((events, label), of_fold) in enumerate(zip(samples, fold, strict=True)):
        folder = root / ("Test" if of_fold == test else "Train") / str(label)
        folder.mkdir(parents=True, exist_ok=True)
        write_nmnist(folder / f"{number:05}.bin", events)


def mean_and_error(values: list[float]) -> tuple[float, float]:
    """Mean and its standard error; NaN of one value."""
    error = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    return statistics.mean(values), error
