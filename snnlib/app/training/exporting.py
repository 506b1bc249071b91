"""The net of a run in other forms, for `snnlib export`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor
from torch.utils.data import Dataset

from snnlib.app.errors import ConfigError
from snnlib.app.kinds.base import spread
from snnlib.app.kinds.words import WordKind
from snnlib.app.training.classifier import SpikingClassifier
from snnlib.app.training.config import TrainConfig
from snnlib.app.training.data_module import EventData
from snnlib.app.training.load import Checkpoint, load_module
from snnlib.app.training.run_folder import RunFolder


def how_to_feed(config: TrainConfig, classes: tuple[str, ...]) -> list[str]:
    """Describes the steps from events or sound to the net's frames, for the header of the program."""
    top, left, *_ = config.data.crop_box or (0, 0)
    late = "left out" if config.data.overflow == "drop" else "counted in the last one"
    named = ", ".join(f"{number} {name}" for number, name in enumerate(classes))
    place = [
        f"x = (column - {left}) / {config.data.pool}, y = (row - {top}) / {config.data.pool}; "
        "channel = polarity, 0 or 1.",
        f"Leave out columns and rows below the offsets. Events after the last step are {late}.",
    ]
    return [
        *(place if "frames" in config.data.kind.has else ()),
        f"A time step is {config.data.step_ms:g} ms, a recording {config.data.time_steps} of them.",
        "net_reset() before each recording. Its class is the largest output, summed over the steps:",
        f"{named}.",
    ]


def opened(folder: Path, checkpoint: Checkpoint, root: Path | None) -> tuple[SpikingClassifier, EventData]:
    """A run's net, and the data that it was trained and tested on.

    Raises:
        ConfigError, CheckpointError: as in `load`; a net that takes no frames.
    """
    run, config = RunFolder.open(folder, "RUN_FOLDER")
    if not {"frames", "counts"} & config.data.kind.has:
        raise ConfigError("RUN_FOLDER", f"expected a net for frames, got a net for {config.data.data}")
    if root is not None:
        config = config.changed(root=str(root))
    # Exporters write integers or numbers of 32 bits and more, and NumPy, which writes them, has no bfloat16.
    module = load_module(config, run, checkpoint).float()
    data = EventData(config, False)
    data.setup("fit")
    return module, data


def vectors_of(data: EventData, count: int) -> tuple[Tensor, dict[str, Any]]:
    """Test samples for a program, and the options of `export_c` that say what it takes: events, frames or sound."""
    kind, config = data.kind, data.config
    if not isinstance(kind, WordKind):
        binary = "frames" in kind.has and config.data.frames == "binary"
        return batch_of(data, data.test_set, count)[0], {"binary": binary}
    word = kind.transform(config)
    recordings = kind.recordings(config, "test", word.sound)
    sound = [recordings[number][0] for number in spread(len(recordings), count)]
    options = {"front_end": word.front_end, "stack": word.stack, "binary": False}
    return torch.stack(sound, 1), options


def batch_of(data: EventData, samples: Dataset[Any], count: int | None = None) -> tuple[Tensor, Tensor]:
    """Samples, evenly over all of them, as one batch `[T, N, C, H, W]` of float32, and their labels."""
    size = len(cast(Any, samples))
    chosen = [samples[number] for number in spread(size, size if count is None else count)]
    frames, labels = data.kind.collate(data.config)(chosen)
    return frames.float(), torch.as_tensor(labels)
