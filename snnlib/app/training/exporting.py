"""The net of a run in other forms, for `snnlib export`."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor
from torch.utils.data import Dataset

from snnlib.app.errors import ConfigError
from snnlib.app.training.classifier import SpikingClassifier
from snnlib.app.training.config import TrainConfig
from snnlib.app.training.data_module import EventData
from snnlib.app.training.load import load_module
from snnlib.app.training.run_folder import RunFolder
from snnlib.app.training.weights import Checkpoint
from snnlib.exchange import compare_integers, export_c, export_onnx, to_integers, to_nir
from snnlib.exchange.integers.report import IntegerReport


def export_run_to_c(
    folder: Path,
    out: Path,
    checkpoint: Checkpoint,
    options: dict[str, Any],
    samples: tuple[int, int],
    root: Path | None,
) -> tuple[IntegerReport, dict[str, int]]:
    """Write the program; the accuracy lost per layer on the test set, and the program's sizes.

    Args:
        folder, checkpoint: the run and its net.
        out: folder of the program.
        options: of `to_integers`.
        samples: of the training set for calibration, and of the test set for the test vectors.
        root: where the data lie, if not where the run had them.

    Raises:
        ConfigError, CheckpointError: as in `load`.
        ValueError: a net that has no counterpart in integers.
    """
    module, config, data = _opened(folder, checkpoint, root)
    calibration, _ = _batch(config, data.train_set, samples[0])
    integers = to_integers(module.net, calibration, **options)
    frames, labels = _batch(config, data.test_set, None)
    report = compare_integers(module.net, integers, frames, labels, scores=module.objective.scores)
    sizes = export_c(
        integers,
        out,
        frames[:, : samples[1]],
        binary=config.frames == "binary",
        notes=_how_to_feed(config, module.facts.classes),
    )
    return report, sizes


def _how_to_feed(config: TrainConfig, classes: tuple[str, ...]) -> list[str]:
    """What stands between a camera's events and the net's frames, for the header of the program."""
    top, left, *_ = config.crop_box or (0, 0)
    late = "left out" if config.overflow == "drop" else "counted in the last one"
    named = ", ".join(f"{number} {name}" for number, name in enumerate(classes))
    return [
        f"x = (column - {left}) / {config.pool}, y = (row - {top}) / {config.pool}; channel = polarity, 0 or 1.",
        "Leave out columns and rows below the offsets.",
        f"A time step is {config.step_ms:g} ms, a recording {config.time_steps} of them; later events are {late}.",
        "net_reset() before each recording. Its class is the largest output, summed over the steps:",
        f"{named}.",
    ]


def run_to_nir(
    folder: Path, checkpoint: Checkpoint, dt: float, options: dict[str, Any], root: Path | None
) -> Any:
    """The graph of a run's net.

    Raises:
        ConfigError, CheckpointError: as in `load`.
        ValueError: a net that has no counterpart in NIR.
    """
    module, config, data = _opened(folder, checkpoint, root)
    frames, _ = _batch(config, data.test_set, 4)
    return to_nir(module.net, dt, x=frames, **options)


def export_run_to_onnx(folder: Path, out: Path, checkpoint: Checkpoint, root: Path | None) -> None:
    """Write a run's net as an ONNX graph.

    Raises:
        ConfigError, CheckpointError: as in `load`.
        ImportError: the package onnx is missing.
        ValueError: a net that has no counterpart in a dense graph.
    """
    module, config, data = _opened(folder, checkpoint, root)
    frames, _ = _batch(config, data.test_set, 1)
    export_onnx(module.net, out, frames)


def _opened(
    folder: Path, checkpoint: Checkpoint, root: Path | None
) -> tuple[SpikingClassifier, TrainConfig, EventData]:
    run, config = RunFolder.open(folder, "RUN_FOLDER")
    if "frames" not in config.kind.has:
        raise ConfigError("RUN_FOLDER", f"expected a net that takes frames, got one of {config.data}")
    if root is not None:
        config = dataclasses.replace(config, root=str(root))
    # What is written are integers or numbers of 32 bits and more, and NumPy, which writes them, has no bfloat16.
    module = load_module(config, run, checkpoint).float()
    data = EventData(config, False)
    data.setup("fit")
    return module, config, data


def _batch(config: TrainConfig, samples: Dataset[Any], count: int | None) -> tuple[Tensor, Tensor]:
    """Samples as one batch `[T, N, C, H, W]` of float32, and their labels."""
    size = len(cast(Any, samples))
    chosen = [samples[i] for i in _spread(size, size if count is None else min(count, size))]
    frames, labels = config.kind.collate(config)(chosen)
    return frames.float(), torch.as_tensor(labels)


def _spread(size: int, count: int) -> list[int]:
    """Indices over all samples, which may be sorted by class."""
    return [number * size // count for number in range(count)]
