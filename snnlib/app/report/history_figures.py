"""Curves over the epochs of a training run, each with the sentences that explain it."""

from __future__ import annotations

import torch

from snnlib.app.report.history import Columns
from snnlib.app.report.section import Section
from snnlib.app.visual import curves

# Above this ratio of the largest to the smallest value a loss is drawn on a logarithmic axis.
_LOG_RATIO = 20


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
