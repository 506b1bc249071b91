"""Figures of a pass over a data set, each with the sentences that explain it."""

from __future__ import annotations

from torch import Tensor

from snnlib.app.report.answers import Answers
from snnlib.app.report.evaluation import Evaluation
from snnlib.app.report.section import Section, label
from snnlib.app.visual import confusion_matrix, operations, predictions, rate_histograms, rates_over_time
from snnlib.inspect.operations import Profile

_MOST_OUTPUTS = 12


def confusion_section(evaluation: Evaluation) -> Section:
    """Section with the confusion matrix."""
    counts = evaluation.confusion
    title = f"{int(counts.diagonal().sum())} of {int(counts.sum())} {evaluation.unit} classified correctly"
    text = (
        "Rows are true classes, columns are predictions; the diagonal is correct. Recall, on the right, is the share "
        f"of a class's {evaluation.unit} that were recognised; precision, on top, the share of a class's predictions "
        "that were correct."
    )
    return Section(
        "confusion.png", "Confusion matrix", text, confusion_matrix(counts, evaluation.names, title=title)
    )


def answer_section(answers: Answers, names: list[str]) -> Section:
    """Predicted numbers against true ones."""
    pairs = {name: answers.pairs(column) for column, name in enumerate(names[:_MOST_OUTPUTS])}
    text = "A point per sample, or step: true value and prediction. On the dashed line both are equal."
    return Section("predictions.png", "Predictions", text, predictions(pairs))


def firing_sections(evaluation: Evaluation) -> list[Section]:
    """Distribution of firing rates, and rates over the time of a sample."""
    if not evaluation.counts:
        return []
    return [
        Section(
            "rate_histograms.png",
            "Firing rates",
            "How many neurons of each layer give how many spikes per time step, over all samples; dead neurons are "
            "counted in the heading and left out of the bars.",
            rate_histograms(_labelled(evaluation, evaluation.rates())),
        ),
        Section(
            "rates_over_time.png",
            "Firing rates over time",
            "Spikes per neuron of each layer in each time step, mean over all samples.",
            rates_over_time(_labelled(evaluation, evaluation.rates_over_time()), step_ms=evaluation.step_ms),
        ),
    ]


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


def _labelled(evaluation: Evaluation, values: dict[str, Tensor]) -> dict[str, Tensor]:
    return {label(name, evaluation.layers[name]): value for name, value in values.items()}
