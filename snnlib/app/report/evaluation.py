"""One pass of a net over labelled data: predictions, firing of every layer, and samples worth a picture."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn

from snnlib.app.report.recorder import recording, spiking_layers
from snnlib.inspect.activity import SATURATED_RATE, LayerActivity, count_per_neuron
from snnlib.inspect.operation_counter import OperationCounter
from snnlib.inspect.operation_profile import Profile
from snnlib.inspect.operations import as_input, evaluating, profile_of

Scores = Callable[[Any], Tensor]
Decision = Literal["spike count", "mean potential", "output", "scores"]

# Samples kept for pictures: enough to hold a mistake of most nets, in a quarter of a gigabyte at most.
_KEPT_SAMPLES, _KEPT_BYTES = 60, 2**28


@dataclass(frozen=True)
class Sample:
    """A sample kept for pictures: its input `[T, ...]` (uint8 where that holds it), its label and the prediction."""

    x: Tensor
    label: int
    predicted: int


@dataclass
class Evaluation:
    """What a pass over a data set found.

    Attributes:
        confusion: samples by label (row) and prediction (column) `[classes, classes]`.
        counts: layer name to spikes of each neuron over the data set, float64.
        over_time: layer name to spikes of all its neurons in each time step `[T]`, float64.
        samples: a few samples, classes in turn, mistakes among them.
        decision: what the prediction is read from.
        batch_size: samples of the first batch.
        operations: what every layer computed.
        steps: time steps of all samples together.
        seen: number of samples.
    """

    confusion: Tensor
    decision: Decision
    scores: Scores
    layers: dict[str, nn.Module]
    batch_size: int
    operations: OperationCounter
    counts: dict[str, Tensor] = field(default_factory=dict)
    over_time: dict[str, Tensor] = field(default_factory=dict)
    samples: list[Sample] = field(default_factory=list)
    steps: int = 0
    seen: int = 0

    @property
    def accuracy(self) -> float:
        """Share of samples on the diagonal."""
        return int(self.confusion.diagonal().sum()) / max(int(self.confusion.sum()), 1)

    def rates(self) -> dict[str, Tensor]:
        """Spikes per time step of each neuron, by layer."""
        return {name: count / max(self.steps, 1) for name, count in self.counts.items()}

    def rates_over_time(self) -> dict[str, Tensor]:
        """Spikes per neuron in each time step `[T]`, by layer."""
        return {
            name: total / (max(self.seen, 1) * self.counts[name].numel())
            for name, total in self.over_time.items()
        }

    def profile(self) -> Profile:
        """Operations, sparsity, traffic and energy of the pass."""
        return profile_of(self.operations, self.seen)

    def activity(self) -> list[LayerActivity]:
        """Rate, dead and saturated neurons of each layer."""
        return [
            LayerActivity(
                name,
                rate.numel(),
                float(rate.mean()),
                int((rate == 0).sum()),
                int((rate > SATURATED_RATE).sum()),
            )
            for name, rate in self.rates().items()
        ]


def evaluate(
    net: nn.Module, loader: Iterable[Any], *, classes: int | None, scores: Scores | None, batch_first: bool
) -> Evaluation:
    """Run a net over a loader of `(x, labels)` in evaluation mode; training flags are as before afterwards.

    Raises:
        ValueError: no batch, a batch of another form, scores or labels that do not fit.
    """
    result: Evaluation | None = None
    with evaluating(net), torch.no_grad():
        for number, batch in enumerate(loader):
            x, labels = _checked(batch, number)
            frames = as_input(net, x)
            if result is None:
                result = _start(net, frames, classes, scores, batch_first)
            _add(result, net, frames, x, labels, batch_first)
    if result is None:
        raise ValueError("loader: expected at least one batch (x, labels), got none")
    return result


def _checked(batch: Any, number: int) -> tuple[Tensor, Tensor]:
    if not (isinstance(batch, (tuple, list)) and len(batch) == 2):
        raise ValueError(
            f"loader: expected batches (x, labels), got {type(batch).__name__} as batch {number}"
        )
    x, labels = batch
    labels = torch.as_tensor(labels)
    if not isinstance(x, Tensor) or x.dim() < 3 or labels.dim() != 1 or labels.is_floating_point():
        shape = tuple(x.shape) if isinstance(x, Tensor) else type(x).__name__
        raise ValueError(
            f"loader: expected x [T, N, ...] and integer labels [N], got {shape} and {tuple(labels.shape)} "
            f"{labels.dtype} as batch {number}"
        )
    return x, labels.long()


def _start(
    net: nn.Module, frames: Tensor, classes: int | None, scores: Scores | None, batch_first: bool
) -> Evaluation:
    few = frames[:2] if batch_first else frames[:, :2]
    output = net(few)
    decision: Decision
    decision, read = default_scores(output, batch_first) if scores is None else ("scores", scores)
    found = read(output)
    if found.dim() != 2 or (classes is not None and found.shape[1] != classes):
        expected = "[N, K]" if classes is None else f"[N, {classes}], one score per class,"
        raise ValueError(f"scores: expected {expected} of the net's output, got shape {tuple(found.shape)}")
    size = found.shape[1]
    confusion = torch.zeros(size, size, dtype=torch.long)
    batch_size = frames.shape[0 if batch_first else 1]
    layers = spiking_layers(net, few)
    return Evaluation(confusion, decision, read, layers, batch_size, OperationCounter(net))


def default_scores(output: Any, batch_first: bool) -> tuple[Decision, Scores]:
    """How to read class scores `[N, K]` from a net's output: spikes are counted, potentials averaged over time."""
    if isinstance(output, Tensor) and output.dim() == 2:
        return "output", lambda answer: answer
    if not (isinstance(output, Tensor) and output.dim() == 3):
        shape = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
        raise ValueError(
            f"scores: expected a function for an output other than [N, K] and [T, N, K], got {shape}"
        )
    time = int(batch_first)
    if bool(((output == 0) | (output == 1)).all()):
        return "spike count", lambda answer: answer.sum(time)
    return "mean potential", lambda answer: answer.mean(time)


