"""The operations of a run's net on its test set, for `snnlib profile`."""

from __future__ import annotations

from collections.abc import Sized
from typing import cast

from torch.utils.data import DataLoader, Subset

from snnlib.app.training.config import TrainConfig
from snnlib.app.training.data_module import EventData
from snnlib.app.training.load import load_module
from snnlib.app.training.run_folder import RunFolder
from snnlib.app.training.weights import Checkpoint
from snnlib.inspect.operation_profile import Profile
from snnlib.inspect.operations import profile


def run_profile(
    config: TrainConfig, run: RunFolder, checkpoint: Checkpoint, samples: int | None, *, progress: bool
) -> Profile:
    """Profile the net of a run over its test set, or over the first samples of it.

    Raises:
        ConfigError, CheckpointError: as in `load`.
    """
    net = load_module(config, run, checkpoint).net
    data = EventData(config, progress)
    data.setup("test")
    chosen = data.test_set
    if samples is not None:
        chosen = Subset(chosen, range(min(samples, len(cast(Sized, chosen)))))
    # A sequence at a time, without padding.
    size = 1 if config.kind.ragged else config.batch_size
    return profile(net, DataLoader(chosen, batch_size=size, collate_fn=config.kind.collate(config)))
