"""Classes of single files: events, sound and images, by the net of a run or by one that comes with the package."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from snnlib.app.read_options import read_options
from snnlib.app.training.choices import IMAGES, STEPS_LABELLED
from snnlib.app.training.config import TrainConfig
from snnlib.app.training.errors import ConfigError
from snnlib.app.training.images import OF_MNIST, image_shape
from snnlib.app.training.load import load_module, transform_of
from snnlib.app.training.run_folder import RunFolder
from snnlib.app.training.weights import Checkpoint
from snnlib.checks import warn_caller
from snnlib.data import ToFrames, ToSequence, read, read_image, read_wav
from snnlib.data.datasets.reader_options import ReaderOptions
from snnlib.data.heard import Heard
from snnlib.models import trained

# MNIST's digits are light on dark; a picture whose border is lighter than this is dark on light.
_LIGHT = 128


@dataclass(frozen=True)
class Predictor:
    """Class scores of event files, of sound files, or of images.

    Args:
        score: scores `[N, classes]` of sequences `[T, N, ...]`.
        transform: makes a sequence of what a file holds.
        classes: names of the classes.
        image_shape: `[C, H, W]` to which images are brought.
        light_on_dark: whether images show light on dark, so that those with a light border are inverted.
        reading: options of the reader of event files.
        own: options of the readers of single formats.
    """

    score: Callable[[Tensor], Tensor]
    transform: Callable[[Any], Tensor]
    classes: tuple[str, ...]
    image_shape: tuple[int, int, int] = (0, 0, 0)
    light_on_dark: bool = False
    reading: Mapping[str, Any] = field(default_factory=dict)
    own: ReaderOptions = field(default_factory=lambda: ReaderOptions({}))

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
        if config.data in STEPS_LABELLED:
            raise ConfigError(
                "RUN_FOLDER", f"expected a net that classifies whole recordings, got one of {config.data}"
            )
        module = load_module(config, run, checkpoint)
        return cls(
            module,
            transform_of(config),
            module.facts.classes,
            image_shape(config) if config.data in IMAGES else (0, 0, 0),
            config.data in OF_MNIST,
            # As `EventFolder` reads its files.
            {"origin": "first" if config.data == "folder" else "auto"},
            ReaderOptions(read_options(config.read)),
        )

    @classmethod
    def of_trained(cls, name: str) -> Predictor:
        """Returns the predictor of a net that comes with the package, `snnlib.models.load`."""
        loaded = trained.load(name)
        if loaded.card.decision != "mean":
            raise ConfigError("NAME", f"expected a net that classifies whole files, got {name}")
        return cls(
            loaded.scores, loaded.transform, loaded.classes, loaded.card.input_shape, light_on_dark=True
        )

    @torch.no_grad()
    def scores(self, file: Path) -> tuple[Tensor, str]:
        """Returns scores of the classes `[classes]`, and what was done to the file's content, in words.

        Raises:
            EventFileError: the file is damaged, has events outside the frame that the net was trained on, or sound of
                another rate.
            OSError: the file cannot be read.
        """
        content, done = self._content(file)
        x = self.transform(content)
        if not x.any() and not isinstance(self.transform, ToSequence):
            warn_caller(
                f"{file}: expected events in the part of the sensor and the time that the net sees, got none"
            )
        return self.score(x.unsqueeze(1))[0], done

    def names_of(self, scores: Tensor) -> tuple[str, str]:
        """Returns the classes with the highest and the second highest score; ties go to the lower class."""
        first, second = scores.argsort(descending=True, stable=True)[:2].tolist()
        return self.classes[first], self.classes[second]

    def _content(self, file: Path) -> tuple[Any, str]:
        if isinstance(self.transform, ToSequence):
            return self._image(file)
        if isinstance(self.transform, Heard):
            return read_wav(file, sample_rate=self.transform.cochlea.sample_rate)[0], ""
        # A crop leaves out what is outside; without one that is an error.
        size = self.transform.sensor_size if isinstance(self.transform, ToFrames) else None
        options = {"sensor_size": size, **self.reading, **self.own.of(file)}
        return read(file, strict=True, **options)[0], ""

    def _image(self, file: Path) -> tuple[Tensor, str]:
        colours, height, width = self.image_shape
        whole = read_image(file, mode="colour")
        image = read_image(file, mode="colour" if colours == 3 else "grey", size=(height, width))
        done = []
        if colours == 1 and not (whole == whole[:1]).all():
            done.append("made grey")
        if whole.shape[1:] != image.shape[1:]:
            done.append(f"resized from {whole.shape[2]}x{whole.shape[1]} to {width}x{height}")
        if self.light_on_dark:
            border = torch.cat([image[:, [0, -1]].flatten(), image[:, :, [0, -1]].flatten()])
            if border.float().mean() > _LIGHT:
                image = 255 - image
                done.append("inverted, as its border is light")
        return image, ", ".join(done)
