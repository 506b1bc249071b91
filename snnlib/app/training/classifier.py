"""The Lightning module: a spiking net with one output neuron per class."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import lightning.pytorch as pl
import torch
from torch import Tensor, nn

from snnlib import __version__
from snnlib.app.kinds.base import DataFacts
from snnlib.app.training.config import TrainConfig
from snnlib.app.training.net import build_net
from snnlib.app.training.objective import LOSSES
from snnlib.data.ragged import NO_LABEL
from snnlib.inspect.activity import LayerActivity, SpikeCounter
from snnlib.learning.losses import SynapticOperationsLoss
from snnlib.learning.rewiring import Rewiring
from snnlib.nn import SRMLinear, parameter_groups, run_ragged, supervised_spikes
from snnlib.nn.layers.spiking_layer import SpikingLayer
from snnlib.structure.layers import is_readout


@dataclass(frozen=True)
class TestResult:
    """Result of a pass over the test set.

    Args:
        confusion: samples, or labelled steps, by label (row) and prediction (column) `[classes, classes]`.
        loss: mean loss of a sample.
        layers: firing of each layer of neurons.
        classes: names of the classes.
        unit: what is classified, `"samples"` or `"labelled steps"`.
    """

    # Not a test case, whatever its name says to pytest.
    __test__ = False

    confusion: Tensor
    loss: float
    layers: list[LayerActivity]
    classes: tuple[str, ...]
    unit: str = "samples"

    @property
    def accuracy(self) -> float:
        """Share of the confusion matrix on its diagonal."""
        return int(self.confusion.diagonal().sum()) / max(int(self.confusion.sum()), 1)


class SpikingClassifier(pl.LightningModule):
    """Net, loss and optimiser of a run. The class with the highest score wins; ties go to the lowest class.

    Args:
        config: the run's settings.
        facts: classes and frame size of its data.

    Raises:
        ConfigError: a net that is not understood, does not fit the frames or has no neuron per class.
    """

    test_result: TestResult | None = None
    # Loss and accuracy on the validation set, where there is one.
    validation: Mapping[str, float] = MappingProxyType({})
    last_step: Mapping[str, Tensor] = MappingProxyType({})
    _rewiring: Rewiring | None = None

    def __init__(self, config: TrainConfig, facts: DataFacts) -> None:
        super().__init__()
        self.facts = facts
        self.net = build_net(config, facts)
        self.take_settings(config)
        self._operations = SynapticOperationsLoss(self.net) if config.learning.operations_weight else None
        self.activity = SpikeCounter(self.net)
        # Tallies of test set and validation set: confusion `[classes^2]`, the sum of the losses, number of samples.
        self._tallies: list[Tensor] = []

    def take_settings(self, config: TrainConfig) -> None:
        """Takes the settings of the loss."""
        self.config, self.objective = config, LOSSES[config.learning.loss].build(config)

    def forward(self, frames: Tensor) -> Tensor:
        """Scores `[N, classes]` of frames `[T, N, C, H, W]` of any dtype."""
        return self.objective.scores(self._output(frames))

    def training_step(self, batch: tuple[Tensor, ...], batch_index: int) -> Tensor:
        """Loss of a batch; loss and accuracy go to the log."""
        loss, share = self._loss_and_share(*batch)
        scores = {"train_loss": loss.detach().clone(), "train_accuracy": share.clone()}
        self.log_dict(scores, on_step=False, on_epoch=True, batch_size=batch[0].shape[1], sync_dist=True)
        # Logging it for the progress bar takes two milliseconds a step.
        self.last_step = {"loss": scores["train_loss"], "accuracy": scores["train_accuracy"]}
        return loss

    def _loss_and_share(
        self, frames: Tensor, labels: Tensor, lengths: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Loss of a batch, and the share of labels that are answered right."""
        output_layer = list(self.net.children())[-1]
        with self._operations or nullcontext():
            if isinstance(output_layer, SRMLinear):
                with supervised_spikes(output_layer, labels) as teacher:
                    output = self._output(frames, lengths)
                # An answer that the teacher gave is none.
                answered = ~teacher.taught
            else:
                output, answered = self._output(frames, lengths), torch.ones_like(labels, dtype=torch.bool)
        loss = self.objective.loss(output, labels, lengths)
        if self._operations is not None:
            loss = loss + self.config.learning.operations_weight * self._operations().to(loss.dtype)
        right = (self.objective.scores(output, lengths).argmax(-1) == labels) & answered
        # Steps without a label are never right.
        return loss, right.sum() / (labels != NO_LABEL).sum().clamp(min=1)

    def target_rates(self) -> dict[str, float]:
        """Firing rate that each layer of weights and neurons is calibrated to before training."""
        layers = [name for name, module in self.net.named_modules() if isinstance(module, SpikingLayer)]
        names = [name for name in layers if not is_readout(self.net.get_submodule(name))]
        rates = dict.fromkeys(names, self.config.net.target_rate)
        # The output layer has a rate of its own, if it fires at all.
        if not LOSSES[self.config.learning.loss].of_potentials:
            rates[names[-1]] = self.config.net.output_rate
        return rates

    def on_train_epoch_start(self) -> None:
        """Seed what is random in the epoch by its number: a resumed run then needs no state from before."""
        torch.manual_seed(self.config.learning.seed + 1000003 * self.current_epoch + self.global_rank)

    def on_validation_epoch_start(self) -> None:
        """Start counting predictions and spikes."""
        size, sets = len(self.facts.classes) ** 2 + 2, len(self.trainer.val_dataloaders)  # type: ignore[arg-type]
        self._tallies = [torch.zeros(size, dtype=torch.float64, device=self.device) for _ in range(sets)]
        self.activity.reset()

    def validation_step(self, batch: tuple[Tensor, ...], batch_index: int, dataloader_idx: int = 0) -> None:
        """Count the predictions of a batch of the test set (0) or of the validation set (1)."""
        frames, labels, *rest = batch
        lengths = rest[0] if rest else None
        # Spikes are counted on the test set alone.
        with self.activity.counting() if dataloader_idx == 0 else nullcontext():
            output = self._output(frames, lengths)
        classes = len(self.facts.classes)
        pairs = labels * classes + self.objective.scores(output, lengths).argmax(-1)
        loss, samples = self.objective.loss(output, labels, lengths), frames.shape[1]
        tally = self._tallies[dataloader_idx]
        tally[:-2] += torch.bincount(pairs[labels != NO_LABEL], minlength=classes**2)
        tally[-2] += loss.double() * samples
        tally[-1] += samples

    def on_validation_epoch_end(self) -> None:
        """Sum up over processes and keep the result."""
        reduce = self.trainer.strategy.reduce
        for counts in (self.activity.counts, self.activity.firing):
            counts.update({name: reduce(count, reduce_op="sum") for name, count in counts.items()})
        self.activity.steps = reduce(self.activity.steps.to(self.device), reduce_op="sum")
        results = []
        unit = "labelled steps" if self.config.data.kind.labels_steps else "samples"
        classes = self.facts.classes
        for tally in self._tallies:
            total = reduce(tally, reduce_op="sum").cpu()
            confusion = total[:-2].long().view(len(classes), len(classes))
            mean = float(total[-2]) / max(float(total[-1]), 1.0)
            results.append(TestResult(confusion, mean, self.activity.layers(), classes, unit))
        self.test_result = results[0]
        # Every process has these numbers already.
        scores = {"test_accuracy": self.test_result.accuracy, "test_loss": self.test_result.loss}
        if len(results) > 1:
            # Rounded as in the table of epochs, so that the checkpoint and the table name the same epoch.
            self.validation = {"val_accuracy": round(results[1].accuracy, 6), "val_loss": results[1].loss}
        self.log_dict({**scores, **self.validation}, sync_dist=False)
        self.log_dict({f"rate/{layer.name}": layer.rate for layer in self.test_result.layers})

    def optimizer_step(self, *arguments: Any, **options: Any) -> None:
        """Lightning's step, and then that of the rewiring."""
        super().optimizer_step(*arguments, **options)
        if self.config.learning.rewire == "no":
            return
        optimizer = self.optimizers(use_pl_optimizer=False)
        assert isinstance(optimizer, torch.optim.Optimizer)
        self._rewiring_of_run().step(optimizer)

    def _rewiring_of_run(self) -> Rewiring:
        if self._rewiring is None:
            config = self.config.learning
            # As published: DEEP R moves connections at every step, SET once an epoch.
            steps = int(self.trainer.estimated_stepping_batches) // config.epochs
            every = 1 if config.rewire == "deep_r" else max(steps, 1)
            self._rewiring = Rewiring(self.net, every=every, rule=config.rewire, seed=config.seed)  # type: ignore[arg-type]
        return self._rewiring

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Record which snnlib made the checkpoint, and the state of the rewiring."""
        checkpoint["snnlib_version"] = __version__
        if self._rewiring is not None:
            checkpoint["rewiring"] = self._rewiring.state_dict()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Go on with the rewiring."""
        if "rewiring" in checkpoint:
            self._rewiring_of_run().load_state_dict(checkpoint["rewiring"])

    def _output(self, frames: Tensor, lengths: Tensor | None = None) -> Tensor:
        x = frames.to(next(self.net.parameters()).dtype)
        output: Tensor = self.net(x) if lengths is None else run_ragged(self.net, x, lengths)
        return output

    def configure_gradient_clipping(self, optimizer: Any, *_: Any, **__: Any) -> None:
        """Scale the gradient down to `clip_norm`; without one where it is not finite, so that its step does nothing."""
        if self.config.learning.clip_norm is None:
            return
        norm = nn.utils.clip_grad_norm_(self.parameters(), self.config.learning.clip_norm)
        if not norm.isfinite():
            optimizer.zero_grad()

    def configure_optimizers(self) -> Any:
        """AdamW with a linear warm-up and a cosine decay to 0, per step."""
        config = self.config
        groups = parameter_groups(self.net, config.learning.lr, weight_decay=config.learning.weight_decay)
        optimizer = torch.optim.AdamW(groups)
        steps = int(self.trainer.estimated_stepping_batches)
        warmup = config.learning.warmup_epochs * steps / config.learning.epochs

        # A function of the step alone, so that a resumed run has the same rates.
        def factor(step: int) -> float:
            cosine = (1 + math.cos(math.pi * min(max(step - warmup, 0) / max(steps - warmup, 1), 1))) / 2
            return min((step + 1) / (warmup + 1), 1) * cosine

        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}
