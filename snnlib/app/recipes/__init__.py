"""Named training recipes: settings that were measured, where they come from and what they reached.

The settings are a `TrainConfig`'s; `snnlib train --recipe NAME` trains with them, and every option given beside it
overrides the recipe's. `docs/measurements/training.md` tells how they were found.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from snnlib.app.errors import ConfigError
from snnlib.app.recipes.recipe import STANDARDIZED, STILL, Recipe
from snnlib.app.recipes.signals import SIGNALS

__all__ = ["RECIPES", "Recipe", "recipe"]


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
    measured="embedded digits, 1437 to train and 360 to test, 3 seeds: test accuracy 99.0 +- 0.2 % after the last "
    "epoch, 99.1 at the best epoch (snnlib train --seed 0, 1, 2)",
    settings={},
)
_NMNIST = Recipe(
    name="nmnist",
    source=_DIGITS.source,
    note="for a few hundred samples of N-MNIST, on which it was tuned; augmentation matters most",
    measured="N-MNIST, 640 to train and 160 to test, 5 folds, each the mean of 3 seeds: test accuracy 97.7 +- 0.5 % "
    "after the last epoch, 98.1 at the best epoch (python benchmarks/learning/accuracy.py --method recipe "
    "--seed 0 1 2)",
    settings={"data": "nmnist", "epochs": 15, "batch_size": 10, "copies": 2},
)
_MNIST_EVENTS = Recipe(
    name="mnist-events",
    source=_DIGITS.source,
    note="MNIST's images as a simulated event camera sees them, to pretrain for N-MNIST (docs/training.md)",
    measured="MNIST's training images 1001 to 60000 and the first 5000 test images, simulated, seed 0: test accuracy "
    "98.5 % after the last epoch (python benchmarks/learning/pretraining.py --seeds 0)",
    settings={"data": "mnist-events", "epochs": 3, "lr": 1e-2},
)

_IMAGES: dict[str, Any] = {
    **STILL,
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
    measured="MNIST, 60000 to train and the first 5000 test images, three seeds: test accuracy 99.0 +- 0.1 % after "
    "the last epoch, 99.1 at the best epoch (snnlib train --recipe mnist --threads 1)",
    settings={**_IMAGES, **_OF_MNIST, "net": "15C5-P2-40C5-P2-300-10"},
)
_FASHION_MNIST = Recipe(
    name="fashion-mnist",
    source="net and time constants of Zhu et al., NeurIPS 2022",
    note="the settings of mnist with the paper's larger net",
    settings={
        **_IMAGES,
        "data": "fashion-mnist",
        "net": "32C5-P2-64C5-P2-1024-10",
        "mean": 0.2860,
        "std": 0.3530,
    },
)
_PIXELS: dict[str, Any] = {
    **STILL,
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
    measured="MNIST, 60000 to train and the first 5000 test images, pixel by pixel, seed 0: test accuracy 97.5 % "
    "after the last epoch (snnlib train --recipe smnist --threads 1)",
    settings=_PIXELS,
)
_PSMNIST = Recipe(
    name="psmnist",
    source=_SMNIST.source,
    note="permuted sequential MNIST: smnist with the pixels in one random order",
    measured="MNIST, 60000 to train and the first 5000 test images, in a random order of the pixels, seed 0, without "
    "spikes: test accuracy 92.7 % after the last epoch "
    "(snnlib train --recipe psmnist --neuron lru --threads 1)",
    settings={**_PIXELS, "encoding": "permuted-pixels"},
)
_YIN_YANG = Recipe(
    name="yin-yang",
    source="task and coding of Göltz et al., Nature Machine Intelligence 3, 2021",
    note="exact spike times, one spike for each neuron; --net 30D15-3D15 --epochs 100 --lr 1e-2 learns delays, too",
    measured="Yin-Yang, the published 5000 points to train and 1000 to test, 2 seeds: test accuracy 95.7 +- 0.3 % "
    "after the last epoch, 96.5 at the best epoch (snnlib train --recipe yin-yang --threads 1 --seed 0, 1)",
    settings={
        **STILL,
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
    *SIGNALS,
    _YIN_YANG,
)
RECIPES: Mapping[str, Recipe] = MappingProxyType({each.name: each for each in _ALL})
