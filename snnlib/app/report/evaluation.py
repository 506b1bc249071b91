"""One pass of a net over labelled data: predictions, firing of every layer, and samples worth a picture."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn

from snnlib.app.report.recorder import recording, spiking_layers
from snnlib.data.ragged import NO_LABEL
from snnlib.functional._check import check_lengths
from snnlib.inspect.activity import SATURATED_RATE, LayerActivity, count_per_neuron
from snnlib.inspect.operation_counter import OperationCounter
from snnlib.inspect.operation_profile import Profile
from snnlib.inspect.operations import as_input, evaluating, profile_of

Scores = Callable[[Any], Tensor]
Decision = Literal["spike count", "mean potential", "output", "scores", "every step"]

# Samples kept for pictures: enough to hold a mistake of most nets, in a quarter of a gigabyte at most.
_KEPT_SAMPLES, _KEPT_BYTES = 60, 2**28


@dataclass(frozen=True)
class Sample:
    """A sample kept for pictures: its input `[T, ...]` (uint8 where that holds it), its label and the prediction.

    Where every step is labelled, `label` and `predicted` are those of the most frequent label of the sample, and
    `labels` and `answers` those of the steps `[T]`.
    """

    x: Tensor
    label: int
    predicted: int
    labels: Tensor | None = None
    answers: Tensor | None = None


@dataclass
class Evaluation:
    """What a pass over a data set found.

    Attributes:
        confusion: samples, or labelled steps, by label (row) and prediction (column) `[classes, classes]`.
        counts: layer name to spikes of each neuron over the data set, float64.
        over_time: layer name to spikes of all its neurons in each time step `[T]`, float64.
        samples: a few samples, classes in turn, mistakes among them.
        decision: what the prediction is read from.
        batch_size: samples of the first batch.
        operations: what every layer computed.
        steps: time steps of all samples together.
        seen: number of samples.
        running: samples that have a time step `[T]`, float64.
        without_scores: samples, or labelled steps, with NaN among their scores.
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
    without_scores: int = 0
    running: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.float64))

    @property
    def unit(self) -> str:
        """What is classified."""
        return "labelled steps" if self.decision == "every step" else "samples"

    @property
    def accuracy(self) -> float:
        """Share of the confusion matrix on its diagonal."""
        return int(self.confusion.diagonal().sum()) / max(int(self.confusion.sum()), 1)

    def rates(self) -> dict[str, Tensor]:
        """Spikes per time step of each neuron, by layer."""
        return {name: count / max(self.steps, 1) for name, count in self.counts.items()}

    def rates_over_time(self) -> dict[str, Tensor]:
        """Spikes per neuron in each time step `[T]`, by layer."""
        return {
            name: total / (self.running[: len(total)].clamp(min=1) * self.counts[name].numel())
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

    Batches `(x, labels, lengths)` run in parts of equal lengths, so that padding is seen by nothing.

    Raises:
        ValueError: no batch, a batch of another form, scores, labels or lengths that do not fit.
    """
    result: Evaluation | None = None
    with evaluating(net), torch.no_grad():
        for number, batch in enumerate(loader):
            for x, labels in _parts(batch, number, batch_first):
                frames = as_input(net, x)
                if result is None:
                    result = _start(net, frames, classes, scores, batch_first, per_step=labels.dim() == 2)
                _add(result, net, frames, x, labels, batch_first)
    if result is None:
        raise ValueError("loader: expected at least one batch (x, labels), got none")
    if result.without_scores:
        warnings.warn(
            f"net: expected scores that are numbers, got NaN for {result.without_scores} of "
            f"{int(result.confusion.sum())} {result.unit}; what the page says of them is arbitrary",
            stacklevel=3,
        )
    return result


def _parts(batch: Any, number: int, batch_first: bool) -> list[tuple[Tensor, Tensor]]:
    """Inputs and labels of a batch, cut to the samples' own steps: a part for each length."""
    if not (isinstance(batch, (tuple, list)) and len(batch) in (2, 3)):
        raise ValueError(
            f"loader: expected batches (x, labels) or (x, labels, lengths), got {type(batch).__name__} as batch "
            f"{number}"
        )
    x, labels, *rest = batch
    labels = torch.as_tensor(labels)
    per_step = isinstance(x, Tensor) and labels.shape == x.shape[:2]
    if (
        not isinstance(x, Tensor)
        or x.dim() < 3
        or (labels.dim() != 1 and not per_step)
        or labels.is_floating_point()
    ):
        shape = tuple(x.shape) if isinstance(x, Tensor) else type(x).__name__
        raise ValueError(
            f"loader: expected x [T, N, ...] and integer labels [N], or [T, N] with one per step, got {shape} and "
            f"{tuple(labels.shape)} {labels.dtype} as batch {number}"
        )
    labels = labels.long()
    if not rest:
        return [(x, labels)]
    time_dim = int(batch_first)
    lengths = check_lengths(
        torch.as_tensor(rest[0]).to(x.device), x.shape[time_dim], x.shape[1 - time_dim], x
    )
    if len(lengths) and int(lengths.min()) < 1:
        raise ValueError(f"loader: expected samples of at least one step, got lengths {lengths.tolist()}")
    parts = []
    for length in sorted(set(lengths.tolist())):
        own = (lengths == length).nonzero().squeeze(1)
        kept = x.index_select(1 - time_dim, own).narrow(time_dim, 0, length)
        some = labels.index_select(1 - time_dim if per_step else 0, own.to(labels.device))
        parts.append((kept, some.narrow(time_dim, 0, length) if per_step else some))
    return parts


def _start(
    net: nn.Module,
    frames: Tensor,
    classes: int | None,
    scores: Scores | None,
    batch_first: bool,
    *,
    per_step: bool,
) -> Evaluation:
    few = frames[:2] if batch_first else frames[:, :2]
    output = net(few)
    decision: Decision
    if per_step:
        decision, read = "every step", scores or (lambda answer: answer)
    else:
        decision, read = default_scores(output, batch_first) if scores is None else ("scores", scores)
    found = read(output)
    dims = 3 if per_step else 2
    if found.dim() != dims or (classes is not None and found.shape[-1] != classes):
        sizes = "T, N" if per_step else "N"
        expected = f"[{sizes}, K]" if classes is None else f"[{sizes}, {classes}], one score per class,"
        raise ValueError(f"scores: expected {expected} of the net's output, got shape {tuple(found.shape)}")
    size = found.shape[-1]
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
    found = result.scores(output)
    predicted = found.argmax(-1).cpu()
    classes = len(result.confusion)
    # Steps may be without a label.
    counted = labels != NO_LABEL if labels.dim() == 2 else torch.ones_like(labels, dtype=torch.bool)
    wrong = labels[counted & ((labels < 0) | (labels >= classes))]
    if len(wrong) or labels.shape != predicted.shape:
        raise ValueError(
            f"loader: expected one label in 0..{classes - 1} per {'step' if labels.dim() == 2 else 'sample'}, got "
            f"{labels.numel()} labels for {predicted.numel()} {result.unit}"
            f"{f', one of them {int(wrong[0])}' if len(wrong) else ''}"
        )
    labels, counted = labels.cpu(), counted.cpu()
    result.without_scores += int((found.isnan().any(-1).cpu() & counted).sum())
    pairs = (labels * classes + predicted)[counted]
    result.confusion += torch.bincount(pairs, minlength=classes**2).view(classes, classes)
    for name, layer in recorded.items():
        spikes = layer.spikes
        batch = count_per_neuron(spikes).cpu()
        result.counts[name] = result.counts[name] + batch if name in result.counts else batch
        in_time = spikes.flatten(1).sum(1, dtype=torch.float64).cpu()
        result.over_time[name] = _longer(result.over_time.get(name), in_time)
    samples = x if batch_first else x.transpose(0, 1)
    result.steps += x.shape[0] * x.shape[1]
    result.running = _longer(result.running, torch.full((samples.shape[1],), len(samples)).double())
    result.seen += len(samples)
    if labels.dim() == 2 and not batch_first:
        labels, predicted = labels.t(), predicted.t()
    for sample, label, answer in zip(samples, labels, predicted, strict=True):
        _keep(result, _sample(sample, label, answer))


def _sample(x: Tensor, label: Tensor, answer: Tensor) -> Sample:
    # Event counts fit into a byte; other inputs stay as they are.
    small = x.to(torch.uint8)
    small = (small if torch.equal(small.to(x.dtype), x) else x).cpu().clone()
    if label.dim() == 0:
        return Sample(small, int(label), int(answer))
    known = label != NO_LABEL
    if not known.any():
        return Sample(small, NO_LABEL, NO_LABEL, label, answer)
    most = int(label[known].mode().values)
    return Sample(small, most, int(answer[label == most].mode().values), label, answer)


def _longer(total: Tensor | None, more: Tensor) -> Tensor:
    """The sum of two totals over time, of which one may have more steps."""
    if total is None:
        return more
    steps = max(len(total), len(more))
    return sum(torch.nn.functional.pad(part, (0, steps - len(part))) for part in (total, more))  # type: ignore[return-value]


def _keep(result: Evaluation, sample: Sample) -> None:
    """Keep a sample while there is room: each class has its share, and so have mistakes."""
    classes = len(result.confusion)
    right = sample.predicted == sample.label
    same = [
        kept
        for kept in result.samples
        if kept.label == sample.label and (kept.predicted == kept.label) == right
    ]
    share = max(_KEPT_SAMPLES // (2 * classes), 1)
    if len(result.samples) >= _KEPT_SAMPLES or len(same) >= share:
        return
    if (len(result.samples) + 1) * sample.x.nbytes <= _KEPT_BYTES:
        result.samples.append(sample)
