"""Stops a run whose loss is no finite number, and keeps checkpoints of the best and the last epoch before that."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
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
    """Lightning's checkpoints, but none of a net that diverged: the last good one stays.

    Only a higher number replaces a checkpoint: of epochs that are equally good the first is kept.
    """

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Save, if the epoch's loss is finite."""
        if loss_is_finite(trainer):
            super().on_train_epoch_end(trainer, pl_module)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a stored state, also in a folder that was moved since, where Lightning would forget the best."""

        def here(path: str) -> str:
            return str(Path(str(self.dirpath), Path(path).name)) if path else path

        paths = ("best_model_path", "kth_best_model_path", "last_model_path")
        moved = {name: here(state_dict[name]) for name in paths if name in state_dict}
        scores = {here(path): score for path, score in state_dict.get("best_k_models", {}).items()}
        super().load_state_dict({**state_dict, **moved, "dirpath": self.dirpath, "best_k_models": scores})


def loss_is_finite(trainer: pl.Trainer) -> bool:
    """Returns whether the mean training loss of the current epoch is a finite number."""
    return math.isfinite(float(trainer.callback_metrics["train_loss"]))
