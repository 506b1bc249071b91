"""Points of the plane as times of spikes: the Yin-Yang data set, which needs no files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from snnlib import encoding
from snnlib.app.kinds.base import DataFacts, Kind, Reader
from snnlib.app.kinds.images import CollateImages, one_step
from snnlib.app.setting import wrong
from snnlib.data import YinYang
from snnlib.data.datasets.splits import Split

if TYPE_CHECKING:
    from snnlib.app.training.config import TrainConfig

# Times of the coordinates 0 and 1 in synaptic time constants, as Göltz et al. 2021 have them.
_FIRST, _LAST = 0.15, 2.0


def to_spikes(points: Tensor, config: TrainConfig, dtype: torch.dtype) -> Tensor:
    """Returns spikes `[T, ..., 4]` of points `[..., 4]`, divided between the two steps around their times."""
    times = config.net.tau_s * (_FIRST + (_LAST - _FIRST) * points.reshape(-1, points.shape[-1]))
    spikes = encoding.at_times(times, config.data.time_steps, mode="shared", dtype=dtype)
    return spikes.reshape(-1, *points.shape)


def read_point(file: Path) -> tuple[Tensor, str]:
    """Returns a point whose two coordinates a file holds as text."""
    x, y = np.loadtxt(file)
    return torch.tensor((x, y, 1 - x, 1 - y)), ""


@dataclass(frozen=True, kw_only=True)
class PointKind(Kind):
    """Points in the disc of the yin-yang symbol, four inputs of one spike each."""

    folder: str | None = None
    noun: str = "points"
    place: str = "the {noun} of the yin-yang symbol"
    sample: str = "{channels} spikes in {time_steps} steps, {tau_s:g} to a synaptic time constant"
    recipe: str = "yin-yang"
    # The last input comes after two thirds.
    deadline: float = 5 / 6

    def facts(self, config: TrainConfig) -> DataFacts:
        """The latest input needs a step, and one behind it."""
        least = int(_LAST * config.net.tau_s) + 2
        if config.data.time_steps < least:
            raise wrong(config, "time_steps", f"at least 2 tau_s + 2 = {least}")
        return DataFacts(YinYang.classes, (4, 1, 1))

    def open(self, config: TrainConfig, split: Split, progress: bool) -> YinYang:
        """The published points."""
        return YinYang(split, one_step)

    def transform(self, config: TrainConfig, dtype: torch.dtype) -> Callable[[Any], Tensor]:
        """Spikes at the times that are the point's coordinates."""
        return partial(to_spikes, config=config, dtype=dtype)

    def collate(self, config: TrainConfig) -> Callable[[Sequence[Any]], tuple[Tensor, ...]]:
        """Points become spikes here."""
        return CollateImages(self.transform(config, torch.float32))

    def reader(self, config: TrainConfig) -> Reader:
        """Two numbers as text."""
        return read_point


POINTS = (PointKind(name="yin-yang", help="points in the yin-yang symbol"),)
