"""Checks settings of a run that depend on one another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from snnlib.app.read_options import read_options
from snnlib.app.training.choices import (
    IMAGES,
    LOSSES_OF_POTENTIALS,
    LOSSES_WITH_LENGTHS,
    SEQUENCES,
    STATE_SPACE_NEURONS,
    STEPS_LABELLED,
)
from snnlib.app.training.errors import ConfigError
from snnlib.app.training.setting import wrong
from snnlib.data import EventFileError

if TYPE_CHECKING:
    from snnlib.app.training.config import TrainConfig


def check_together(config: TrainConfig) -> None:
    """Checks what settings ask of each other.

    Raises:
        ConfigError: names a setting that does not fit the others, what was expected and what came.
    """
    for rule in (wanted_counts, batch_norm, blocks, sequences, images, data_folder, reader):
        rule(config)


def wanted_counts(config: TrainConfig) -> None:
    """More spikes of the right neuron than of the others; whole numbers for losses on spike trains."""
    if not config.undesired < config.desired:
        raise wrong(config, "undesired", f"fewer spikes than desired, {config.desired:g}")
    for field in ("desired", "undesired"):
        value = getattr(config, field)
        if config.loss in ("spike-time", "van-rossum") and (value % 1 or value > config.time_steps):
            raise wrong(config, field, f"a whole number of spikes <= time_steps = {config.time_steps}")


def batch_norm(config: TrainConfig) -> None:
    """Batch norm before neurons that learn with a surrogate gradient only."""
    if config.batch_norm and config.neuron == "srm":
        raise ConfigError("batch_norm", "expected a neuron with a surrogate gradient beside it, got srm")


def blocks(config: TrainConfig) -> None:
    """State-space blocks and their neurons go together, before a read-out of potentials."""
    are_blocks = [word.endswith("S") for word in config.net.split("-")[:-1]]
    known = ", ".join(sorted(STATE_SPACE_NEURONS))
    if config.neuron not in STATE_SPACE_NEURONS:
        if any(are_blocks):
            raise wrong(config, "neuron", f"one of {known} for the blocks of {config.net!r}")
        return
    if not all(are_blocks):
        raise wrong(config, "net", f"blocks like 64S before the last layer for {config.neuron}")
    if config.loss not in LOSSES_OF_POTENTIALS:
        raise wrong(config, "loss", f"tet or mean-potential for {config.neuron}")


def sequences(config: TrainConfig) -> None:
    """Nothing that needs frames or one length for all, for sequences."""
    if config.data not in SEQUENCES:
        return
    unused = {"shift": 0, "rotate": 0, "warp": 0, "crop": None, "pool": 1, "copies": 1}
    for field, fixed in unused.items():
        if getattr(config, field) != fixed:
            raise wrong(config, field, f"{fixed} for {config.data}, which has no frames")
    if config.batch_norm:
        reason = "as padding would be part of its statistics"
        raise wrong(config, "batch_norm", f"false for {config.data}, {reason}")
    losses = ("tet",) if config.data in STEPS_LABELLED else LOSSES_WITH_LENGTHS
    if config.loss not in losses:
        raise wrong(config, "loss", f"one of {', '.join(losses)} for {config.data}")


def images(config: TrainConfig) -> None:
    """Settings of images for images, those of sensors for recordings."""
    unused: dict[str, Any] = {} if config.data == "images" else {"size": None, "colour": False}
    if config.data in IMAGES:
        unused |= {"crop": None, "pool": 1}
    else:
        unused |= {"encoding": "current", "mean": 0.0, "std": 1.0}
    for field, fixed in unused.items():
        if getattr(config, field) != fixed:
            raise wrong(config, field, f"{str(fixed).lower()} for {config.data}")
    if config.encoding in ("rate", "latency") and (config.mean, config.std) != (0, 1):
        raise ConfigError(
            "encoding",
            f"expected mean 0 and std 1 beside {config.encoding}, got {config.mean} and {config.std}",
        )


def data_folder(config: TrainConfig) -> None:
    """A folder for all data but the embedded digits."""
    if config.data != "digits" and config.root is None:
        names = {"nmnist": "N-MNIST copy", "folder": "recordings", "images": "images"}
        what = names.get(config.data, "data set")
        raise ConfigError("root", f"expected the folder of the {what} for data {config.data}, got none")


def reader(config: TrainConfig) -> None:
    """Options of readers, for a folder of event files."""
    if config.read is None:
        return
    if config.data != "folder":
        raise wrong(config, "read", f"none for {config.data}, whose files need no options")
    try:
        read_options(config.read)
    except EventFileError as error:
        raise ConfigError("read", str(error).removeprefix("--read: ")) from error
