"""Evaluation: a pass of a net over labelled data, with predictions and firing rates of every layer."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from snnlib.app.report.answers import Answers, Task, task_of
from snnlib.app.report.decision import Decision, Scores, default_scores
from snnlib.app.report.recorder import Recorded, recording, spiking_layers
from snnlib.app.report.samples import Sample, classified, keep
from snnlib.checks import check_lengths
from snnlib.data.ragged import NO_LABEL
from snnlib.inspect.activity import LayerActivity
from snnlib.inspect.operation_counter import OperationCounter
from snnlib.inspect.operations import Profile, as_input, profile_of
from snnlib.learning.health import SpikeDoctor
from snnlib.sequences.spike_count import count_per_neuron, is_graded
from snnlib.structure.layers import evaluating, spiking_modules

# Sentences on top of the page.
_MOST_NEXT_STEPS = 3


@dataclass
class Evaluation:
    """Result of a pass over a data set.

    Attributes:
        net: the net.
        batch_first: whether its sequences are `[N, T, ...]`.
        confusion: samples, or labelled steps, by label (row) and prediction (column) `[classes, classes]`; `[0, 0]`
            where nothing is classified.
        others: targets and answers of a regression or of several labels per sample; None for classes or no labels.
        counts: layer name to spikes of each neuron over the data set, float64.
        firing: of layers with graded spikes: layer name to time steps with spikes of each neuron, float64.
        over_time: layer name to spikes of all its neurons in each time step `[T]`, float64.
        samples: a few samples, classes in turn, mistakes among them.
        decision: what the prediction is read from.
        batch_size: samples of the first batch.
        operations: what every layer computed.
        steps: time steps of all samples together.
        seen: number of samples.
        running: samples that have a time step `[T]`, float64.
        without_scores: samples, or labelled steps, with NaN among their scores.
        names: what the page calls the classes, numbers or labels.
        step_ms: length of a time step there; None where steps are counted.
    """

    net: nn.Module
    batch_first: bool
    confusion: Tensor
    decision: Decision
    scores: Scores
    layers: dict[str, nn.Module]
    batch_size: int
    operations: OperationCounter
    task: Task = "classes"
    others: Answers | None = None
    counts: dict[str, Tensor] = field(default_factory=dict)
    firing: dict[str, Tensor] = field(default_factory=dict)
    over_time: dict[str, Tensor] = field(default_factory=dict)
    samples: list[Sample] = field(default_factory=list)
    steps: int = 0
    seen: int = 0
    without_scores: int = 0
    running: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.float64))
    names: list[str] = field(default_factory=list)
    step_ms: float | None = None

    @property
    def batch_dim(self) -> int:
        """Dimension of the samples in sequences."""
        return 0 if self.batch_first else 1

    def batch_of(self, samples: list[Sample]) -> Tensor:
        """Samples as the net takes them."""
        return as_input(self.net, torch.stack([sample.x for sample in samples], self.batch_dim))

    def recording(self) -> AbstractContextManager[dict[str, Recorded]]:
        """Inputs and spikes of the layers in the last forward pass of a `with` block."""
        return recording(self.net, self.layers, self.batch_first)

    @property
    def unit(self) -> str:
        """Unit that is classified: samples or steps."""
        if self.decision != "every step":
            return "samples"
        return "labelled steps" if self.task == "classes" else "steps"

    @property
    def answered(self) -> int:
        """Number of samples, or of labelled steps, that were compared with their labels."""
        return int(self.confusion.sum()) if self.others is None else self.others.rows

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
            LayerActivity.of(name, count, self.firing.get(name, count), max(self.steps, 1))
            for name, count in self.counts.items()
        ]

    def next_steps(self) -> list[str]:
        """At most three sentences on what to do next: what `SpikeDoctor` finds in the kept samples, with its remedy."""
        if not spiking_modules(self.net):
            return ["SpikeDoctor, which names the next step here, knows layers and neurons of snnlib alone."]
        # A pass of its own: the counter of operations would count the products by which the doctor adds up spikes.
        with SpikeDoctor(self.net) as doctor, evaluating(self.net), torch.no_grad():
            for sample in self.samples:
                self.net(self.batch_of([sample]))
        healthy = f"SpikeDoctor found nothing wrong in the firing of {len(self.samples)} samples."
        return [f"Layer {text}." for text in doctor.findings()[:_MOST_NEXT_STEPS]] or [healthy]


def evaluate(
    net: nn.Module, loader: Iterable[Any], *, classes: int | None, scores: Scores | None, batch_first: bool
) -> Evaluation:
    """Run a net over a loader of `(x, labels)`, or of x alone, in evaluation mode; training flags stay as they were.

    Batches `(x, labels, lengths)` run in parts of equal lengths, so that padding is seen by nothing.

    Raises:
        ValueError: no batch, a batch of another form, scores, labels or lengths that do not fit.
    """
    result: Evaluation | None = None
    with evaluating(net), torch.no_grad():
        for number, batch in enumerate(loader):
            for x, labels in _parts_of(batch, number, batch_first):
                frames = as_input(net, x)
                per_step = _labelled_steps(x, labels)
                if result is None:
                    task = task_of(labels, per_step)
                    result = _start(net, frames, classes, scores, batch_first, per_step=per_step, task=task)
                _add(result, frames, x, labels)
    if result is None:
        raise ValueError("loader: expected at least one batch (x, labels), got none")
    if result.without_scores:
        warnings.warn(
            f"net: expected finite scores, got NaN for {result.without_scores} of {result.answered} {result.unit}, "
            "whose answers on the page are arbitrary",
            stacklevel=3,
        )
    return result


def _start(
    net: nn.Module,
    frames: Tensor,
    classes: int | None,
    scores: Scores | None,
    batch_first: bool,
    *,
    per_step: bool,
    task: Task,
) -> Evaluation:
    few = frames[:2] if batch_first else frames[:, :2]
    layers = spiking_layers(net, few)
    with recording(net, layers, batch_first) as recorded:
        output = net(few)
    decision: Decision
    if per_step or (task == "none" and scores is None):
        decision, read = "every step" if per_step else "output", scores or (lambda answer: answer)
    else:
        decision, read = (
            default_scores(output, recorded, batch_first) if scores is None else ("scores", scores)
        )
    size = 0
    if task == "classes":
        found, sizes = read(output), "T, N" if per_step else "N"
        if found.dim() != 2 + per_step or (classes is not None and found.shape[-1] != classes):
            expected = f"[{sizes}, K]" if classes is None else f"[{sizes}, {classes}], one score per class,"
            raise ValueError(
                f"scores: expected {expected} of the net's output, got shape {tuple(found.shape)}"
            )
        size = found.shape[-1]
    return Evaluation(
        net,
        batch_first,
        torch.zeros(size, size, dtype=torch.long),
        decision,
        read,
        layers,
        batch_size=frames.shape[0 if batch_first else 1],
        operations=OperationCounter(net),
        task=task,
        others=None if task in ("classes", "none") else Answers(task),
    )


def _add(result: Evaluation, frames: Tensor, x: Tensor, labels: Tensor | None) -> None:
    with result.recording() as recorded, result.operations.counting():
        output = result.net(frames)
    # [N, T, ...]
    rows = x if result.batch_first else x.transpose(0, 1)
    found = None if labels is None else result.scores(output)
    if labels is None or found is None:
        answers: list[Sample] = [Sample(row, NO_LABEL, NO_LABEL) for row in rows]
    elif result.task == "classes":
        answers = _classes(result, found, rows, labels)
    else:
        answers = _numbers(result, found, rows, labels)
    if (labels is None) != (result.task == "none"):
        raise ValueError(
            "loader: expected labels in all batches or in no batch, got batches with and without labels"
        )
    for name, layer in recorded.items():
        spikes = layer.spikes
        result.counts[name] = result.counts.get(name, 0) + count_per_neuron(spikes).cpu()
        if is_graded(result.layers[name]):
            result.firing[name] = result.firing.get(name, 0) + count_per_neuron(spikes.clamp(max=1)).cpu()
        in_time = spikes.flatten(1).sum(1, dtype=torch.float64).cpu()
        result.over_time[name] = _longer(result.over_time.get(name), in_time)
    result.steps += x.shape[0] * x.shape[1]
    steps = rows.shape[1]
    result.running = _longer(result.running, torch.full((steps,), len(answers)).double())
    result.seen += len(answers)
    for sample in answers:
        keep(result.samples, sample, max(len(result.confusion), 1))


def _classes(result: Evaluation, found: Tensor, samples: Tensor, labels: Tensor) -> list[Sample]:
    """Count a batch of classified samples, or steps."""
    predicted = found.argmax(-1).cpu()
    classes = len(result.confusion)
    if labels.is_floating_point() or labels.dtype == torch.bool:
        raise ValueError(f"loader: expected integer labels as in the batches before, got {labels.dtype}")
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
    if labels.dim() == 2 and not result.batch_first:
        labels, predicted = labels.t(), predicted.t()
    return [classified(*row) for row in zip(samples, labels, predicted, strict=True)]


def _numbers(result: Evaluation, found: Tensor, samples: Tensor, labels: Tensor) -> list[Sample]:
    """Add a batch of numbers or of several labels per sample, or per step."""
    assert result.others is not None
    per_step = result.decision == "every step"
    result.others.add(found, labels, int(result.batch_first) if per_step else None)
    result.without_scores += int(found.isnan().sum())
    if per_step and not result.batch_first:
        labels, found = labels.transpose(0, 1), found.transpose(0, 1)
    rows = zip(samples, labels.cpu(), found.cpu(), strict=True)
    return [
        Sample(sample, NO_LABEL, NO_LABEL, target=target, answer=answer) for sample, target, answer in rows
    ]


def _longer(total: Tensor | None, more: Tensor) -> Tensor:
    """The sum of two totals over time, of which one may have more steps."""
    if total is None:
        return more
    steps = max(len(total), len(more))
    return sum(torch.nn.functional.pad(part, (0, steps - len(part))) for part in (total, more))  # type: ignore[return-value]


def _labelled_steps(x: Tensor, labels: Tensor | None) -> bool:
    """Returns whether there is a label, or a row of them, for every step."""
    return labels is not None and labels.dim() in (2, 3) and labels.shape[:2] == x.shape[:2]


def _parts_of(batch: Any, number: int, batch_first: bool) -> list[tuple[Tensor, Tensor | None]]:
    """Inputs and labels of a batch, cut to the samples' own steps: a part for each length.

    Raises:
        ValueError: a batch of another form, or lengths that do not fit.
    """
    if isinstance(batch, Tensor):
        batch = (batch,)
    if not (isinstance(batch, (tuple, list)) and 1 <= len(batch) <= 3):
        raise ValueError(
            "loader: expected batches (x, labels), (x, labels, lengths) or x alone, got "
            f"{type(batch).__name__} as batch {number}"
        )
    x, labels, *rest = (*batch, None) if len(batch) == 1 else batch
    labels = None if labels is None else torch.as_tensor(labels)
    per_step = isinstance(x, Tensor) and _labelled_steps(x, labels)
    samples = x.shape[0 if batch_first else 1] if isinstance(x, Tensor) and x.dim() > 2 else -1
    several = labels is not None and labels.dim() == 2 and len(labels) == samples
    fits = labels is None or per_step or several or labels.dim() == 1
    if samples < 0 or not fits or (labels is not None and labels.is_complex()):
        shape = tuple(x.shape) if isinstance(x, Tensor) else type(x).__name__
        found = "no labels" if labels is None else f"{tuple(labels.shape)} {labels.dtype}"
        raise ValueError(
            "loader: expected x [T, N, ...] and labels [N] or [N, K], or [T, N] and [T, N, K] for every step, got "
            f"{shape} and {found} as batch {number}"
        )
    if labels is not None and not labels.is_floating_point() and labels.dtype != torch.bool:
        labels = labels.long()
    if not rest:
        return [(x, labels)]
    time_dim = int(batch_first)
    lengths = check_lengths(torch.as_tensor(rest[0]).to(x.device), x.transpose(0, time_dim))
    if len(lengths) and int(lengths.min()) < 1:
        raise ValueError(f"loader: expected samples of at least one step, got lengths {lengths.tolist()}")
    parts: list[tuple[Tensor, Tensor | None]] = []
    for length in sorted(set(lengths.tolist())):
        own = (lengths == length).nonzero().squeeze(1)
        kept = x.index_select(1 - time_dim, own).narrow(time_dim, 0, length)
        if labels is None:
            parts.append((kept, None))
            continue
        some = labels.index_select(1 - time_dim if per_step else 0, own.to(labels.device))
        parts.append((kept, some.narrow(time_dim, 0, length) if per_step else some))
    return parts