def _add(
    result: Evaluation, net: nn.Module, frames: Tensor, x: Tensor, labels: Tensor, batch_first: bool
) -> None:
    with recording(net, result.layers, batch_first) as recorded, result.operations.counting():
        output = net(frames)
    predicted = result.scores(output).argmax(1).cpu()
    classes = len(result.confusion)
    wrong = labels[(labels < 0) | (labels >= classes)]
    if len(wrong) or len(labels) != len(predicted):
        raise ValueError(
            f"loader: expected one label in 0..{classes - 1} per sample, got {len(labels)} labels for "
            f"{len(predicted)} samples{f', one of them {int(wrong[0])}' if len(wrong) else ''}"
        )
    result.confusion += torch.bincount(labels * classes + predicted, minlength=classes**2).view(
        classes, classes
    )
    for name, layer in recorded.items():
        spikes = layer.spikes
        batch = count_per_neuron(spikes).cpu()
        result.counts[name] = result.counts[name] + batch if name in result.counts else batch
        in_time = spikes.flatten(1).sum(1, dtype=torch.float64).cpu()
        result.over_time[name] = _longer(result.over_time.get(name), in_time)
    result.steps += x.shape[0] * x.shape[1]
    result.seen += len(labels)
    samples = x if batch_first else x.transpose(0, 1)
    for sample, label, answer in zip(samples, labels.tolist(), predicted.tolist(), strict=True):
        _keep(result, sample, label, answer)


def _longer(total: Tensor | None, more: Tensor) -> Tensor:
    """The sum of two totals over time, of which one may have more steps."""
    if total is None:
        return more
    steps = max(len(total), len(more))
    return sum(torch.nn.functional.pad(part, (0, steps - len(part))) for part in (total, more))  # type: ignore[return-value]


def _keep(result: Evaluation, sample: Tensor, label: int, predicted: int) -> None:
    """Keep a sample while there is room: each class has its share, and so have mistakes."""
    classes = len(result.confusion)
    right = predicted == label
    same = [
        kept for kept in result.samples if kept.label == label and (kept.predicted == kept.label) == right
    ]
    share = max(_KEPT_SAMPLES // (2 * classes), 1)
    if len(result.samples) >= _KEPT_SAMPLES or len(same) >= share:
        return
    # Event counts fit into a byte; other inputs stay as they are.
    small = sample.to(torch.uint8)
    small = small if torch.equal(small.to(sample.dtype), sample) else sample
    if (len(result.samples) + 1) * small.nbytes <= _KEPT_BYTES:
        result.samples.append(Sample(small.cpu().clone(), label, predicted))
