"""Figures of a sample in the net: spikes, classes and membrane potentials, each with its explanation."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from snnlib.app.report.answers import Task
from snnlib.app.report.decision import READ_FROM
from snnlib.app.report.evaluation import Evaluation
from snnlib.app.report.recorder import Recorded, is_output_of_spikes
from snnlib.app.report.samples import Sample
from snnlib.app.report.section import Section, label
from snnlib.app.visual import labels_over_time, membrane_potentials, raster
from snnlib.data.ragged import NO_LABEL
from snnlib.functional import srm_trace
from snnlib.neurons import ALIF, BRF
from snnlib.neurons.firing import SpikingNeuron
from snnlib.nn.layers.spiking_layer import SpikingLayer
from snnlib.nn.layers.srm import SRMLayer
from snnlib.nn.recurrent.recurrent_layer import Recurrent

_MOST_LAYERS = 8
_MOST_SEQUENCES = 4
# Numbers, or labels, in the heading of a figure.
_MOST_IN_TITLE = 4


def sample_sections(evaluation: Evaluation, neurons: dict[str, list[int]]) -> list[Section]:
    """Sections of a sample in the net: spikes of every layer, and membrane potentials of single neurons."""
    right = [sample for sample in evaluation.samples if sample.label == sample.predicted]
    sample = (right or evaluation.samples)[0]
    classes = evaluation.names
    with torch.no_grad(), evaluation.recording() as recorded:
        output = evaluation.net(evaluation.batch_of([sample]))
    text = (
        "Every mark is a step in which a neuron fires; each row is a neuron, and shaded bands are the channels of a "
        "convolutional layer."
    )
    if evaluation.task == "classes":
        text += f" The class is decided by {READ_FROM[evaluation.decision]}; the true class is in bold."
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
            _raster(evaluation, sample, recorded, output, title),
        )
    ]
    if sample.labels is not None:
        sections.append(_labels_section(evaluation))
    potentials = _potentials(evaluation, recorded, neurons)
    if potentials:
        sections.append(
            Section(
                "potentials.png",
                "Membrane potentials",
                "Membrane potentials for the same sample, before each reset and in units of the threshold (dashed); "
                "marks on top are spikes. The neurons shown are those of their layer that fire most in this sample, at "
                "the median rate, and least, or the one nearest to the threshold where none fires, unless others were "
                "asked for. Axes end at -3 thresholds.",
                membrane_potentials(potentials, step_ms=evaluation.step_ms, title=title),
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


def _labels_section(evaluation: Evaluation) -> Section:
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
    figure = labels_over_time(rows, evaluation.names, step_ms=evaluation.step_ms, no_label=NO_LABEL)
    return Section("labels_over_time.png", "Classes over time", text, figure)


def _raster(
    evaluation: Evaluation, sample: Sample, recorded: dict[str, Recorded], output: Tensor, title: str
) -> Figure:
    layers = {"input": sample.x}
    for name, layer in list(recorded.items())[-_MOST_LAYERS:]:
        layers[label(name, evaluation.layers[name])] = layer.spikes[:, 0].cpu()
    potentials, in_steps = None, isinstance(output, Tensor) and output.dim() == 3
    if in_steps and not is_output_of_spikes(output, recorded, evaluation.batch_first):
        potentials = output.select(evaluation.batch_dim, 0).float().cpu()
    outputs = next(reversed(layers.values()))[0] if potentials is None else potentials[0]
    classes = evaluation.names
    classed = outputs.numel() == len(classes)
    return raster(
        layers,
        step_ms=evaluation.step_ms,
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
                for kind, index in typical_neurons(spikes.sum(0), flat).items()
            }
        panels[label(name, evaluation.layers[name])] = {
            text: (flat[:, index], spikes[:, index]) for text, index in chosen.items()
        }
    return panels


@torch.no_grad()
def normalised_potential(layer: nn.Module, x: Tensor) -> Tensor | None:
    """Potential before each reset divided by the threshold `[T, N, ...]`; None for layers whose equation is not known.

    Args:
        layer: the layer.
        x: its input, time first `[T, N, ...]`.
    """
    current = _input_current(layer, x)
    if isinstance(layer, SRMLayer):
        tau_m, tau_s, tau_grad = layer.neuron.taus
        threshold: Tensor = layer.threshold
        potential = srm_trace(
            current, tau_m=tau_m, tau_s=tau_s, tau_grad=tau_grad, threshold=threshold
        ).potential
    else:
        neuron = layer.neuron if isinstance(layer, SpikingLayer) else layer
        # The threshold of ALIF and BRF moves.
        if not isinstance(neuron, SpikingNeuron) or isinstance(neuron, ALIF | BRF):
            return None
        neuron = copy.copy(neuron)
        neuron.batch_first = False
        try:
            potential = neuron.potential(current)
        except ValueError:
            return None
        threshold = neuron.constants()["threshold"].to(potential.dtype)
    if threshold.dim():
        # Channels are the dimension after time and batch.
        threshold = threshold.view(-1, *[1] * (current.dim() - 3))
    return potential / threshold


def _input_current(layer: nn.Module, x: Tensor) -> Tensor:
    """Returns the currents `[T, N, C, ...]` of a layer's neurons: the input itself for neurons without weights."""
    if not isinstance(layer, (SRMLayer, SpikingLayer)):
        return x
    current = layer.operator.forward(x.flatten(0, 1), layer.effective_weight)
    current = current.reshape(*x.shape[:2], *current.shape[1:])
    return current + layer.sent_back(layer(x)) if isinstance(layer, Recurrent) else current


def typical_neurons(counts: Tensor, potential: Tensor) -> dict[str, int]:
    """Flat indices of neurons worth a look: those that fire most, as the median of those that fire, and least.

    Args:
        counts: spikes of each neuron `[K]`.
        potential: their potentials `[T, K]`; the neuron with the highest is taken where none fires.

    >>> typical_neurons(torch.tensor([0, 5, 1, 2]), torch.zeros(9, 4))
    {'busiest': 1, 'median rate': 3, 'rarest': 2}
    >>> typical_neurons(torch.zeros(2), torch.tensor([[0.1, 0.2], [0.3, -60.0]]))
    {'nearest to firing': 0}
    """
    order = counts.argsort()
    firing = order[counts[order] > 0].tolist()
    if not firing:
        return {"nearest to firing": int(potential.nan_to_num().amax(0).argmax())}
    chosen = {"busiest": firing[-1]}
    if len(firing) > 2:
        chosen |= {"median rate": firing[len(firing) // 2], "rarest": firing[0]}
    return chosen


def neuron_name(shape: Sequence[int], index: int) -> str:
    """Where a neuron of a layer with neurons `[C, ...]` lies: its number, or its channel and place.

    >>> neuron_name((10,), 3), neuron_name((4, 5, 6), 38)
    ('neuron 3', 'channel 1, (1, 2)')
    """
    if len(shape) == 1:
        return f"neuron {index}"
    place = []
    for size in reversed(shape[1:]):
        place.append(index % size)
        index //= size
    return f"channel {index}, ({', '.join(map(str, reversed(place)))})"
