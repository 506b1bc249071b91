"""Trained nets of the package, each with a card of its data and accuracy."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from snnlib import encoding
from snnlib.models.notation import from_notation
from snnlib.neurons import from_config
from snnlib.nn.layers.readout import SRMReadout

# The end of the names of the scales of whole numbers.
_SCALE = ":scale"

# How a net answers: by the mean of its outputs over time, at every step, or by the output that fires first.
Decision = Literal["mean", "every step", "first spike"]


@dataclass(frozen=True)
class Card:
    """Facts on a trained net: origin, data and accuracy.

    Args:
        data: data sets for training and test, with numbers of samples.
        licence: licence and authors of the data.
        command: command that trains the net.
        seed: seed of this net.
        version: version of snnlib that trained the net.
        decision: decision from the outputs: `"mean"` over time, at `"every step"`, or by the `"first spike"`.
        accuracy: share of test samples classified correctly, or of labelled steps for decisions at every step.
        test_samples: number of test samples; the standard error of the accuracy, which is printed with it, is
            `sqrt(accuracy (1 - accuracy) / test_samples)`.
        mean_accuracy: mean accuracy of several seeds on the same samples.
        accuracy_error: standard error of this mean over seeds, without the error from the choice of samples.
        seeds: number of seeds.
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
    decision: Decision
    accuracy: float
    test_samples: int
    mean_accuracy: float
    accuracy_error: float
    seeds: int
    input_shape: tuple[int, int, int]
    parameters: int
    spikes: float
    accumulations: float
    multiplications: float

    def __str__(self) -> str:
        steps = " of the labelled steps" if self.decision == "every step" else ""
        error = (self.accuracy * (1 - self.accuracy) / self.test_samples) ** 0.5
        seeds = (
            f"; {self.seeds} seeds on these samples {self.mean_accuracy:.1%} +- {self.accuracy_error:.1%}"
            if self.seeds > 1
            else ""
        )
        return (
            f"{self.data}\ndata: {self.licence}\n"
            f"trained by: {self.command} (seed {self.seed}, snnlib {self.version})\n"
            f"test accuracy {self.accuracy:.1%}{steps} +- {error:.1%}, as there are {self.test_samples} samples"
            f"{seeds}\n"
            f"{self.parameters:,} parameters; per sample {self.spikes:,.0f} spikes, "
            f"{self.accumulations:,.0f} additions of a weight, {self.multiplications:,.0f} multiplications"
        )


class TrainedNet(NamedTuple):
    """The result of `load`.

    Args:
        net: the net in evaluation mode; sequences `[T, N, ...]` to output potentials or spikes `[T, N, classes]`.
        transform: maps one sample to the net's input: an event array to `[T, C, H, W]`, images uint8 `[..., H, W]` to
            `[T, ..., H, W]`, sound `[samples]` of a word to `[T, window, 1, C]` (in parts by its `run(part, state)`),
            spikes `[T, C]` of an electrocardiogram to floats, signal and R peaks of a record of `MITBIH` to its beats
            `[T, N, C]`, and points `[N, C]` to `[T, N, C]`.
        classes: names of the classes.
        card: origin and figures; print it.
    """

    net: nn.Sequential
    transform: Callable[[Any], Tensor]
    classes: tuple[str, ...]
    card: Card

    def scores(self, x: Tensor) -> Tensor:
        """Returns scores `[N, classes]` of sequences `[T, N, ...]`, or `[T, N, classes]` for decisions at every step.

        The class with the highest score is the answer.
        """
        return scores_of(self.net(x), self.card.decision)


def scores_of(output: Tensor, decision: Decision) -> Tensor:
    """Returns scores of each class from a net's outputs `[T, N, classes]`, by its kind of decision."""
    if decision == "mean":
        return output.mean(0)
    if decision == "first spike":
        # Steps before the first spike: the fewer, the better.
        return -((output != 0).cumsum(0) == 0).sum(0)
    return output


def load(name: str) -> TrainedNet:
    """Loads a trained net of the package.

    Args:
        name: `"digits"`: the net of `snnlib train` on the embedded event digits; `"mnist"`: the net of recipe `mnist`,
            trained by spike-time gradients; `"nmnist"`: the net of recipe `nmnist`, trained on 700 recordings;
            `"ecg"`: a recurrent net of the recipe of this name; `"keywords"`, `"spoken-digits"` and `"beats"`: nets of
            the recipes of these names, for words at 16 kHz, digits at 8 kHz and heart beats; `"keywords-chip"`: a
            smaller net for words that `export_c` takes; `"yin-yang"`: a net of exact spike times.

    Raises:
        ValueError: an unknown name.

    >>> import snnlib, torch
    >>> digits = snnlib.models.load("digits")
    >>> events, label = snnlib.data.EventDigits(train=False)[0]
    >>> scores = digits.scores(digits.transform(events).unsqueeze(1))   # [1, classes]
    >>> digits.classes[scores[0].argmax()] == digits.classes[label]
    True
    """
    if name not in names():
        raise ValueError(f"name: expected one of {', '.join(names())}, got {name!r}")
    folder = _folder()
    settings = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    card = Card(**{**settings["card"], "input_shape": tuple(settings["card"]["input_shape"])})
    net = net_of(settings, card.input_shape)
    with (folder / f"{name}.npz").open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        weights = unpacked(dict(arrays))
    net.load_state_dict(weights)
    transform = transform_of(settings["transform"], card.input_shape)
    return TrainedNet(net.eval(), transform, tuple(settings["classes"]), card)


