"""The figures of a report, each with the sentences that explain it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn.utils.parametrize import type_before_parametrizations

from snnlib.app.report.answers import Answers, Task
from snnlib.app.report.evaluation import Evaluation, Sample
from snnlib.app.report.history import Columns
from snnlib.app.report.potentials import neuron_name, normalised_potential, typical_neurons
from snnlib.app.report.recorder import Recorded, recording
from snnlib.app.visual import (
    confusion_matrix,
    curves,
    labels_over_time,
    membrane_potentials,
    operations,
    predictions,
    raster,
    rate_histograms,
    rates_over_time,
)
from snnlib.data.ragged import NO_LABEL
from snnlib.inspect.operation_profile import Profile
from snnlib.inspect.operations import as_input

# Above this ratio of the largest to the smallest value a loss is drawn on a logarithmic axis.
_LOG_RATIO = 20
_MOST_LAYERS = 8
_MOST_SEQUENCES = 4
_MOST_OUTPUTS = 12
# Numbers, or labels, in the heading of a figure.
_MOST_IN_TITLE = 4


@dataclass(frozen=True)
class Section:
    """A heading, its text, and a figure to draw below it under the file name `file`."""

    file: str
    title: str
    text: str
    figure: Figure


def history_sections(columns: Columns) -> list[Section]:
    """Curves over epochs of whatever the history holds."""
    warned = columns.of_layers("warned")
    crosses = " A cross is an epoch in which the layer warned of its training." if warned else ""
    found = [
        _curves(
            "loss.png",
            "Loss",
            "Mean loss of a sample in each epoch. A loss that falls on the training set and rises on other data is a "
            "sign of overfitting.",
            columns.having("loss"),
            "loss",
        ),
        _curves(
            "accuracy.png",
            "Accuracy",
            "Share of samples classified correctly in each epoch. A wide gap between training and test accuracy means "
            "that the net has overfitted.",
            columns.having("acc"),
            "accuracy",
            percent=True,
        ),
        _curves(
            "learning_rate.png",
            "Learning rate",
            "Learning rate of the optimiser at the end of each epoch.",
            columns.learning_rates(),
            "learning rate",
        ),
        _curves(
            "spike_rates.png",
            "Firing rates over training",
            "Spikes per neuron and time step, mean over each layer, after each epoch. A layer whose rate falls to zero "
            f"is silent and no longer learns.{crosses}",
            columns.of_layers("rate"),
            "spikes per neuron and time step",
            percent=True,
            warned=warned,
        ),
        _curves(
            "dead.png",
            "Dead neurons over training",
            "Neurons that did not fire once in the data, after each epoch. Event-driven gradients do not reach a "
            f"neuron that never fires.{crosses}",
            columns.of_layers("dead"),
            "dead neurons",
            warned=warned,
        ),
    ]
    return [section for section in found if section is not None]


def _curves(
    file: str,
    title: str,
    text: str,
    series: dict[str, list[float]],
    ylabel: str,
    percent: bool = False,
    warned: dict[str, list[float]] | None = None,
) -> Section | None:
    if not series:
        return None
    values = torch.tensor([value for column in series.values() for value in column])
    values = values[values.isfinite()]
    # Not every user counts accuracy in shares.
    percent = percent and bool((values <= 1).all())
    log = bool(
        len(values) and values.min() > 0 and values.max() > _LOG_RATIO * values.min() and "loss" in ylabel
    )
    marks = {name: [count > 0 for count in counts] for name, counts in (warned or {}).items()}
    figure = curves(series, title=title, ylabel=ylabel, percent=percent, log=log, marks=marks)
    return Section(file, title, text, figure)


def confusion_section(evaluation: Evaluation, classes: list[str]) -> Section:
    """Which class was taken for which."""
    counts = evaluation.confusion
    title = f"{int(counts.diagonal().sum())} of {int(counts.sum())} {evaluation.unit} classified correctly"
    text = (
        "Rows are true classes, columns are predictions; the diagonal is correct. Recall, on the right, is the share "
        f"of a class's {evaluation.unit} that were recognised; precision, on top, the share of a class's predictions "
        "that were correct."
    )
    return Section("confusion.png", "Confusion matrix", text, confusion_matrix(counts, classes, title=title))


def answer_section(answers: Answers, names: list[str]) -> list[Section]:
    """Predicted numbers against true ones."""
    if answers.task != "regression":
        return []
    pairs = {name: answers.pairs(column) for column, name in enumerate(names[:_MOST_OUTPUTS])}
    text = "A point per sample, or step: true value and prediction. On the dashed line both are equal."
    return [Section("predictions.png", "Predictions", text, predictions(pairs))]


def firing_sections(evaluation: Evaluation, step_ms: float | None) -> list[Section]:
    """Distribution of firing rates, and rates over the time of a sample."""
    if not evaluation.counts:
        return []
    return [
        Section(
            "rate_histograms.png",
            "Firing rates",
            "How many neurons of each layer fire how often, over all samples; dead neurons are counted in the heading "
            "and left out of the bars.",
            rate_histograms(_labelled(evaluation, evaluation.rates())),
        ),
        Section(
            "rates_over_time.png",
            "Firing rates over time",
            "Share of the neurons of each layer that fire in each time step, mean over all samples.",
            rates_over_time(_labelled(evaluation, evaluation.rates_over_time()), step_ms=step_ms),
        ),
    ]


def label(name: str, layer: nn.Module) -> str:
    """What to call a layer in a figure: its name, and its type where the name is only a number.

    >>> label("conv1", nn.ReLU()), label("0", nn.ReLU())
    ('conv1', '0: ReLU')
    """
    kind = type_before_parametrizations(layer).__name__
    return f"{name}: {kind}" if name.rpartition(".")[2].isdigit() else name


def _labelled(evaluation: Evaluation, values: dict[str, Tensor]) -> dict[str, Tensor]:
    return {label(name, evaluation.layers[name]): value for name, value in values.items()}


def sample_sections(
    net: nn.Module,
    evaluation: Evaluation,
    *,
    classes: list[str],
    batch_first: bool,
    step_ms: float | None,
    neurons: dict[str, list[int]],
) -> list[Section]:
    """One sample through the net: spikes of every layer, and membrane potentials of single neurons."""
    right = [sample for sample in evaluation.samples if sample.label == sample.predicted]
    sample = (right or evaluation.samples)[0]
    with torch.no_grad(), recording(net, evaluation.layers, batch_first) as recorded:
        output = net(as_input(net, sample.x.unsqueeze(0 if batch_first else 1)))
    spikes = {
        label(name, evaluation.layers[name]): layer.spikes[:, 0].cpu()
        for name, layer in list(recorded.items())[-_MOST_LAYERS:]
    }
    text = "Every mark is a spike; each row is a neuron, and shaded bands are the channels of a convolutional layer."
    if evaluation.task == "classes":
        text += f" The class is decided by {_DECISIONS[evaluation.decision]}; the true class is in bold."
        title = f"True class {classes[sample.label]}, predicted {classes[sample.predicted]}"
    else:
        title = _title_of_numbers(sample, classes, evaluation.task)
    if sample.labels is not None and sample.answers is not None:
        known = sample.labels != NO_LABEL
        right_steps = int((sample.labels == sample.answers)[known].sum())
        title = f"{right_steps} of {int(known.sum())} labelled steps classified correctly"
    sections = [
        Section(
            "raster.png",
            "Spikes of one sample",
            text,
            _raster(evaluation, sample, spikes, output, batch_first, classes, step_ms, title),
        )
    ]
    if sample.labels is not None:
        sections.append(_labels_section(evaluation, classes, step_ms))
    potentials = _potentials(evaluation, recorded, neurons)
    if potentials:
        sections.append(
            Section(
                "potentials.png",
                "Membrane potentials",
                "Membrane potentials for the same sample, before each reset and in units of the threshold (dashed); "
                "marks on top are spikes. The neurons shown are the busiest of their layer over all samples, one with "
                "the median rate, and a dead one where there is any, unless others were asked for.",
                membrane_potentials(potentials, step_ms=step_ms, title=title),
            )
        )
    return sections


def _title_of_numbers(sample: Sample, names: list[str], task: Task) -> str:
    """Target and answer of a sample where they fit into a line."""
    if sample.target is None or sample.answer is None or sample.target.numel() > _MOST_IN_TITLE:
        return "One sample"
    target, answer = (value.flatten().tolist() for value in (sample.target, sample.answer))
    if task == "labels":
        true, given = (
            ", ".join(name for name, value in zip(names, values, strict=True) if value > 0) or "none"
            for values in (target, answer)
        )
        return f"True labels: {true}; predicted: {given}"
    return "; ".join(
        f"{name}: true {true:.3g}, predicted {value:.3g}"
        for name, true, value in zip(names, target, answer, strict=True)
    )


_DECISIONS = {
    "spike count": "the output neuron with the most spikes",
    "mean potential": "the output neuron with the highest mean membrane potential",
    "output": "the highest output",
    "scores": "the highest score",
    "every step": "the highest output of each step",
}


def _labels_section(evaluation: Evaluation, classes: list[str], step_ms: float | None) -> Section:
    """True and predicted class of every step, for a few samples."""
    rows: dict[str, tuple[Tensor, Tensor]] = {}
    for sample in evaluation.samples[:_MOST_SEQUENCES]:
        assert sample.labels is not None
        assert sample.answers is not None
        rows[f"sequence {len(rows) + 1}"] = sample.labels, sample.answers
    text = (
        "True class (upper line) and prediction (lower line) at every step of a few samples; steps without a label are "
        "white, and so are the predictions there, which count for nothing."
    )
    figure = labels_over_time(rows, classes, step_ms=step_ms, no_label=NO_LABEL)
    return Section("labels_over_time.png", "Classes over time", text, figure)


def operations_section(profile: Profile) -> list[Section]:
    """Operations of each layer, where there are any."""
    layers = [layer for layer in profile.layers if layer.dense]
    if not layers:
        return []
    samples = max(profile.samples, 1)
    text = (
        "Products of a weight and an input, mean over the samples: all of them, and those whose factors both "
        "are nonzero, which is what an event-driven layer computes. With inputs of -1, 0 and 1 a product is "
        "an accumulation."
    )
    bars = {
        f"{layer.name or '(net)'} ({layer.kind})": tuple(
            n / samples for n in (layer.acs, layer.macs, layer.dense)
        )
        for layer in layers
    }
    return [Section("operations.png", "Operations", text, operations(bars))]  # type: ignore[arg-type]


def _raster(
    evaluation: Evaluation,
    sample: Sample,
    spikes: dict[str, Tensor],
    output: Tensor,
    batch_first: bool,
    classes: list[str],
    step_ms: float | None,
    title: str,
) -> Figure:
    layers = {"input": sample.x, **spikes}
    potentials = None
    if isinstance(output, Tensor) and output.dim() == 3 and not bool(((output == 0) | (output == 1)).all()):
        potentials = (output[0] if batch_first else output[:, 0]).float().cpu()
    outputs = next(reversed(layers.values()))[0] if potentials is None else potentials[0]
    classed = outputs.numel() == len(classes)
    return raster(
        layers,
        step_ms=step_ms,
        title=title,
        classes=classes if classed else None,
        label=sample.label if classed and sample.label != NO_LABEL and sample.labels is None else None,
        potentials=potentials,
        decides=evaluation.task == "classes",
        every_step=sample.labels is not None,
    )


def _potentials(
    evaluation: Evaluation, recorded: dict[str, Recorded], neurons: dict[str, list[int]]
) -> dict[str, dict[str, tuple[Tensor, Tensor]]]:
    panels: dict[str, dict[str, tuple[Tensor, Tensor]]] = {}
    for name, layer in list(recorded.items())[-_MOST_LAYERS:]:
        potential = normalised_potential(evaluation.layers[name], layer.input)
        if potential is None:
            continue
        shape = layer.spikes.shape[2:]
        flat, spikes = potential[:, 0].flatten(1).cpu(), layer.spikes[:, 0].flatten(1).cpu()
        if name in neurons:
            chosen = {neuron_name(shape, index): index for index in neurons[name]}
        else:
            chosen = {
                f"{kind}: {neuron_name(shape, index)}": index
                for kind, index in typical_neurons(evaluation.counts[name]).items()
            }
        panels[label(name, evaluation.layers[name])] = {
            text: (flat[:, index], spikes[:, index]) for text, index in chosen.items()
        }
    return panels
