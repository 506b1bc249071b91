"""The net of a finished run, ready to use: `snnlib.load`; and which of its checkpoints to take."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from snnlib.app.errors import CheckpointError, ConfigError
from snnlib.app.training.checkpoint_io import (
    SafeCheckpointIO,
    find_intact,
    is_there,
    previous_of,
    remove_leftovers,
)
from snnlib.app.training.classifier import SpikingClassifier
from snnlib.app.training.config import TrainConfig
from snnlib.app.training.run_folder import RunFolder

Checkpoint = Literal["last", "best"]

# dtype of a run's weights by the name of its precision.
_DTYPES = {"64-true": torch.float64, "bf16-true": torch.bfloat16}


class LoadedRun(NamedTuple):
    """Result of `load`: net, transform and classes.

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
    return LoadedRun(module.net, config.data.kind.transform(config, dtype_of(config)), module.facts.classes)


def load_module(config: TrainConfig, run: RunFolder, checkpoint: Checkpoint) -> SpikingClassifier:
    """The run's net with its decision rule, in evaluation mode.

    Raises:
        ConfigError, CheckpointError: as in `load`.
    """
    module = SpikingClassifier(config, config.data.kind.facts(config))
    load_weights(module, checkpoint_path(config, run, checkpoint))
    return module.to(dtype_of(config)).eval()


def dtype_of(config: TrainConfig) -> torch.dtype:
    """Returns the dtype of a run's weights."""
    return _DTYPES.get(config.run.precision, torch.float32)


def checkpoint_path(config: TrainConfig, run: RunFolder, checkpoint: Checkpoint) -> Path:
    """The newest intact file of a checkpoint.

    Raises:
        ConfigError: `"best"` of a run without validation split.
        CheckpointError: the file is missing or damaged.
    """
    path = run.checkpoints / f"{checkpoint}.ckpt"
    if checkpoint == "best" and not config.learning.val_split and not path.exists():
        raise ConfigError("checkpoint", "expected last for a run without --val-split, got best")
    return find_intact(path)


def newest_checkpoint(run: RunFolder) -> Path | None:
    """Returns the checkpoint to go on from; None where the run ended before its first one was whole."""
    remove_leftovers(run.path)
    if not run.checkpoints.is_dir():
        return None
    remove_leftovers(run.checkpoints)
    last = run.checkpoints / "last.ckpt"
    return find_intact(last) if is_there(last) or is_there(previous_of(last)) else None


def load_weights(
    module: SpikingClassifier, path: Path, epochs: int | None = None, but: str | None = None
) -> None:
    """Load the weights of a checkpoint into the net of a run.

    Args:
        module: the run.
        path: the checkpoint.
        epochs: of the run that wrote it; None: of `module`'s own.
        but: name of a layer of the net that keeps its own weights. Default None.

    Raises:
        CheckpointError: the file is damaged, or holds no checkpoint of this net.
    """
    content = SafeCheckpointIO().load_checkpoint(path, map_location="cpu")
    weights, epoch = content.get("state_dict"), content.get("epoch")
    last = module.config.learning.epochs if epochs is None else epochs
    if type(epoch) is not int or not 0 <= epoch <= last:
        raise CheckpointError(f"{path}: expected an epoch in 0..{last}, got {epoch!r}")
    try:
        if not isinstance(weights, dict):
            raise TypeError(f"state_dict: expected tensors by name, got {type(weights).__name__}")
        # torch drops the imaginary part.
        if names := [
            name for name, value in weights.items() if torch.is_tensor(value) and value.is_complex()
        ]:
            raise TypeError(f"{names[0]}: expected real numbers, got {weights[names[0]].dtype}")
        if but is not None:
            weights |= {
                name: value for name, value in module.state_dict().items() if name.startswith(f"net.{but}.")
            }
        module.load_state_dict(weights)
    except (RuntimeError, TypeError, ValueError, AttributeError) as error:
        reason = " ".join(str(error).split())
        raise CheckpointError(
            f"{path}: expected the weights of the net {module.config.net.net}, got other weights: {reason}"
        ) from error


def load_init(module: SpikingClassifier, folder: Path) -> tuple[float | None, str | None]:
    """Loads the last weights of another run, but a last layer of other classes.

    Returns:
        The run's `logit_scale`, and the name of the layer that keeps its own weights.
    """
    run, config = RunFolder.open(folder, "init_from")
    (body, _, _), (own, _, _) = config.net.net.rpartition("-"), module.config.net.net.rpartition("-")
    other = body == own and config.net.net != module.config.net.net
    last = list(dict(module.net.named_children()))[-1] if other else None
    load_weights(module, checkpoint_path(config, run, "last"), config.learning.epochs, last)
    return config.learning.logit_scale, last
