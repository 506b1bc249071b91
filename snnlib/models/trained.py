"""Trained nets that come with the package, each with a card that says what it was trained on and how well it does."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from snnlib.data import ToFrames, ToSequence
from snnlib.models.notation import from_notation
from snnlib.nn.readout import SRMReadout

# Largest number of 8 bits with a sign, and the end of the names of the scales of such numbers.
_LARGEST, _SCALE = 127, ":scale"


@dataclass(frozen=True)
class Card:
    """Facts on a trained net: where it comes from and what it does.

    Args:
        data: what it was trained and tested on, with the numbers of samples.
        licence: of the data, and who made them.
        command: what trains it.
        seed: of this net.
        version: of snnlib, which trained it.
        accuracy: share of the test samples that it gets right.
        mean_accuracy: the same for nets of several seeds, mean.
        accuracy_error: standard error of that mean over the seeds.
        seeds: how many seeds.
        input_shape: `[C, H, W]` of the net's input at one step; images are resized to it.
        parameters: trained numbers.
        spikes: spikes of all neurons per test sample.
        accumulations: effective additions of a weight per test sample.
        multiplications: effective multiplications per test sample.
    """

    data: str
    licence: str
    command: str
    seed: int
    version: str
    accuracy: float
    mean_accuracy: float
    accuracy_error: float
    seeds: int
    input_shape: tuple[int, int, int]
    parameters: int
    spikes: float
    accumulations: float
    multiplications: float

    def __str__(self) -> str:
        return (
            f"{self.data}\ndata: {self.licence}\n"
            f"trained by: {self.command} (seed {self.seed}, snnlib {self.version})\n"
            f"test accuracy {self.accuracy:.1%}; over {self.seeds} seeds {self.mean_accuracy:.1%} +- "
            f"{self.accuracy_error:.1%}\n"
            f"{self.parameters:,} parameters; per sample {self.spikes:,.0f} spikes, "
            f"{self.accumulations:,.0f} additions of a weight, {self.multiplications:,.0f} multiplications"
        )


class TrainedNet(NamedTuple):
    """The result of `load`.

    Args:
        net: the net in evaluation mode; sequences `[T, N, C, H, W]` to output potentials or spikes `[T, N, classes]`.
        transform: maps an event array, or an image uint8 `[1, H, W]`, to the net's input for one sample `[T, C, H, W]`.
        classes: names of the classes.
        card: origin and figures; print it.
    """

    net: nn.Sequential
    transform: ToFrames | ToSequence
    classes: tuple[str, ...]
    card: Card


def load(name: str) -> TrainedNet:
    """A trained net that comes with the package; the class with the highest mean output is its answer.

    Args:
        name: `"digits"`: the net of `snnlib train` on the embedded event digits; `"mnist"`: that of recipe `mnist`,
            which learned from spike times; `"nmnist"`: that of recipe `nmnist`, from 700 recordings.

    Raises:
        ValueError: no such net.

    >>> import snnlib, torch
    >>> digits = snnlib.models.load("digits")
    >>> events, label = snnlib.data.EventDigits(train=False)[0]
    >>> output = digits.net(digits.transform(events).unsqueeze(1))   # [T, 1, classes]
    >>> digits.classes[output.mean(0).argmax()] == digits.classes[label]
    True
    """
    if name not in names():
        raise ValueError(f"name: expected one of {', '.join(names())}, got {name!r}")
    folder = _folder()
    settings = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    card = Card(**{**settings["card"], "input_shape": tuple(settings["card"]["input_shape"])})
    neuron, shape = settings["neuron"], card.input_shape
    net = from_notation(settings["net"], shape, **neuron)
    if settings["readout"] == "potentials":
        last, layer = list(net.named_children())[-1]
        readout = SRMReadout(
            layer.in_features,  # type: ignore[arg-type]
            layer.out_features,  # type: ignore[arg-type]
            tau_m=neuron["tau_m"],
            tau_s=neuron["tau_s"],
        )
        setattr(net, last, readout)
    with (folder / f"{name}.npz").open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        net.load_state_dict(unpacked(dict(arrays)))
    made: type[ToFrames] | type[ToSequence] = ToSequence
    if "step_us" in settings["transform"]:
        made, settings["transform"]["sensor_size"] = ToFrames, shape[1:]
    return TrainedNet(net.eval(), made(**settings["transform"]), tuple(settings["classes"]), card)


def names() -> list[str]:
    """Names of the nets that come with the package."""
    files = (file.name for file in _folder().iterdir())
    return sorted(name.removesuffix(".json") for name in files if name.endswith(".json"))


def _folder() -> Traversable:
    return resources.files("snnlib.models") / "weights"


def packed(state: Mapping[str, Tensor]) -> dict[str, np.ndarray[Any, Any]]:
    """Returns a `state_dict` with matrices and kernels as 8 bits and a scale per output channel.

    What is a vector or a number stays as it is. `unpacked` gives tensors again, off by half a 127th of the channel's
    largest weight at most.
    """
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    for key, value in state.items():
        if value.ndim < 2:
            arrays[key] = value.numpy()
            continue
        rows = value.flatten(1)
        scale = rows.abs().amax(1, keepdim=True).clamp(min=torch.finfo(rows.dtype).tiny) / _LARGEST
        arrays[key] = (rows / scale).round().to(torch.int8).reshape(value.shape).numpy()
        arrays[key + _SCALE] = scale.squeeze(1).numpy()
    return arrays


def unpacked(arrays: Mapping[str, np.ndarray[Any, Any]]) -> dict[str, Tensor]:
    """Returns the `state_dict` that `packed` was given, up to rounding."""
    state = {}
    for key, array in arrays.items():
        if key.endswith(_SCALE):
            continue
        value = torch.from_numpy(array)
        if value.dtype == torch.int8:
            scale = torch.from_numpy(arrays[key + _SCALE])
            value = value * scale.reshape(-1, *[1] * (value.ndim - 1))
        state[key] = value
    return state
