"""History of a run: a row of numbers per epoch in `metrics.csv`, and lines on the terminal."""

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

from snnlib.app.training.checkup import Checkup
from snnlib.app.training.classifier import SpikingClassifier
from snnlib.files.atomic import write_bytes_atomically

Row = dict[str, float]

# An epoch that has taken this long, and is not half done, gets a line that says how long it will take.
ESTIMATE_AFTER_S = 10.0


class History(pl.Callback):
    """Collects a row per epoch and rewrites `metrics.csv` with it, whole or not at all.

    The rows are part of every checkpoint: a resumed run's table goes on where the checkpoint was made.

    Args:
        path: the CSV file.
        show: called with a line of text per epoch.
        checkup: counts the warnings of each layer in an epoch.

    Attributes:
        rows: the table.
        started: whether training has begun, so that all of a checkpoint has been restored.
    """

    def __init__(self, path: Path, show: Callable[[str], None], checkup: Checkup) -> None:
        self.path, self.show, self.checkup = path, show, checkup
        self.rows: list[Row] = []
        self.started = False
        self._start = self._trained = 0.0
        self._estimated = False

    def on_train_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Say what is trained on what, and for how many epochs."""
        self.started = True
        self._introduce(trainer, module)

    @rank_zero_only
    def _introduce(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        assert isinstance(module, SpikingClassifier)
        data: Any = trainer.datamodule  # type: ignore[attr-defined]
        config, facts, threads = module.config, module.facts, torch.get_num_threads()
        kind = config.data.kind
        tested = "each followed by a test and a line"
        if trainer.check_val_every_n_epoch != 1:
            tested = "each followed by a line, the last by a test"
        held = "" if data.val_set is None else f", {len(data.val_set)} validation"
        self.show(
            f"data: {len(data.train_set)} training{held} and {len(data.test_set)} test samples of "
            f"{len(facts.classes)} classes; a sample: {kind.say(kind.sample, config, facts)}"
        )
        self.show(
            f"net: {config.net.net} with {sum(weight.numel() for weight in module.parameters()):,} weights "
            f"on {module.device.type} ({threads} CPU {'thread' if threads == 1 else 'threads'})"
        )
        self.show(
            f"training: epochs {trainer.current_epoch + 1} to {trainer.max_epochs} of "
            f"{trainer.num_training_batches} batches, {tested}"
        )

    def on_train_epoch_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Start the clock."""
        self._start = time.perf_counter()

    @rank_zero_only
    def on_train_batch_end(
        self, trainer: pl.Trainer, module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Say once how long a long training will take."""
        seconds, share = time.perf_counter() - self._start, (batch_idx + 1) / trainer.num_training_batches
        if self._estimated or seconds < ESTIMATE_AFTER_S or share > 0.5:
            return
        self._estimated = True
        assert trainer.max_epochs is not None
        epochs = trainer.max_epochs - trainer.current_epoch
        self.show(f"about {duration(seconds / share)} per epoch, {duration(epochs * seconds / share)} in all")

    def on_validation_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Training is done, the test begins."""
        self._trained = time.perf_counter()

    def on_train_epoch_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Add the epoch's row."""
        assert isinstance(module, SpikingClassifier)
        # Without a test training ends here, and the last test began before this epoch.
        now, test = time.perf_counter(), module.test_result
        trained = self._trained if self._trained > self._start else now
        samples = len(trainer.train_dataloader.dataset)  # type: ignore[union-attr]
        scores = trainer.callback_metrics
        row: Row = {
            "epoch": trainer.current_epoch + 1,
            "train_loss": round(float(scores["train_loss"]), 6),
            "train_accuracy": round(float(scores["train_accuracy"]), 6),
            **{name: round(value, 6) for name, value in module.validation.items()},
        }
        if test is not None:
            row |= {"test_loss": round(test.loss, 6), "test_accuracy": round(test.accuracy, 6)}
        row["lr"] = trainer.optimizers[0].param_groups[0]["lr"]
        if test is not None:
            row |= {f"rate_{layer.name}": round(layer.rate, 6) for layer in test.layers}
            row |= {f"dead_{layer.name}": layer.dead for layer in test.layers}
        row |= {f"warned_{name}": count for name, count in self.checkup.warned.items()}
        row["samples_per_s"] = round(samples / (trained - self._start), 1)
        row["seconds"] = round(now - self._start, 3)
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
        writer = csv.DictWriter(text, self.rows[-1], lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.rows)
        write_bytes_atomically(self.path, text.getvalue().encode())

    @rank_zero_only
    def _say(self, row: Row, epochs: int | None) -> None:
        # An epoch is as long as the one before; those of a resumed run may have run elsewhere.
        remaining = row["seconds"] * ((epochs or 0) - row["epoch"])
        left = f"   {duration(remaining)} left" if remaining > 0 else ""
        validation = f"val accuracy {row['val_accuracy']:7.2%}   " if "val_accuracy" in row else ""
        test = f"test accuracy {row['test_accuracy']:7.2%}   " if "test_accuracy" in row else ""
        self.show(
            f"epoch {row['epoch']:>2.0f}/{epochs}   train loss {row['train_loss']:.4f}   "
            f"train accuracy {row['train_accuracy']:7.2%}   {validation}{test}"
            f"{row['samples_per_s']:6.0f} samples/s   {row['seconds']:5.1f} s{left}"
        )


def duration(seconds: float) -> str:
    """A time as a person says it.

    >>> duration(44), duration(600), duration(9000)
    ('44 s', '10 min', '2.5 h')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
