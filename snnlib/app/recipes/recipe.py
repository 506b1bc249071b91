"""What a recipe is: settings of training under a name, where they come from and what they reached."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from snnlib.app.training.config import TrainConfig
from snnlib.learning.preparing.targets import wanted_counts

__all__ = ["Measurement", "Recipe"]

# What standardised weights learn with; `prepare_` says the same in its report.
STANDARDIZED: Mapping[str, Any] = MappingProxyType(
    {
        "weight_scheme": "standardized",
        "loss": "count",
        # Below the norm of nearly every gradient: all steps weigh alike.
        "clip_norm": 0.02,
        "lr": 1e-3,
        "warmup_epochs": 0.0,
        "weight_decay": 0.0,
        "target_rate": 0.08,
        "output_rate": 0.08,
    }
)
# Samples are neither moved nor turned.
STILL: Mapping[str, Any] = MappingProxyType({"shift": 0, "rotate": 0.0, "warp": 0.0})


@dataclass(frozen=True)
class Measurement:
    """What a recipe reached on one set of data.

    Args:
        data: what was trained and tested on, with the numbers of samples.
        runs: how many runs there were, and what differed between them.
        last: test accuracy after the last epoch, mean over the runs: the figure to quote.
        command: what measures it again.
        error: its standard error over the runs; None of a single one.
        best: test accuracy of each run's best epoch, mean over the runs. That epoch was chosen on the samples that it
            is tested on, so this is too good. None where it was not looked for.
    """

    data: str
    runs: str
    last: float
    command: str
    error: float | None = None
    best: float | None = None

    def __str__(self) -> str:
        error = "" if self.error is None else f" +- {self.error:.1%}"
        best = "" if self.best is None else f", {self.best:.1%} at the best epoch"
        return (
            f"{self.data}, {self.runs}: test accuracy {self.last:.1%}{error} after the last epoch{best} "
            f"({self.command})"
        )


@dataclass(frozen=True)
class Recipe:
    """Settings under a name, with their origin.

    Args:
        name: what `--recipe` takes.
        source: where net and method come from.
        note: what to know before using it elsewhere.
        settings: the fields of `TrainConfig` that differ from its defaults.
        measured: what it reached; None where nobody has measured it.

    >>> from snnlib.recipes import recipe
    >>> recipe("nmnist").config(root="N-MNIST", epochs=3).epochs
    3
    """

    name: str
    source: str
    note: str
    settings: Mapping[str, Any]
    measured: Measurement | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "settings", MappingProxyType(dict(self.settings)))

    def config(self, **changes: Any) -> TrainConfig:
        """The settings of a run, `changes` before the recipe's own.

        Raises:
            ConfigError: a setting out of its range, or data without a folder.
        """
        return TrainConfig(**{**self.settings, **self.of_start(changes), **changes})

    def of_start(self, changes: Mapping[str, Any]) -> dict[str, Any]:
        """The settings that go with standardised weights where the recipe has others: rates, loss, learning rate."""
        if (
            changes.get("weight_scheme") != "standardized"
            or self.settings.get("weight_scheme") == "standardized"
        ):
            return {}
        steps = {**self.settings, **changes}.get("time_steps", TrainConfig.time_steps)
        desired, undesired = wanted_counts(steps)
        return {**STANDARDIZED, "desired": float(desired), "undesired": float(undesired)}

    def __str__(self) -> str:
        epochs = self.settings.get("epochs", TrainConfig.epochs)
        measured = (
            "not measured" if self.measured is None else f"measured by {epochs} epochs on {self.measured}"
        )
        return f"recipe {self.name}: {self.note}\n  source: {self.source}\n  {measured}"
