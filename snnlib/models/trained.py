"""Trained nets that come with the package, each with a card that says what it was trained on and how well it does."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib import resources
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from snnlib.data import ToFrames
from snnlib.models.notation import from_notation
from snnlib.nn.readout import SRMReadout

# What is not shipped, with the command that makes it.
_BY_COMMAND = {"nmnist": "snnlib train --recipe nmnist --root FOLDER --out RUN, then snnlib.load('RUN')"}


@dataclass(frozen=True)
class Card:
    """Facts on a trained net: where it comes from and what it does.

    Args:
        data: what it was trained and tested on, with the numbers of samples.
        command: what trains it.
        seed: of this net.
        version: of snnlib, which trained it.
        accuracy: share of the test samples that it gets right.
        mean_accuracy: the same for nets of several seeds, mean.
        accuracy_error: standard error of that mean over the seeds.
        seeds: how many seeds.
        parameters: trained numbers.
        spikes: spikes of all neurons per test sample.
        accumulations: effective additions of a weight per test sample.
        multiplications: effective multiplications per test sample.
    """

    data: str
    command: str
    seed: int
    version: str
    accuracy: float
    mean_accuracy: float
    accuracy_error: float
    seeds: int
    parameters: int
    spikes: float
    accumulations: float
    multiplications: float

    def __str__(self) -> str:
        return (
            f"{self.data}\n"
            f"trained by: {self.command} (seed {self.seed}, snnlib {self.version})\n"
            f"test accuracy {self.accuracy:.1%}; over {self.seeds} seeds {self.mean_accuracy:.1%} +- "
            f"{self.accuracy_error:.1%}\n"
            f"{self.parameters:,} parameters; per sample {self.spikes:,.0f} spikes, "
            f"{self.accumulations:,.0f} additions of a weight, {self.multiplications:,.0f} multiplications"
        )


class TrainedNet(NamedTuple):
    """The result of `load`.

    Args:
        net: the net in evaluation mode; spike tensors `[T, N, C, H, W]` to output potentials `[T, N, classes]`.
        transform: maps an event array to the net's input for one sample `[T, C, H, W]`.
        classes: names of the classes.
        card: origin and figures; print it.
    """

    net: nn.Sequential
    transform: ToFrames
    classes: tuple[str, ...]
    card: Card


def load(name: str) -> TrainedNet:
    """A trained net that comes with the package; the class with the highest mean potential is its answer.

    Args:
        name: `"digits"`: the net of `snnlib train` on the embedded event digits.

    Raises:
        ValueError: no such net; for nets whose data may not be shipped, the message says what makes them.

    >>> import snnlib, torch
    >>> net, transform, classes, card = snnlib.models.load("digits")
    >>> events, label = snnlib.data.EventDigits(train=False)[0]
    >>> potential = net(transform(events).unsqueeze(1))              # [T, 1, classes]
    >>> classes[potential.mean(0).argmax()] == classes[label]
    True
    """
    folder = resources.files("snnlib.models") / "weights"
    if not (folder / f"{name}.json").is_file():
        how = f"; it is made by: {_BY_COMMAND[name]}" if name in _BY_COMMAND else ""
        raise ValueError(f"name: expected one of {', '.join(_names(folder))}, got {name!r}{how}")
    settings = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    taus = settings["neuron"]
    net = from_notation(settings["net"], tuple(settings["input_shape"]), **taus)
    last, layer = list(net.named_children())[-1]
    readout = SRMReadout(layer.in_features, layer.out_features, tau_m=taus["tau_m"], tau_s=taus["tau_s"])  # type: ignore[arg-type]
    setattr(net, last, readout)
    with (folder / f"{name}.npz").open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        net.load_state_dict({key: torch.from_numpy(arrays[key]) for key in arrays.files})
    frames = ToFrames(**{**settings["frames"], "sensor_size": tuple(settings["input_shape"][1:])})
    return TrainedNet(net.eval(), frames, tuple(settings["classes"]), Card(**settings["card"]))


def _names(folder: Any) -> list[str]:
    return sorted(file.name.removesuffix(".json") for file in folder.iterdir() if file.name.endswith(".json"))
