"""The history of a training run in any usual form, as columns of numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

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
