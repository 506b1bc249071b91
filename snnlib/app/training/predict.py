"""Classes of single files: events, sound and images, by the net of a run or by one that comes with the package."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from snnlib.app.errors import ConfigError
from snnlib.app.kinds import KINDS
from snnlib.app.kinds.base import Kind, Reader
from snnlib.app.recipes import recipe
from snnlib.app.training.config import TrainConfig
from snnlib.app.training.load import Checkpoint, dtype_of, load_module
from snnlib.app.training.run_folder import RunFolder
from snnlib.checks import warn_caller
from snnlib.models import trained


@dataclass(frozen=True)
class Predictor:
    """Class scores of event files, of sound files, or of images.

    Args:
        score: scores `[N, classes]` of sequences `[T, N, ...]`.
        transform: makes a sequence of what a file holds.
        classes: names of the classes.
        kind: of the data that the net was trained on.
        read: reads a file.
    """

    score: Callable[[Tensor], Tensor]
    transform: Callable[[Any], Tensor]
    classes: tuple[str, ...]
    kind: Kind
    read: Reader

    @classmethod
    def of_run(cls, config: TrainConfig, run: RunFolder, checkpoint: Checkpoint) -> Predictor:
        """Returns the predictor of a run's net.

        Args:
            config: the run's settings.
            run: the run's folder.
            checkpoint: as in `snnlib.load`.

        Raises:
            ConfigError: a net with a class for every step.
        """
        kind = config.kind
        if kind.labels_steps:
            raise ConfigError(
                "RUN_FOLDER", f"expected a net that classifies whole recordings, got one of {config.data}"
            )
        module = load_module(config, run, checkpoint)
        transform = kind.transform(config, dtype_of(config))
        return cls(module, transform, module.facts.classes, kind, kind.reader(config))

    @classmethod
    def of_trained(cls, name: str) -> Predictor:
        """Returns the predictor of a net that comes with the package, `snnlib.models.load`, named as its data are."""
        kind, loaded = KINDS.get(name), trained.load(name)
        if kind is None or kind.labels_steps:
            raise ConfigError("NAME", f"expected a net that classifies whole files, got {name}")
        config = recipe(kind.recipe).config(data=name, root="")
        return cls(loaded.scores, loaded.transform, loaded.classes, kind, kind.reader(config))

    @torch.no_grad()
    def scores(self, file: Path) -> tuple[Tensor, str]:
        """Returns scores of the classes `[classes]`, and what was done to the file's content, in words.

        Raises:
            EventFileError: the file is damaged, has events outside the frame that the net was trained on, or sound of
                another rate.
            OSError: the file cannot be read.
        """
        content, done = self.read(file)
        x = self.transform(content)
        if not x.any() and "images" not in self.kind.has:
            warn_caller(
                f"{file}: expected events in the part of the sensor and the time that the net sees, got none"
            )
        return self.score(x.unsqueeze(1))[0], done

    def names_of(self, scores: Tensor) -> tuple[str, str]:
        """Returns the classes with the highest and the second highest score; ties go to the lower class."""
        first, second = scores.argsort(descending=True, stable=True)[:2].tolist()
        return self.classes[first], self.classes[second]
