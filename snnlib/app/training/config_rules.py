"""Checks settings of a run that depend on one another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from snnlib.app.errors import ConfigError
from snnlib.app.read_options import read_options
from snnlib.app.setting import settings_of, wrong
from snnlib.app.training.neuron import (
    FIXED_POINT_NEURONS,
    GRADED_NEURONS,
    SPIKE_TIME_NEURONS,
    STATE_SPACE_NEURONS,
)
from snnlib.app.training.objective import LOSSES
from snnlib.data import EventFileError

if TYPE_CHECKING:
    from snnlib.app.training.config import TrainConfig


def check_together(config: TrainConfig) -> None:
    """Checks what settings ask of each other.

    Raises:
        ConfigError: names a setting that does not fit the others, what was expected and what came.
    """
    for rule in (wanted_counts, blocks, graded, fixed_point, sparse, data, reader):
        rule(config)


def wanted_counts(config: TrainConfig) -> None:
    """More spikes of the right neuron than of the others; whole numbers for losses on spike trains."""
    if not config.learning.undesired < config.learning.desired:
        raise wrong(config, "undesired", f"fewer spikes than desired, {config.learning.desired:g}")
    for field in ("desired", "undesired"):
        value = getattr(config.learning, field)
        if LOSSES[config.learning.loss].wants_whole_counts and (value % 1 or value > config.data.time_steps):
            raise wrong(config, field, f"a whole number of spikes <= time_steps = {config.data.time_steps}")


def blocks(config: TrainConfig) -> None:
    """Neurons that fit batch norm; state-space blocks with theirs, before a read-out of potentials."""
    if config.net.batch_norm and config.net.neuron in SPIKE_TIME_NEURONS:
        raise ConfigError(
            "batch_norm", f"expected a neuron with a surrogate gradient beside it, got {config.net.neuron}"
        )
    are_blocks = [word.endswith("S") for word in config.net.net.split("-")[:-1]]
    if config.net.neuron not in STATE_SPACE_NEURONS:
        if any(are_blocks):
            known = ", ".join(sorted(STATE_SPACE_NEURONS))
            raise wrong(config, "neuron", f"one of {known} for the blocks of {config.net.net!r}")
        return
    if not all(are_blocks):
        raise wrong(config, "net", f"blocks like 64S before the last layer for {config.net.neuron}")
    if not LOSSES[config.learning.loss].of_potentials:
        raise wrong(config, "loss", f"tet or mean-potential for {config.net.neuron}")


def graded(config: TrainConfig) -> None:
    """Levels and threshold of neurons that take them, outside recurrent layers."""
    recurrent = any("R" in word for word in config.net.net.split("-"))
    if config.net.neuron in GRADED_NEURONS and config.net.dialect is None and not recurrent:
        return
    beside = "recurrent layers" if recurrent else config.net.dialect or config.net.neuron
    for field in ("levels", "threshold"):
        if getattr(config.net, field) != 1:
            raise wrong(config, field, f"1 with {beside}")


def fixed_point(config: TrainConfig) -> None:
    """Neurons that a chip has, in layers that it has, without norms behind the weights."""
    if config.net.dialect is None:
        return
    if config.net.neuron not in FIXED_POINT_NEURONS:
        known = " or ".join(sorted(FIXED_POINT_NEURONS))
        raise wrong(config, "neuron", f"{known} with dialect {config.net.dialect}")
    if config.net.batch_norm:
        raise wrong(
            config, "batch_norm", f"false with dialect {config.net.dialect}, whose weights have 8 bits"
        )
    if any("R" in word for word in config.net.net.split("-")):
        raise wrong(config, "net", f"layers without recurrence with dialect {config.net.dialect}")
    if config.run.precision not in ("32-true", "64-true"):
        raise wrong(config, "precision", f"32-true or 64-true with dialect {config.net.dialect}")


def sparse(config: TrainConfig) -> None:
    """Neurons and layers that take sparse connections, and such connections where they are to move."""
    if config.net.density < 1 and (config.net.neuron in SPIKE_TIME_NEURONS or config.net.batch_norm):
        beside = "batch_norm" if config.net.batch_norm else config.net.neuron
        raise wrong(config, "density", f"1 with {beside}")
    if config.net.density == 1 and config.learning.rewire != "no":
        raise wrong(config, "rewire", "no at density 1, at which all connections exist")


def data(config: TrainConfig) -> None:
    """A folder, nothing that the data have not, and what sequences of different lengths ask for."""
    kind = config.data.kind
    kind.check_root(config.data.root)
    values = config.settings()
    for declared in settings_of(config):
        without = declared.needs is not None and declared.needs not in kind.has
        if without and values[declared.name] != declared.off:
            reason = f"for {config.data.data}, which has no {declared.needs}"
            raise wrong(config, declared.name, f"{str(declared.off).lower()} {reason}")
    if config.data.encoding in ("rate", "latency") and (config.data.mean, config.data.std) != (0, 1):
        got = f"{config.data.mean} and {config.data.std}"
        raise ConfigError("encoding", f"expected mean 0 and std 1 with {config.data.encoding}, got {got}")
    if not kind.ragged:
        return
    if config.net.batch_norm:
        reason = "as padding would be part of its statistics"
        raise wrong(config, "batch_norm", f"false for {config.data.data}, {reason}")
    fits = "labels_steps" if kind.labels_steps else "knows_lengths"
    losses = [name for name, loss in LOSSES.items() if getattr(loss, fits)]
    if config.learning.loss not in losses:
        raise wrong(config, "loss", f"one of {', '.join(losses)} for {config.data.data}")


def reader(config: TrainConfig) -> None:
    """Options of readers as `NAME=VALUE`."""
    try:
        read_options(config.data.reader_options)
    except EventFileError as error:
        raise ConfigError("reader_options", str(error).partition(": ")[2]) from error
