"""Kinds of data: the settings of each, how a run opens it, and the shape that a net gets."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from snnlib.app.errors import ConfigError
from snnlib.data import AugmentFrames, stack_time_first
from snnlib.data.datasets.splits import Split

if TYPE_CHECKING:
    from snnlib.app.training.config import TrainConfig

Samples = Dataset[tuple[Tensor, Any]]
Reader = Callable[[Path], tuple[Any, str]]
"""Reads a file that is to be classified: its content, and what was done to it, in words."""
Times = Callable[[Any], Sequence[float]]
"""Seconds at which the samples in a file's content lie."""


@dataclass(frozen=True)
class DataFacts:
    """Shape and classes of the data that a net is built for.

    Args:
        classes: names of the classes; the label is the index.
        input_shape: polarities or colours, height and width of a frame `[C, H, W]`; channels, 1 and 1 of sequences
            without frames.
    """

    classes: tuple[str, ...]
    input_shape: tuple[int, int, int]


@dataclass(frozen=True)
class Choice:
    """Settings that were chosen to fit a folder of one's own, and why.

    Args:
        settings: fields of `TrainConfig`.
        reasons: one sentence per choice.
    """

    settings: dict[str, Any]
    reasons: list[str]


@dataclass(frozen=True, kw_only=True)
class Kind(ABC):
    """Kind of data for `snnlib train`. Opening missing or invalid data raises a ConfigError that names the setting.

    Args:
        name: value of `--data`.
        help: description of the data in the help of `--data`.
        folder: contents of the folder `root`, in messages; None if no folder is needed.
        noun: name of the samples in messages, such as "recordings".
        place: line on the terminal with the place of the data; settings and `noun` in braces are filled in.
        sample: line on the terminal with the shape of a sample `[channels, height, width]`, filled in likewise.
        has: properties of the data that settings may require (`needs` of a setting).
        recipe: default recipe of `snnlib train` for these data.
        changes: settings that differ from the recipe's.
        ragged: whether samples have different lengths.
        labels_steps: whether every step has a label.
        own_validation: whether the data have a validation set; else a share of the training samples is held out.
        deadline: share of the steps within which a loss on first spikes wants the label's first spike.
        public: name for `snnlib.data.download`; None if the data cannot be downloaded.
        times: returns the times of the samples of a file; None if a file is one sample.
    """

    name: str
    help: str
    folder: str | None = "data set"
    noun: str = "recordings"
    place: str = "the {noun} ({data}) in {root}"
    sample: str = "{time_steps} steps of {step_ms:g} ms, {channels} x {height} x {width} cells"
    has: frozenset[str] = frozenset()
    recipe: str = "digits"
    changes: Mapping[str, Any] = field(default_factory=dict)
    ragged: bool = False
    labels_steps: bool = False
    own_validation: bool = True
    deadline: float = 0.5
    public: str | None = None
    times: Times | None = None

    @abstractmethod
    def facts(self, config: TrainConfig) -> DataFacts:
        """Classes and size of the input, without reading all samples."""

    @abstractmethod
    def open(self, config: TrainConfig, split: Split, progress: bool) -> Samples:
        """The samples of a split, in memory where they fit into half of it; `progress` shows a bar meanwhile."""

    @abstractmethod
    def transform(self, config: TrainConfig, dtype: torch.dtype) -> Callable[[Any], Tensor]:
        """Returns the transform from a recording, sound or image to the sequence for the net."""

    @abstractmethod
    def reader(self, config: TrainConfig) -> Reader:
        """Returns the function that reads a file for prediction."""

    def collate(self, config: TrainConfig) -> Callable[[Sequence[Any]], tuple[Tensor, ...]]:
        """Returns the collate function: `(x, labels)`, for ragged samples `(x, labels, lengths)`."""
        return stack_time_first

    def augment(self, config: TrainConfig) -> Callable[[Tensor], Tensor] | None:
        """Returns the random augmentation of a training sample, or None."""
        own = config.learning
        moved = own.shift or own.rotate or own.warp
        return AugmentFrames(shift=own.shift, rotate=own.rotate, warp=own.warp) if moved else None

    def choose(self, given: Mapping[str, Any]) -> Choice | None:
        """Settings that fit the data, beside those that the user has given."""
        return None

    def check_root(self, root: str | None) -> None:
        """Raises ConfigError where the data need a folder and none is named."""
        if self.folder is not None and root is None:
            raise ConfigError(
                "root",
                f"expected the folder of the {self.folder} for data {self.name}, got none"
                + ("; --download downloads it" if self.public else ""),
            )

    def check_two(self, classes: Sequence[str]) -> None:
        """Raises ConfigError where there is nothing to tell apart."""
        if len(classes) < 2:
            raise ConfigError(
                "root", f"expected {self.noun} of at least two classes, got {', '.join(classes)}"
            )

    def say(self, text: str, config: TrainConfig, facts: DataFacts) -> str:
        """`place` or `sample` of a run."""
        channels, height, width = facts.input_shape
        values = {
            **config.settings(),
            "noun": self.noun,
            "channels": channels,
            "height": height,
            "width": width,
        }
        return text.format(**values)


def check_classes(found: Sequence[str], wanted: Sequence[str], root: str | None) -> None:
    """Raises ValueError where a folder has other classes than the net was made for."""
    if tuple(found) != tuple(wanted):
        raise ValueError(
            f"expected the classes that the net was made for, {', '.join(wanted)}; found {', '.join(found)} in {root}"
        )


def spread(samples: int, most: int) -> list[int]:
    """Indices of at most so many samples, evenly over all of them."""
    return sorted({int(index) for index in np.linspace(0, samples - 1, min(most, samples))})


def memory_bytes() -> float:
    """Memory of this machine."""
    # Where the system does not say (Windows), 8 GB: what laptops have at least.
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 8e9


def fits_into_memory(size: float) -> bool:
    """Returns whether samples of this size fit into half of the memory."""
    return size <= memory_bytes() / 2
