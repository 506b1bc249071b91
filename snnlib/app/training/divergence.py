"""Stop a training run whose loss is no number any more."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.utilities import rank_zero_only


class StopWhenDiverged(pl.Callback):
    """Ends training after the first epoch with a NaN or infinite loss: its weights cannot recover.

    Args:
        show: called with a line of text.
    """

    def __init__(self, show: Callable[[str], None]) -> None:
        self.show = show

    def on_train_epoch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        """Check the mean loss of the epoch, which is the same in every process."""
        if not loss_is_finite(trainer):
            trainer.should_stop = True
            self._say(trainer)

    @rank_zero_only
    def _say(self, trainer: pl.Trainer) -> None:
        loss = float(trainer.callback_metrics["train_loss"])
        self.show(
            f"training diverged in epoch {trainer.current_epoch + 1}: the loss is {loss}; stopped. "
            "Checkpoints are of the last epoch before it. Try a lower --lr."
        )


class FiniteCheckpoint(ModelCheckpoint):
    """Lightning's checkpoints, but none of a net that diverged: the last good one stays."""

    # Lightning stores a callback's state under this name, and checkpoints of snnlib 0.1 have it under Lightning's own.
    __qualname__ = ModelCheckpoint.__qualname__

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Save, if the epoch's loss is finite."""
        if loss_is_finite(trainer):
            super().on_train_epoch_end(trainer, pl_module)


def loss_is_finite(trainer: pl.Trainer) -> bool:
    """Whether the mean training loss of the current epoch is a finite number."""
    return math.isfinite(float(trainer.callback_metrics["train_loss"]))
