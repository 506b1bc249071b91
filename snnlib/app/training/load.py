"""The net of a finished run, ready to use: `snnlib.load`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from snnlib.app.training.classifier import SpikingClassifier
from snnlib.app.training.config import TrainConfig
from snnlib.app.training.run_folder import RunFolder
from snnlib.app.training.weights import Checkpoint, checkpoint_path, load_weights

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
    return LoadedRun(module.net, config.kind.transform(config, dtype_of(config)), module.facts.classes)


def load_module(config: TrainConfig, run: RunFolder, checkpoint: Checkpoint) -> SpikingClassifier:
    """The run's net with its decision rule, in evaluation mode.

    Raises:
        ConfigError, CheckpointError: as in `load`.
    """
    module = SpikingClassifier(config, config.kind.facts(config))
    load_weights(module, checkpoint_path(config, run, checkpoint))
    return module.to(dtype_of(config)).eval()


def dtype_of(config: TrainConfig) -> torch.dtype:
    """Returns the dtype of a run's weights."""
    return _DTYPES.get(config.precision, torch.float32)
