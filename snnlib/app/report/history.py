"""The history of a training run in any usual form: columns of numbers, and their curves with what explains them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch

from snnlib.app.report.section import Section
from snnlib.app.visual import curves

# Above this ratio of the largest to the smallest value a loss is drawn on a logarithmic axis.
_LOG_RATIO = 20

History = Sequence[Mapping[str, float]] | Mapping[str, Sequence[float]]


class Columns(dict[str, list[float]]):
    """Column name to one number per epoch; NaN where an epoch has none.

    The names say what is drawn: those with `loss` or `acc` in them are losses and accuracies, `lr` and
    `learning_rate` learning rates, `rate_<layer>` and `dead_<layer>` firing rates and dead neurons of a layer;
    `warned_<layer>`, the number of warnings that a layer gave, marks epochs in both.

    >>> columns = Columns.of([{"epoch": 1, "train_loss": 2.5, "dead_fc1": 3}, {"epoch": 2, "train_loss": 1.5}])
    >>> columns.having("loss"), columns.of_layers("dead")
    ({'train_loss': [2.5, 1.5]}, {'fc1': [3.0, nan]})
    """

    @classmethod
    def of(cls, history: History) -> Columns:
        """Columns of rows or of columns.

        Raises:
            ValueError: columns of different lengths.
            TypeError: anything else than numbers by name.
        """
        if isinstance(history, Mapping):
            columns = {name: [float(value) for value in values] for name, values in history.items()}
            lengths = {name: len(values) for name, values in columns.items()}
            if len(set(lengths.values())) > 1:
                raise ValueError(f"history: expected columns of one length, got {lengths}")
            return cls(columns)
        names = list(dict.fromkeys(name for row in history for name in row))
        return cls({name: [float(row.get(name, math.nan)) for row in history] for name in names})

    @property
    def epochs(self) -> int:
        """Number of epochs."""
        return len(next(iter(self.values()), []))

    def having(self, *words: str) -> dict[str, list[float]]:
        """Columns with one of `words` in their names."""
        return {name: values for name, values in self.items() if any(word in name.lower() for word in words)}

    def learning_rates(self) -> dict[str, list[float]]:
        """Learning rates."""
        return {
            name: values
            for name, values in self.items()
            if name.lower() in ("lr", "learning_rate") or name.lower().startswith("lr-")
        }

    def of_layers(self, prefix: str) -> dict[str, list[float]]:
        """Columns `<prefix>_<layer>` or `<prefix>/<layer>`, by layer."""
        return {
            name[len(prefix) + 1 :]: values
            for name, values in self.items()
            if name.startswith((f"{prefix}_", f"{prefix}/"))
        }


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