def net_of(settings: Mapping[str, Any], input_shape: tuple[int, int, int]) -> nn.Sequential:
    """Returns the untrained net that a net's file describes.

    Args:
        settings: `"net"` in the papers' notation; `"neuron"` of all layers, as `snnlib.neurons.config` gives it, or
            options of SRM layers; `"options"`, `batch_norm` and `dropout` beside other neurons, default none;
            `"readout"`, constants of an `SRMReadout` as last layer, or None.
        input_shape: `[C, H, W]` of its input at one step.
    """
    neuron = settings["neuron"]
    if "model" in neuron:
        # Recurrent layers consist of these neurons, too.
        options = settings.get("options", {})
        net = from_notation(settings["net"], input_shape, neuron=from_config(neuron), **options)
    else:
        net = from_notation(settings["net"], input_shape, **neuron)
    if settings["readout"]:
        last, layer = list(net.named_children())[-1]
        readout = SRMReadout(
            layer.in_features,  # type: ignore[arg-type]
            layer.out_features,  # type: ignore[arg-type]
            **settings["readout"],
        )
        setattr(net, last, readout)
    return net


def names() -> list[str]:
    """Names of the nets that come with the package."""
    files = (file.name for file in _folder().iterdir())
    return sorted(name.removesuffix(".json") for name in files if name.endswith(".json"))


def _folder() -> Traversable:
    return resources.files("snnlib.models") / "weights"


def packed(state: Mapping[str, Tensor], dtype: torch.dtype = torch.int8) -> dict[str, np.ndarray[Any, Any]]:
    """Returns a `state_dict` with matrices and kernels as 8 or 16 bits and a scale per output channel.

    Vectors and numbers stay unchanged. `unpacked` gives tensors again, of 8 bits off by half a 127th of the channel's
    largest weight at most.
    """
    most = torch.iinfo(dtype).max
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    for key, value in state.items():
        if value.ndim < 2:
            arrays[key] = value.numpy()
            continue
        rows = value.flatten(1)
        scale = rows.abs().amax(1, keepdim=True).clamp(min=torch.finfo(rows.dtype).tiny) / most
        arrays[key] = (rows / scale).round().to(dtype).reshape(value.shape).numpy()
        arrays[key + _SCALE] = scale.squeeze(1).numpy()
    return arrays


def unpacked(arrays: Mapping[str, np.ndarray[Any, Any]]) -> dict[str, Tensor]:
    """Returns the `state_dict` that `packed` was given, up to rounding."""
    state = {}
    for key, array in arrays.items():
        if key.endswith(_SCALE):
            continue
        value = torch.from_numpy(array)
        if key + _SCALE in arrays:
            scale = torch.from_numpy(arrays[key + _SCALE])
            value = value * scale.reshape(-1, *[1] * (value.ndim - 1))
        state[key] = value
    return state


def transform_of(settings: Mapping[str, Any], input_shape: tuple[int, int, int]) -> Callable[[Any], Tensor]:
    """Returns the transform that a net's file describes.

    Args:
        settings: `"of"`, what it takes: `"events"`, `"image"`, `"word"`, `"beats"`, `"spikes"` or `"points"`, and its
            options.
        input_shape: `[C, H, W]` of the net's input at one step.
    """
    options = dict(settings)
    kind = options.pop("of")
    if kind == "spikes":
        return partial(torch.as_tensor, dtype=torch.float32)
    if kind == "points":
        return partial(spikes_of_points, **options)
    # The front ends of data, which no other net needs.
    from snnlib.data import BeatFrames, LogMel, StackFrames, ToFrames, ToSequence  # noqa: PLC0415
    from snnlib.data.word_to_steps import WordToSteps  # noqa: PLC0415

    makers: dict[str, Callable[[], Callable[[Any], Tensor]]] = {
        "events": lambda: ToFrames(sensor_size=input_shape[1:], **options),
        "image": lambda: ToSequence(**options),
        "word": lambda: WordToSteps(
            LogMel(input_shape[2], sample_rate=options["sample_rate"]),
            StackFrames(options["hop"], options["window"]),
            options["frames"] // options["hop"],
        ),
        "beats": lambda: lambda record: BeatFrames()(*record).transpose(0, 1).float(),
    }
    return makers[kind]()


def spikes_of_points(points: Tensor, *, first: float, span: float, time_steps: int, dt: float) -> Tensor:
    """Returns a spike per coordinate at `first + span x`, for x from 0 to 1.

    Args:
        points: `[C]`, or several of them `[N, C]`.
        first, span: earliest time and its distance from the latest, in the unit of `dt`.
        time_steps, dt: number and length of the steps.

    Returns:
        `[T, C]`, or `[T, N, C]`; a spike between two steps is shared out to both.

    >>> spikes_of_points(torch.tensor([0.0, 0.5]), first=1.0, span=2.0, time_steps=4, dt=1.0).tolist()
    [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]
    """
    times = first + span * points.reshape(-1, points.shape[-1])
    spikes = encoding.at_times(times, time_steps, dt=dt, mode="shared")
    return spikes if points.dim() > 1 else spikes[:, 0]
