"""The net of a finished run, ready to use: `snnlib.load`, and predictions for event files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from snnlib.app.read_options import read_options
from snnlib.app.training.choices import IMAGES, SEQUENCES, STEPS_LABELLED
from snnlib.app.training.classifier import SpikingClassifier
from snnlib.app.training.config import TrainConfig
from snnlib.app.training.data_facts import data_facts
from snnlib.app.training.errors import ConfigError
from snnlib.app.training.frames import frames_of
from snnlib.app.training.images import image_shape, sequence_of_image
from snnlib.app.training.run_folder import RunFolder
from snnlib.app.training.sequences import Heard, sequence_of
from snnlib.app.training.weights import Checkpoint, checkpoint_path, load_weights
from snnlib.checks import warn_caller
from snnlib.data import ToFrames, ToSequence, read, read_image, read_wav
from snnlib.data.datasets.reader_options import ReaderOptions

# dtype of a run's weights by the name of its precision.
_DTYPES = {"64-true": torch.float64, "bf16-true": torch.bfloat16}


class LoadedRun(NamedTuple):
    """What `load` returns.

    Args:
        net: the trained net in evaluation mode; it maps spike tensors `[T, N, C, H, W]` to output potentials or spikes
            `[T, N, classes]`.
        transform: maps an event array to the net's input for one sample `[T, C, H, W]`, or `[T, channels]` for data
            without frames; sound `[samples]` and images uint8 `[C, H, W]` likewise; spikes `[T, 4]` of an
            electrocardiogram to the net's dtype.
        classes: names of the classes.
    """

    net: nn.Module
    transform: Callable[[Any], Tensor]
    classes: tuple[str, ...]


def load(run: str | Path, *, checkpoint: Checkpoint = "last") -> LoadedRun:
    """Load the net of a run of `snnlib train`, with what it needs to be used.

    Args:
        run: the run's folder.
        checkpoint: `"last"`, the net after the last epoch, or `"best"`, after the best one on the validation set.

    Raises:
        ConfigError: the folder holds no run, or no such checkpoint.
        CheckpointError: the checkpoint is damaged.
        ImportError: a package of `snnlib[train]` is missing.

    >>> net, transform, classes = snnlib.load("runs/first")  # doctest: +SKIP
    >>> events, _ = snnlib.data.read("sample.bin")  # doctest: +SKIP
    >>> classes[net(transform(events).unsqueeze(1)).mean(0).argmax()]  # doctest: +SKIP
    '7'
    """
    folder, config = RunFolder.open(Path(run), "run")
    module = load_module(config, folder, checkpoint)
    return LoadedRun(module.net, _transform(config), module.facts.classes)


def load_module(config: TrainConfig, run: RunFolder, checkpoint: Checkpoint) -> SpikingClassifier:
    """The run's net with its decision rule, in evaluation mode.

    Raises:
        ConfigError, CheckpointError: as in `load`.
    """
    module = SpikingClassifier(config, data_facts(config))
    load_weights(module, checkpoint_path(config, run, checkpoint))
    return module.to(_DTYPES.get(config.precision, torch.float32)).eval()


class Predictor:
    """Class scores of event files, of sound files, or of images, which are resized to those of the training.

    Args:
        config: the run's settings.
        run: the run's folder.
        checkpoint: as in `load`.

    Raises:
        ConfigError: a net with a class for every step.
    """

    def __init__(self, config: TrainConfig, run: RunFolder, checkpoint: Checkpoint) -> None:
        if config.data in STEPS_LABELLED:
            raise ConfigError(
                "RUN_FOLDER", f"expected a net that classifies whole recordings, got one of {config.data}"
            )
        self._module = load_module(config, run, checkpoint)
        self._transform = _transform(config)
        # As `EventFolder` reads its files.
        self._origin = "first" if config.data == "folder" else "auto"
        self._options = ReaderOptions(read_options(config.read))
        self._image_shape = image_shape(config) if config.data in IMAGES else (0, 0, 0)

    @torch.no_grad()
    def scores(self, file: Path) -> Tensor:
        """Scores of the classes `[classes]`.

        Raises:
            EventFileError: the file is damaged, has events outside the frame that the net was trained on, or sound of
                another rate.
            OSError: the file cannot be read.
        """
        # A crop leaves out what is outside; without one that is an error.
        size = self._transform.sensor_size if isinstance(self._transform, ToFrames) else None
        heard: Any
        if isinstance(self._transform, ToSequence):
            colours, *frame = self._image_shape
            heard = read_image(file, mode="colour" if colours == 3 else "grey", size=(frame[0], frame[1]))
        elif isinstance(self._transform, Heard):
            heard = read_wav(file, sample_rate=self._transform.cochlea.sample_rate)[0]
        else:
            general = {"sensor_size": size, "origin": self._origin}
            heard, _ = read(file, strict=True, **{**general, **self._options.of(file)})
        x = self._transform(heard)
        if not x.any() and not isinstance(self._transform, ToSequence):
            warn_caller(
                f"{file}: expected events in the part of the sensor and the time that the net sees, got none"
            )
        scores: Tensor = self._module(x.unsqueeze(1))[0]
        return scores

    def names_of(self, scores: Tensor) -> tuple[str, str]:
        """The classes with the highest and the second highest score; ties go to the lower class."""
        first, second = scores.argsort(descending=True, stable=True)[:2].tolist()
        return self._module.facts.classes[first], self._module.facts.classes[second]


def _transform(config: TrainConfig) -> Callable[[Any], Tensor]:
    dtype = _DTYPES.get(config.precision, torch.float32)
    if config.data in IMAGES:
        return sequence_of_image(config, dtype)
    return sequence_of(config, dtype) if config.data in SEQUENCES else frames_of(config, dtype)
