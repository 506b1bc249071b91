"""Yin-Yang: points of the plane in three classes, a small task that is not linearly separable."""

from __future__ import annotations

import math

import numpy as np
import torch

from snnlib.checks import check_choice
from snnlib.data.checks import check_float_dtype, check_int
from snnlib.data.datasets.splits import SPLITS, Split
from snnlib.data.samples import Samples, Transform

__all__ = ["YinYang"]

# Radius of the disc, and of each of the two dots.
RADIUS, DOT_RADIUS = 0.5, 0.1
# Size and seed of the published sets.
_PUBLISHED = {"train": (5000, 42), "val": (1000, 41), "test": (1000, 40)}
# Largest seed of numpy's RandomState, which drew the published sets.
_LARGEST_SEED = 2**32 - 1


class YinYang(Samples):
    """Points in the disc of the yin-yang symbol as `(sample [4], label)`: `(x, y, 1 - x, 1 - y)`, labels 0 to 2.

    The disc has radius R = 0.5 around (R, R), the dots have radius r = 0.1 around their centers (R / 2, R) and
    (3 R / 2, R). With `d_left` and `d_right`, the distances from the two centers::

        label 2 (dot):   d_left < r  or  d_right < r
        label 1 (yang):  otherwise, where  d_left <= R / 2  or  (y > R and d_right > R / 2)
        label 0 (yin):   elsewhere

    Classes are balanced: for each sample a class is drawn first, then points of the square until one lies in the disc
    and in that class. Each split has the published size, seed and points, bit for bit in float64; another size or seed
    gives other points.

    `encoding.at_times(0.15 + 1.85 * samples, time_steps, dt=...)` converts the points to spikes as Göltz et al. ("Fast
    and energy-efficient neuromorphic deep learning with first-spike times", 2021) do, in synaptic time constants.

    Args:
        split: `"train"`, `"val"` or `"test"`: 5000 points by seed 42, 1000 by 41, 1000 by 40.
        transform: maps the sample.
        target_transform: maps the label.
        size: number of points. Default: the size of the split.
        seed: seed of the points. Default: the seed of the split.
        dtype: of the samples. Default float32.

    Attributes:
        classes: names of the labels.
        samples: all points, `[S, 4]`.
        targets: labels, int64 `[S]`.

    Raises:
        ValueError: an unknown split, a size below 1, or a seed outside 0 to 2^32 - 1.
        TypeError: a dtype that is not floating-point.

    Source: Kriener, Göltz, Petrovici, "The Yin-Yang dataset", NICE 2022 (arXiv 2102.08211, 2021).

    Example:
        >>> from snnlib.data import YinYang
        >>> fresh = YinYang(size=300, seed=7)
        >>> fresh.samples.shape, fresh.targets.bincount().tolist()
        (torch.Size([300, 4]), [100, 110, 90])
    """

    classes = ("yin", "yang", "dot")

    def __init__(
        self,
        split: Split = "train",
        transform: Transform | None = None,
        target_transform: Transform | None = None,
        *,
        size: int | None = None,
        seed: int | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__(transform, target_transform)
        check_choice("split", split, *SPLITS)
        check_float_dtype(dtype)
        self.split = split
        published_size, published_seed = _PUBLISHED[split]
        self.size = published_size if size is None else check_int("size", size, 1)
        self.seed = published_seed if seed is None else check_int("seed", seed, 0, _LARGEST_SEED)
        random = np.random.RandomState(self.seed)
        points, labels = [], []
        for _ in range(self.size):
            label = int(random.randint(len(self.classes)))
            points.append(_draw(random, label))
            labels.append(label)
        plane = torch.tensor(points, dtype=torch.float64)
        self.samples = torch.cat([plane, 1 - plane], 1).to(dtype)
        self.targets = torch.tensor(labels, dtype=torch.int64)

    def sample(self, number: int) -> torch.Tensor:
        """The point."""
        return self.samples[number]

    def __repr__(self) -> str:
        return f"YinYang({self.split}, {self.size} points of seed {self.seed})"


def _draw(random: np.random.RandomState, label: int) -> tuple[float, float]:
    """A point of the class, by rejection."""
    while True:
        x, y = (2 * RADIUS * float(number) for number in random.rand(2))
        if math.sqrt((x - RADIUS) ** 2 + (y - RADIUS) ** 2) <= RADIUS and class_of(x, y) == label:
            return x, y


def class_of(x: float, y: float) -> int:
    """The label of a point of the disc."""
    left = math.sqrt((x - 0.5 * RADIUS) ** 2 + (y - RADIUS) ** 2)
    right = math.sqrt((x - 1.5 * RADIUS) ** 2 + (y - RADIUS) ** 2)
    if left < DOT_RADIUS or right < DOT_RADIUS:
        return 2
    lower_half = left <= 0.5 * RADIUS
    upper_half = y > RADIUS and right > 0.5 * RADIUS
    return int(lower_half or upper_half)
