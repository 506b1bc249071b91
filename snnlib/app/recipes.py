"""Named training recipes: settings that were measured, where they come from and what they reached.

The settings are a `TrainConfig`'s; `snnlib train --recipe NAME` trains with them, and every option given beside it
overrides the recipe's. `docs/measurements/training.md` tells how they were found.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from snnlib.app.errors import ConfigError
from snnlib.app.training.config import TrainConfig
from snnlib.learning.preparing.targets import wanted_counts

__all__ = [
    "RECIPES",
    "Measurement",
    "Recipe",
    "recipe",
]


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


@dataclass(frozen=True)
class Measurement:
    """What a recipe reached on one set of data.

    Args:
        data: what was trained and tested on, with the numbers of samples.
        runs: how many runs there were, and what differed between them.
        epochs: passes over the training set.
        last: test accuracy after the last epoch, mean over the runs: the figure to quote.
        error: its standard error over the runs; None of a single one.
        best: test accuracy of each run's best epoch, mean over the runs. That epoch was chosen on the samples that it
            is tested on, so this is too good.
        command: what measures it again.
    """

    data: str
    runs: str
    epochs: int
    last: float
    error: float | None
    best: float
    command: str

    def __str__(self) -> str:
        error = "" if self.error is None else f" +- {self.error:.1%}"
        return (
            f"{self.data}, {self.epochs} epochs, {self.runs}: test accuracy {self.last:.1%}{error} "
            f"after the last epoch, {self.best:.1%} at the best epoch ({self.command})"
        )


@dataclass(frozen=True)
class Recipe:
    """Settings under a name, with their origin.

    Args:
        name: what `--recipe` takes.
        source: where net and method come from.
        note: what to know before using it elsewhere.
        measured: what it reached; empty where nobody has measured it.
        settings: the fields of `TrainConfig` that differ from its defaults.

    >>> from snnlib.recipes import recipe
    >>> recipe("nmnist").config(root="N-MNIST", epochs=3).epochs
    3
    """

    name: str
    source: str
    note: str
    measured: tuple[Measurement, ...]
    settings: Mapping[str, Any]

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
        lines = [f"recipe {self.name}: {self.note}", f"  source: {self.source}"]
        measured = [f"  measured on {measurement}" for measurement in self.measured] or ["  not measured"]
        return "\n".join(lines + measured)


def recipe(name: str) -> Recipe:
    """The recipe of that name.

    Raises:
        ConfigError: there is none; the message lists those that there are.

    >>> recipe("cifar")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    snnlib.app.errors.ConfigError: recipe: expected one of digits, nmnist, mnist-events, ..., got 'cifar'
    """
    if name not in RECIPES:
        raise ConfigError("recipe", f"expected one of {', '.join(RECIPES)}, got {name!r}")
    return RECIPES[name]


_DIGITS = Recipe(
    name="digits",
    source="net and time constants of Zhu et al., NeurIPS 2022; loss of Deng et al., ICLR 2022",
    note="the defaults: the settings of nmnist with one copy of each sample, batches of 25 and fewer epochs",
    measured=(
        Measurement(
            data="embedded digits, 1437 to train and 360 to test",
            runs="3 seeds",
            epochs=8,
            last=0.990,
            error=0.002,
            best=0.991,
            command="snnlib train --seed 0, 1, 2",
        ),
    ),
    settings={},
)
_NMNIST = Recipe(
    name="nmnist",
    source=_DIGITS.source,
    note="for a few hundred samples of N-MNIST, on which it was tuned; augmentation matters most",
    measured=(
        Measurement(
            data="N-MNIST, 640 to train and 160 to test",
            runs="5 folds, each the mean of 3 seeds",
            epochs=15,
            last=0.977,
            error=0.005,
            best=0.981,
            command="python benchmarks/learning/accuracy.py --method recipe --seed 0, 1, 2",
        ),
    ),
    settings={"data": "nmnist", "epochs": 15, "batch_size": 10, "copies": 2},
)
_MNIST_EVENTS = Recipe(
    name="mnist-events",
    source=_DIGITS.source,
    note="MNIST's images as a simulated event camera sees them, to pretrain for N-MNIST (docs/training.md)",
    measured=(
        Measurement(
            data="MNIST's training images 1001 to 60000 and the first 5000 test images, simulated",
            runs="seed 0",
            epochs=3,
            last=0.985,
            error=None,
            best=0.985,
            command="python benchmarks/learning/pretraining.py --seeds 0",
        ),
    ),
    settings={"data": "mnist-events", "epochs": 3, "lr": 1e-2},
)

_STILL: dict[str, Any] = {"shift": 0, "rotate": 0.0, "warp": 0.0}
_SEQUENCES: dict[str, Any] = {**_STILL, "clip_norm": 1.0, "weight_decay": 0.0, "target_rate": 0.08}
_ECG = Recipe(
    name="ecg",
    source="neurons of Baronig et al., 2025; data and task of Yin et al., Nature Machine Intelligence 3, 2021",
    note="a label at every step, causal; as examples/ecg.py, measured in docs/measurements/time.md",
    measured=(
        Measurement(
            data="QT database in blocks, 494 sequences to train and 124 to test",
            runs="3 seeds",
            epochs=24,
            last=0.809,
            error=0.004,
            best=0.814,
            command="snnlib train --recipe ecg --threads 1 --seed 0, 1, 2",
        ),
    ),
    settings={
        **_SEQUENCES,
        "data": "ecg",
        "net": "128R-6",
        "neuron": "adlif",
        "tau": 5.0,
        "tau_m": 5.0,
        "tau_s": 1.0,
        "step_ms": 4.0,
        "epochs": 24,
        "batch_size": 16,
        "lr": 1e-2,
        "warmup_epochs": 3.6,
    },
)
_SPEECH = Recipe(
    name="speech",
    source="neurons of examples/spoken_digits.py; the cochlea's filters of Patterson et al., 1987",
    note="recordings of different lengths, tested on a speaker that trains nothing, though the learning rate was "
    "chosen by that speaker; not measured on SHD and SSC",
    measured=(
        Measurement(
            data="free spoken digits, 1500 recordings of three speakers to train and 500 of another to test",
            runs="5 seeds",
            epochs=15,
            last=0.536,
            error=0.023,
            best=0.599,
            command="snnlib train --recipe speech --threads 1 --seed 0, 1, 2, 3, 4",
        ),
    ),
    settings={
        **_SEQUENCES,
        "data": "cochlea-digits",
        "net": "128R-10",
        "neuron": "cubalif",
        "tau": 3.0,
        "tau_m": 20.0,
        "tau_s": 1.0,
        "epochs": 15,
        "batch_size": 32,
        "lr": 1e-3,
        "warmup_epochs": 2.0,
        "weight_decay": 1e-2,
    },
)
_NORMALISED: dict[str, Any] = {
    **_STILL,
    "neuron": "lif",
    "tau": 2.0,
    "surrogate": "atan",
    "batch_norm": True,
    "dropout": 0.1,
    "loss": "mean-potential",
    # A read-out without memory: the mean over time has it.
    "tau_m": 1.0,
    "tau_s": 1.0,
    "lr": 7e-3,
    "weight_decay": 1e-2,
    "clip_norm": 1.0,
}
_WORDS: dict[str, Any] = {
    **_NORMALISED,
    "time_steps": 25,
    "step_ms": 40.0,
    "channels": 40,
    "vary": 0.1,
    "epochs": 40,
    "batch_size": 32,
    "warmup_epochs": 8.0,
}
_WIDE = "24C5s2p2-T1-32C5s2p2-T1-64-64M2-64M2"
_KEYWORDS = Recipe(
    name="keywords",
    source="task of Warden, 2018",
    note="frames of 10 ms in whole numbers, four to a step; LIF and batch norm, blocks that see three steps",
    measured=(
        Measurement(
            data="Speech Commands' test archive, fold 3 of speakers to test (1133 words) and folds 0 to 2 to train",
            runs="seed 0, on the fold that chose the net",
            epochs=40,
            last=0.840,
            error=None,
            best=0.840,
            command="python benchmarks/learning/keywords.py --root ARCHIVE --nets snnlib --folds 3 --seeds 0",
        ),
    ),
    settings={**_WORDS, "data": "keywords", "net": f"{_WIDE}-12"},
)
_KEYWORDS_CHIP = Recipe(
    name="keywords-chip",
    source="task of Warden, 2018; axonal delays of Shrestha and Orchard, NeurIPS 2018",
    note="keywords by a chain of half the weights with delays by channel, for integer nets (docs/leave.md)",
    measured=(
        Measurement(
            data="Speech Commands' test archive, fold 3 of speakers to test (1133 words) and folds 0 to 2 to train",
            runs="seed 0, on the fold that chose the net",
            epochs=40,
            last=0.820,
            error=None,
            best=0.820,
            command="python benchmarks/learning/keywords.py --root ARCHIVE --nets 'snnlib, chip' --folds 3 --seeds 0",
        ),
    ),
    settings={**_WORDS, "data": "keywords", "net": "24C5s2p2-A1-32C5s2p2-A2-96-12"},
)
_SPOKEN_DIGITS = Recipe(
    name="spoken-digits",
    source="net and settings of keywords",
    note="stronger changes of tempo and voice, as there are three or four speakers",
    measured=(
        Measurement(
            data="free spoken digits, 1500 recordings of three speakers to train and 500 of the first to test",
            runs="seed 0",
            epochs=25,
            last=0.784,
            error=None,
            best=0.784,
            command="python benchmarks/learning/keywords.py --digits --root DIR --nets snnlib --folds 0 --seeds 0",
        ),
    ),
    settings={**_WORDS, "data": "spoken-digits", "net": f"{_WIDE}-10", "vary": 0.15, "epochs": 25},
)
_BEATS = Recipe(
    name="beats",
    source="task of de Chazal, O'Dwyer and Reilly, 2004; axonal delays of Shrestha and Orchard, NeurIPS 2018",
    note="beats N, S and V of patients who were never seen, beside the beats before and their intervals; an epoch has "
    "9,600 beats, rare ones as often as need be",
    measured=(
        Measurement(
            data="DS1 of the MIT-BIH Arrhythmia Database, 50,587 beats N, S and V in five folds by patient",
            runs="seed 0, counts of all folds",
            epochs=4,
            last=0.945,
            error=None,
            best=0.945,
            command="python benchmarks/learning/beats.py --root MITDB --nets snnlib --seeds 0",
        ),
    ),
    settings={
        **_NORMALISED,
        "data": "beats",
        "net": "96-A4-96-3",
        "dropout": 0.2,
        "lr": 5e-3,
        "time_steps": 31,
        "step_ms": 22.2,
        "epochs": 4,
        "batch_size": 96,
        "warmup_epochs": 0.8,
    },
)
_IMAGES: dict[str, Any] = {
    **_STILL,
    "time_steps": 5,
    "tau_m": 5.0,
    "tau_s": 3.0,
    "tau_grad": 2.5,
    "input_grad_scale": 0.85,
    **STANDARDIZED,
    "desired": 5.0,
    "undesired": 1.0,
    "epochs": 12,
    "batch_size": 50,
}
_OF_MNIST: dict[str, Any] = {"data": "mnist", "mean": 0.1307, "std": 0.3081}
_MNIST = Recipe(
    name="mnist",
    source="net, time constants and loss of Zhu et al., NeurIPS 2022",
    note="the image as amplitudes at each of 5 steps; as examples/mnist.py",
    measured=(
        Measurement(
            data="MNIST, 60000 to train and the first 5000 test images",
            runs="three seeds",
            epochs=12,
            last=0.9904,
            error=0.0009,
            best=0.9907,
            command="snnlib train --recipe mnist --threads 1",
        ),
    ),
    settings={**_IMAGES, **_OF_MNIST, "net": "15C5-P2-40C5-P2-300-10"},
)
_FASHION_MNIST = Recipe(
    name="fashion-mnist",
    source="net and time constants of Zhu et al., NeurIPS 2022",
    note="the settings of mnist with the paper's larger net",
    measured=(),
    settings={
        **_IMAGES,
        "data": "fashion-mnist",
        "net": "32C5-P2-64C5-P2-1024-10",
        "mean": 0.2860,
        "std": 0.3530,
    },
)
_PIXELS: dict[str, Any] = {
    **_STILL,
    **_OF_MNIST,
    "encoding": "pixels",
    "time_steps": 784,
    "net": "64S-64S-64S-10",
    "neuron": "spiking-lru",
    "surrogate": "atan",
    "loss": "mean-potential",
    # A read-out without memory: the blocks have it.
    "tau_m": 1.0,
    "tau_s": 1.0,
    "clip_norm": 1.0,
    "epochs": 3,
    "batch_size": 32,
    "lr": 4e-3,
    "warmup_epochs": 0.1,
    "weight_decay": 0.01,
}
_SMNIST = Recipe(
    name="smnist",
    source="task of Le et al., 2015; blocks of Orvieto et al., ICML 2023, with spikes between their maps",
    note="sequential MNIST, a pixel at each of 784 steps; --neuron lru has no spikes, and --net 256R-10 with --neuron "
    "brf, or adlif and --surrogate triangle, is a recurrent net",
    measured=(
        Measurement(
            data="MNIST, 60000 to train and the first 5000 test images, pixel by pixel",
            runs="seed 0",
            epochs=3,
            last=0.9754,
            error=None,
            best=0.9754,
            command="snnlib train --recipe smnist --threads 1",
        ),
    ),
    settings=_PIXELS,
)
_PSMNIST = Recipe(
    name="psmnist",
    source=_SMNIST.source,
    note="permuted sequential MNIST: smnist with the pixels in one random order",
    measured=(
        Measurement(
            data="MNIST, 60000 to train and the first 5000 test images, in a random order of the pixels",
            runs="seed 0, without spikes",
            epochs=3,
            last=0.9268,
            error=None,
            best=0.9268,
            command="snnlib train --recipe psmnist --neuron lru --threads 1",
        ),
    ),
    settings={**_PIXELS, "encoding": "permuted-pixels"},
)
_YIN_YANG = Recipe(
    name="yin-yang",
    source="task and coding of Göltz et al., Nature Machine Intelligence 3, 2021",
    note="exact spike times, one spike for each neuron; --net 30D15-3D15 --epochs 100 --lr 1e-2 learns delays, too",
    measured=(
        Measurement(
            data="Yin-Yang, the published 5000 points to train and 1000 to test",
            runs="2 seeds",
            epochs=40,
            last=0.957,
            error=0.003,
            best=0.965,
            command="snnlib train --recipe yin-yang --threads 1 --seed 0, 1",
        ),
    ),
    settings={
        **_STILL,
        "data": "yin-yang",
        "net": "30-3",
        "neuron": "cuba-once",
        "time_steps": 90,
        "tau_m": 60.0,
        "tau_s": 30.0,
        "loss": "first-spike",
        # A tenth of a synaptic time constant.
        "logit_scale": 1 / 3,
        # Nearly a spike in a sequence.
        "target_rate": 0.01,
        "output_rate": 0.01,
        "epochs": 40,
        "batch_size": 150,
        "lr": 2e-2,
        "warmup_epochs": 0.0,
        "weight_decay": 0.0,
        "clip_norm": 0.3,
    },
)
_ALL = (
    _DIGITS,
    _NMNIST,
    _MNIST_EVENTS,
    _MNIST,
    _FASHION_MNIST,
    _SMNIST,
    _PSMNIST,
    _ECG,
    _SPEECH,
    _KEYWORDS,
    _KEYWORDS_CHIP,
    _SPOKEN_DIGITS,
    _BEATS,
    _YIN_YANG,
)
RECIPES: Mapping[str, Recipe] = MappingProxyType({each.name: each for each in _ALL})
