"""One row of numbers per epoch: `metrics.csv`, and the lines on the terminal."""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.utilities import rank_zero_only

from snnlib.app.training.classifier import SpikingClassifier
from snnlib.data.atomic import write_bytes_atomically

Row = dict[str, float]


class History(pl.Callback):
    """Collects a row per epoch and rewrites `metrics.csv` with it, whole or not at all.

    The rows are part of every checkpoint: a resumed run's table goes on where the checkpoint was made.

    Args:
        path: the CSV file.
        show: called with a line of text per epoch.
    """

    def __init__(self, path: Path, show: Callable[[str], None]) -> None:
        self.path, self.show = path, show
        self.rows: list[Row] = []
        self._start = self._trained = 0.0

    @rank_zero_only
    def on_train_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Say what is trained on what."""
        assert isinstance(module, SpikingClassifier)
        data: Any = trainer.datamodule  # type: ignore[attr-defined]
        held = "" if data.val_set is None else f", {len(data.val_set)} validation"
        self.show(
            f"net {module.config.net} with {sum(weight.numel() for weight in module.parameters()):,} weights "
            f"on {module.device.type} ({torch.get_num_threads()} CPU threads), "
            f"{len(data.train_set)} training{held} and {len(data.test_set)} test samples"
        )

    def on_train_epoch_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Start the clock."""
        self._start = time.perf_counter()

    def on_validation_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Training is done, the test begins."""
        self._trained = time.perf_counter()

    def on_train_epoch_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Add the epoch's row."""
        assert isinstance(module, SpikingClassifier)
        assert module.test_result is not None
        samples = len(trainer.train_dataloader.dataset)  # type: ignore[union-attr]
        scores = trainer.callback_metrics
        row: Row = {
            "epoch": trainer.current_epoch + 1,
            "train_loss": round(float(scores["train_loss"]), 6),
            "train_accuracy": round(float(scores["train_accuracy"]), 6),
            **{name: round(value, 6) for name, value in module.validation.items()},
            "test_loss": round(module.test_result.loss, 6),
            "test_accuracy": round(module.test_result.accuracy, 6),
            "lr": trainer.optimizers[0].param_groups[0]["lr"],
        }
        row |= {f"rate_{layer.name}": round(layer.rate, 6) for layer in module.test_result.layers}
        row |= {f"dead_{layer.name}": layer.dead for layer in module.test_result.layers}
        row["samples_per_s"] = round(samples / (self._trained - self._start), 1)
        row["seconds"] = round(time.perf_counter() - self._start, 3)
        self.rows.append(row)
        module.log("samples_per_s", row["samples_per_s"], rank_zero_only=True)
        self._write()
        self._say(row, trainer.max_epochs)

    def state_dict(self) -> dict[str, Any]:
        """The rows, for the checkpoint."""
        return {"rows": self.rows}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Rows up to the checkpoint."""
        self.rows = state_dict["rows"]

    @rank_zero_only
    def _write(self) -> None:
        text = io.StringIO()
        # Epochs of an older version of snnlib may lack columns.
        writer = csv.DictWriter(text, self.rows[-1], lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.rows)
        write_bytes_atomically(self.path, text.getvalue().encode())

    @rank_zero_only
    def _say(self, row: Row, epochs: int | None) -> None:
        validation = f"val accuracy {row['val_accuracy']:7.2%}   " if "val_accuracy" in row else ""
        self.show(
            f"epoch {row['epoch']:>2.0f}/{epochs}   train loss {row['train_loss']:.4f}   "
            f"train accuracy {row['train_accuracy']:7.2%}   {validation}test accuracy {row['test_accuracy']:7.2%}   "
            f"{row['samples_per_s']:6.0f} samples/s   {row['seconds']:5.1f} s"
        )
