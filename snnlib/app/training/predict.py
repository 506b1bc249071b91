"""Classes of files: events, sound, images and records, by the net of a run or by one that comes with the package."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from snnlib.app.errors import ConfigError
from snnlib.app.kinds import KINDS
from snnlib.app.recipes import recipe
from snnlib.app.training.config import TrainConfig
from snnlib.app.training.load import Checkpoint, dtype_of, load_module
from snnlib.app.training.run_folder import RunFolder
from snnlib.checks import warn_caller
from snnlib.data.word_to_steps import WordToSteps
from snnlib.models import trained
from snnlib.nn import Stream


class Answer(NamedTuple):
    """Answer of a net for a sample.

    Args:
        scores: of the classes `[classes]`.
        seconds: when in its file it ends or lies; None for the whole file.
        done: what was done to the file's content, in words.
    """

    scores: Tensor
    seconds: float | None = None
    done: str = ""


@dataclass(frozen=True)
class Predictor:
    """Class scores of event files, of sound files, of images, or of the beats of records.

    Args:
        net: sequences `[T, N, ...]` to outputs `[T, N, classes]`.
        decide: outputs to scores `[N, classes]`.
        transform: makes a sequence, or sequences, of what a file holds.
        classes: names of the classes.
        config: settings of the net's training.
    """

    net: nn.Module
    decide: Callable[[Tensor], Tensor]
    transform: Callable[[Any], Tensor]
    classes: tuple[str, ...]
    config: TrainConfig

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
        if config.data.kind.labels_steps:
            raise ConfigError(
                "RUN_FOLDER",
                f"expected a net that classifies whole recordings, got a net for {config.data.data}",
            )
        module = load_module(config, run, checkpoint)
        transform = config.data.kind.transform(config, dtype_of(config))
        return cls(module.net, module.objective.scores, transform, module.facts.classes, config)

    @classmethod
    def of_trained(cls, name: str) -> Predictor:
        """Returns the predictor of a net that comes with the package, `snnlib.models.load`, named as its data are."""
        kind, loaded = KINDS.get(name), trained.load(name)
        if kind is None or kind.labels_steps:
            raise ConfigError("NAME", f"expected a net that classifies whole files, got {name}")
        config = recipe(kind.recipe).config(data=name, root="")
        decide = partial(trained.scores_of, decision=loaded.card.decision)
        return cls(loaded.net, decide, loaded.transform, loaded.classes, config)

    @torch.no_grad()
    def answers(self, file: Path) -> list[Answer]:
        """Returns the answer for a file, or one for each sample in it.

        Raises:
            EventFileError: the file is damaged, has events outside the frame that the net was trained on, or sound of
                another rate.
            OSError: the file cannot be read.
        """
        kind = self.config.data.kind
        content, done = kind.reader(self.config)(file)
        x = self.transform(content)
        if not x.any() and "images" not in kind.has:
            warn_caller(f"{file}: expected events within the crop and the time steps of the net, got none")
        if kind.times is None:
            return [Answer(self.decide(self.net(x.unsqueeze(1)))[0], None, done)]
        return list(map(Answer, self.decide(self.net(x)), kind.times(content)))

    @torch.no_grad()
    def answers_by_step(self, file: Path) -> Iterator[Answer]:
        """Returns an answer after each step of a sound of any length, by the last steps, as many as training had.

        Sound goes through front end and net in parts of one step, as it comes from a microphone.

        Raises:
            ConfigError: a net of other data than words.
            EventFileError, OSError: as by `answers`.
        """
        transform, stream = self.transform, Stream(self.net)
        if not isinstance(transform, WordToSteps):
            raise ConfigError("steps", f"expected a net for words, got a net for {self.config.data.data}")
        sound, _ = self.config.data.kind.reader(self.config)(file)
        outputs: deque[Tensor] = deque(maxlen=transform.steps)
        heard = None
        for number, part in enumerate(sound.split(transform.hop), start=1):
            x, heard = transform.run(part, heard)
            if len(x):
                outputs.append(stream(x.unsqueeze(1)))
                yield Answer(
                    self.decide(torch.cat(tuple(outputs)))[0], number * self.config.data.step_ms / 1000
                )

    def names_of(self, scores: Tensor) -> tuple[str, str]:
        """Returns the classes with the highest and the second highest score; ties go to the lower class."""
        first, second = scores.argsort(descending=True, stable=True)[:2].tolist()
        return self.classes[first], self.classes[second]
