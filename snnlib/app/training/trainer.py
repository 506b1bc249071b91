"""The Lightning trainer of a run: checkpoints, logs and progress as this library wants them."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import lightning.pytorch as pl
import torch
import torch.distributed as dist
from lightning.pytorch.callbacks import TQDMProgressBar
from lightning.pytorch.loggers import TensorBoardLogger
from lightning.pytorch.strategies import DDPStrategy, Strategy
from torch.nn.parallel import DistributedDataParallel

from snnlib.app.errors import ConfigError
from snnlib.app.training.checkpoint_io import SafeCheckpointIO
from snnlib.app.training.classifier import SpikingClassifier
from snnlib.app.training.config import TrainConfig
from snnlib.app.training.divergence import FiniteCheckpoint
from snnlib.app.training.run_folder import RunFolder
from snnlib.distributed import ordered_sum

# Messages of Lightning and its parts that do not concern a user of this command, with the reason.
_NOISE = (
    # Frames come from memory, so worker processes would only cost.
    ".*does not have many workers.*",
    # The user chose the device.
    ".*GPU available but not used.*",
    # Small data sets have fewer batches than the logging interval; epoch numbers are logged all the same.
    ".*The number of training batches.*is smaller than the logging interval.*",
    # Numbers of the test set are summed over all processes before they are logged.
    ".*when logging on epoch level in distributed setting.*",
    # The checkpoint folder of a resumed run.
    ".*Checkpoint directory.*exists and is not empty.*",
    # torch's own trees, through Lightning's data loaders.
    ".*treespec.*is deprecated.*",
)


class OrderedGradients(pl.Callback):
    """Adds the gradients of several processes in the order of their ranks."""

    def on_train_start(self, trainer: pl.Trainer, *_: Any) -> None:
        """Put the hook on the net that torch has made of ours, before its first step."""
        if isinstance(trainer.strategy.model, DistributedDataParallel):
            trainer.strategy.model.register_comm_hook(None, ordered_sum)


class ProgressBar(TQDMProgressBar):
    """Progress bar of an epoch that vanishes at its end; the line of the epoch stays."""

    def __init__(self) -> None:
        super().__init__(leave=False)

    def on_train_epoch_start(self, trainer: pl.Trainer, *_: Any) -> None:
        """Count epochs from 1, as the table of numbers does."""
        super().on_train_epoch_start(trainer)
        self.train_progress_bar.set_description(f"epoch {trainer.current_epoch + 1}/{trainer.max_epochs}")

    def on_validation_batch_start(self, *arguments: Any, **options: Any) -> None:
        """The test set and the validation set: no number."""
        super().on_validation_batch_start(*arguments, **options)
        self.val_progress_bar.set_description("test")

    def get_metrics(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> dict[str, Any]:
        """Loss and accuracy of the last step."""
        return {name: float(value) for name, value in cast(SpikingClassifier, pl_module).last_step.items()}


def build_trainer(config: TrainConfig, run: RunFolder | None = None, *callbacks: pl.Callback) -> pl.Trainer:
    """A trainer for `run`; without one, for a pass over the test set that writes nothing.

    Raises:
        ConfigError: the device is not there.
    """
    options: dict[str, Any] = {"logger": False, "enable_checkpointing": False}
    accelerator = _accelerator(config)
    tested_once = config.learning.test_after == "training" and not config.learning.val_split
    bars: list[pl.Callback] = [ProgressBar()] if sys.stdout.isatty() else []
    checkpoints: list[pl.Callback] = []
    if run is not None:
        # The order counts: the second saves the state of the first. "step" grows, so `last` is always new.
        best = [_keep(run, "best", monitor="val_accuracy")] if config.learning.val_split else []
        checkpoints = [*best, _keep(run, "last", monitor="step")]
        # A folder of its own: under Slurm Lightning begins with what an interrupted run has left in this one.
        logger = TensorBoardLogger(run.path, name="tensorboard", version="")
        options = {"logger": logger, "default_root_dir": run.path}
    return pl.Trainer(
        max_epochs=config.learning.epochs,
        check_val_every_n_epoch=config.learning.epochs if tested_once else 1,
        accelerator=accelerator,
        devices=config.run.devices,
        num_nodes=config.run.nodes,
        strategy=_strategy(config, accelerator),
        accumulate_grad_batches=config.learning.accumulate,
        precision=config.run.precision,
        callbacks=[OrderedGradients(), *bars, *callbacks, *checkpoints],
        plugins=[SafeCheckpointIO()],
        # The data module has samplers of its own, which also fix the order within one process.
        use_distributed_sampler=False,
        # On a GPU torch picks sums without a fixed order unless told otherwise; on a CPU the layers' are fixed already.
        deterministic=accelerator == "cuda",
        num_sanity_val_steps=0,
        enable_progress_bar=sys.stdout.isatty(),
        enable_model_summary=False,
        **options,
    )


@contextmanager
def quiet_lightning() -> Iterator[None]:
    """Show what concerns the user: no advertisements, no list of devices, none of the warnings known to be moot.

    What Lightning sets for the whole process is set back. Fresh memory is not filled with NaN, which deterministic
    algorithms ask for by default: all of it is written, and the fill would add a half to what neurons move on a GPU.
    """
    loggers = [logging.getLogger(name) for name in ("lightning.pytorch", "lightning.fabric")]
    levels = [logger.level for logger in loggers]
    deterministic = torch.are_deterministic_algorithms_enabled()
    memory: Any = torch.utils.deterministic
    fills = memory.fill_uninitialized_memory
    with warnings.catch_warnings():
        for message in _NOISE:
            warnings.filterwarnings("ignore", message)
        try:
            for logger in loggers:
                logger.setLevel(logging.WARNING)
            memory.fill_uninitialized_memory = False
            yield
        finally:
            memory.fill_uninitialized_memory = fills
            torch.use_deterministic_algorithms(deterministic)
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)


def _keep(run: RunFolder, name: str, monitor: str) -> FiniteCheckpoint:
    """Save `<name>.ckpt` after each epoch in which a number is at its highest."""
    return FiniteCheckpoint(
        run.checkpoints,
        filename=name,
        monitor=monitor,
        mode="max",
        save_on_train_epoch_end=True,
        enable_version_counter=False,
    )


def _strategy(config: TrainConfig, accelerator: str) -> Strategy | str:
    """Processes that train together exchange gradients by NCCL between GPUs, by gloo between CPUs."""
    if config.run.devices * config.run.nodes == 1:
        return "auto"
    if accelerator == "cuda" and not dist.is_nccl_available():
        # gloo cannot gather what lies on GPUs.
        raise ConfigError("devices", f"expected one GPU, as this torch has no NCCL, got {config.run.devices}")
    return DDPStrategy(process_group_backend="nccl" if accelerator == "cuda" else "gloo")


def _accelerator(config: TrainConfig) -> str:
    gpus = torch.cuda.device_count()
    if config.run.device == "cuda" and gpus < config.run.devices:
        raise ConfigError(
            "device", f"expected {config.run.devices} CUDA device(s) for cuda, got {gpus} on this machine"
        )
    return (
        "cuda"
        if config.run.device == "cuda" or (config.run.device == "auto" and gpus >= config.run.devices)
        else "cpu"
    )
