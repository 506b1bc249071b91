"""Recipe: named training settings, with their origin and the accuracy that they reached."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from snnlib.app.training.config import DEFAULTS, TrainConfig
from snnlib.app.training.neuron import SPIKE_TIME_NEURONS
from snnlib.learning.preparing.targets import wanted_counts

__all__ = ["Recipe"]

# Settings for standardised weights; `prepare_` says the same in its report.
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
# Settings for nets on a chip, which has no SRM neurons.
ON_CHIP: Mapping[str, Any] = MappingProxyType({"neuron": "lif", "tau": 6.0})
# Samples are neither moved nor turned.
STILL: Mapping[str, Any] = MappingProxyType({"shift": 0, "rotate": 0.0, "warp": 0.0})


@dataclass(frozen=True)
class Recipe:
    """Settings under a name, with their origin.

    Args:
        name: what `--recipe` takes.
        source: where net and method come from.
        note: what to know before using it elsewhere.
        settings: the fields of `TrainConfig` that differ from its defaults.
        measured: data and runs, the accuracy that they reached and what measures it again; empty where nobody has. The
            last epoch's figure is the one to quote: the best one was chosen on the samples that it is tested on.

    >>> from snnlib.recipes import recipe
    >>> recipe("nmnist").config(root="N-MNIST", epochs=3).learning.epochs
    3
    """

    name: str
    source: str
    note: str
    settings: Mapping[str, Any]
    measured: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "settings", MappingProxyType(dict(self.settings)))

    def config(self, **changes: Any) -> TrainConfig:
        """The settings of a run, `changes` before the recipe's own.

        Raises:
            ConfigError: a setting out of its range, or data without a folder.
        """
        return TrainConfig(**{**self.settings, **self.beside(changes), **changes})

    def beside(self, changes: Mapping[str, Any]) -> dict[str, Any]:
        """The settings that go with a chip, or with standardised weights, where the recipe has others.

        For a chip neurons, with standardised weights rates, loss and learning rate.
        """
        srm = self.settings.get("neuron", DEFAULTS["neuron"]) in SPIKE_TIME_NEURONS
        if changes.get("dialect") and srm:
            return dict(ON_CHIP)
        if (
            changes.get("weight_scheme") != "standardized"
            or self.settings.get("weight_scheme") == "standardized"
        ):
            return {}
        steps = {**self.settings, **changes}.get("time_steps", DEFAULTS["time_steps"])
        desired, undesired = wanted_counts(steps)
        return {**STANDARDIZED, "desired": float(desired), "undesired": float(undesired)}

    def __str__(self) -> str:
        epochs = self.settings.get("epochs", DEFAULTS["epochs"])
        measured = f"measured by {epochs} epochs on {self.measured}" if self.measured else "not measured"
        return f"recipe {self.name}: {self.note}\n  source: {self.source}\n  {measured}"
