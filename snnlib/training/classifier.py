"""The Lightning module: a spiking net with one output neuron per class."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import lightning.pytorch as pl
import torch
from torch import Tensor, nn

from snnlib import __version__
from snnlib.activity import LayerActivity, SpikeCounter
from snnlib.models import from_notation
from snnlib.nn import SRMLayer, SRMLinear, SRMReadout, standardize_weights, supervised_spikes
from snnlib.training.config import TrainConfig
from snnlib.training.data_module import CLASSES, INPUT_SHAPE
from snnlib.training.errors import ConfigError
from snnlib.training.objective import build_objective


@dataclass(frozen=True)
class TestResult:
    """What a pass over the test set found.

    Args:
        confusion: samples by label (row) and prediction (column) `[classes, classes]`.
        layers: firing of each SRM layer.
    """

    # Not a test case, whatever its name says to pytest.
    __test__ = False

    confusion: Tensor
    layers: list[LayerActivity]

    @property
    def accuracy(self) -> float:
        """Share of samples on the diagonal."""
        return int(self.confusion.diagonal().sum()) / max(int(self.confusion.sum()), 1)


class SpikingClassifier(pl.LightningModule):
    """Net, loss and optimiser of a run. The class with the highest score wins; ties go to the lowest class.

    Args:
        config: the run's settings.

    Raises:
        ConfigError: a net that is not understood, does not fit the frames or has no neuron per class.
    """

    test_result: TestResult | None = None
    last_step: Mapping[str, Tensor] = MappingProxyType({})

    def __init__(self, config: TrainConfig) -> None:
        super().__init__()
        self.config = config
        self.net = _build_net(config)
        self.objective = build_objective(config)
        self.activity = SpikeCounter(self.net)
        self._confusion: Tensor

    def forward(self, frames: Tensor) -> Tensor:
        """Scores `[N, classes]` of frames `[T, N, 2, 34, 34]` of any dtype."""
        return self.objective.scores(self._output(frames))

    def training_step(self, batch: tuple[Tensor, Tensor], batch_index: int) -> Tensor:
        """Loss of a batch; loss and accuracy go to the log."""
        frames, labels = batch
        output_layer = list(self.net.children())[-1]
        if isinstance(output_layer, SRMLinear):
            with supervised_spikes(output_layer, labels) as teacher:
                output = self._output(frames)
            # An answer that the teacher gave is none.
            answered = ~teacher.taught
        else:
            output, answered = self._output(frames), torch.ones_like(labels, dtype=torch.bool)
        loss = self.objective.loss(output, labels)
        right = (self.objective.scores(output).argmax(1) == labels) & answered
        scores = {"train_loss": loss.detach(), "train_accuracy": right.float().mean()}
        self.log_dict(scores, on_step=False, on_epoch=True, batch_size=len(labels), sync_dist=True)
        # Logging it for the progress bar takes two milliseconds a step.
        self.last_step = {"loss": scores["train_loss"], "accuracy": scores["train_accuracy"]}
        return loss

    def target_rates(self) -> dict[str, float]:
        """Firing rate that each SRM layer is calibrated to before training."""
        names = [name for name, module in self.net.named_modules() if isinstance(module, SRMLayer)]
        rates = dict.fromkeys(names, self.config.target_rate)
        # The output layer has a rate of its own, if it fires at all.
        return rates if self.config.loss == "tet" else {**rates, names[-1]: self.config.output_rate}

    def on_train_epoch_start(self) -> None:
        """Seed what is random in the epoch by its number: a resumed run then needs no state from before."""
        torch.manual_seed(self.config.seed + 1000003 * self.current_epoch + self.global_rank)

    def on_validation_epoch_start(self) -> None:
        """Start counting predictions and spikes."""
        self._confusion = torch.zeros(CLASSES, CLASSES, dtype=torch.float64, device=self.device)
        self.activity.reset()

    def validation_step(self, batch: tuple[Tensor, Tensor], batch_index: int) -> None:
        """Count the predictions of a batch."""
        frames, labels = batch
        with self.activity.counting():
            pairs = labels * CLASSES + self(frames).argmax(1)
        self._confusion += torch.bincount(pairs, minlength=CLASSES**2).view_as(self._confusion)

    def on_validation_epoch_end(self) -> None:
        """Sum up over processes and keep the result."""
        reduce = self.trainer.strategy.reduce
        confusion = reduce(self._confusion, reduce_op="sum")
        self.activity.counts = {
            name: reduce(count, reduce_op="sum") for name, count in self.activity.counts.items()
        }
        self.activity.steps = reduce(self.activity.steps.to(self.device), reduce_op="sum")
        self.test_result = TestResult(confusion.long().cpu(), self.activity.layers())
        # The same number in every process already.
        self.log("test_accuracy", self.test_result.accuracy, sync_dist=False)
        self.log_dict({f"rate/{layer.name}": layer.rate for layer in self.test_result.layers})

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Record which snnlib made the checkpoint."""
        checkpoint["snnlib_version"] = __version__

    def _output(self, frames: Tensor) -> Tensor:
        output: Tensor = self.net(frames.to(next(self.net.parameters()).dtype))
        return output

    def configure_optimizers(self) -> Any:
        """AdamW with a linear warm-up and a cosine decay to 0, per step."""
        config = self.config
        optimizer = torch.optim.AdamW(self.parameters(), lr=config.lr, weight_decay=config.weight_decay)
        steps = int(self.trainer.estimated_stepping_batches)
        warmup = config.warmup_epochs * steps / config.epochs

        # A function of the step alone, so that a resumed run has the same rates.
        def factor(step: int) -> float:
            cosine = (1 + math.cos(math.pi * min(max(step - warmup, 0) / max(steps - warmup, 1), 1))) / 2
            return min((step + 1) / (warmup + 1), 1) * cosine

        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def _build_net(config: TrainConfig) -> nn.Module:
    try:
        net = from_notation(
            config.net, INPUT_SHAPE, tau_m=config.tau_m, tau_s=config.tau_s, tau_grad=config.tau_grad
        )
    except ValueError as error:
        # The library's messages start with the name of the argument that they refuse.
        field, _, text = str(error).partition(": ")
        if field in ("tau_m", "tau_s", "tau_grad"):
            raise ConfigError(field, text) from error
        raise ConfigError("net", text if field == "notation" else str(error)) from error
    except (RuntimeError, MemoryError, OverflowError) as error:
        raise ConfigError(
            "net", f"expected layers that fit into memory, got {config.net!r}: {str(error).splitlines()[0]}"
        ) from error
    outputs = config.net.rpartition("-")[2]
    if outputs != str(CLASSES):
        raise ConfigError(
            "net", f"expected {CLASSES} output neurons, one per class, as last layer, got {outputs!r}"
        )
    standardize_weights(net)
    if config.loss == "tet":
        name, last = list(net.named_children())[-1]
        assert isinstance(last, SRMLinear)
        net.set_submodule(
            name, SRMReadout(last.in_features, last.out_features, tau_m=config.tau_m, tau_s=config.tau_s)
        )
    return net
