"""The pictures of a run, each with the sentences that explain it to a newcomer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from snnlib.nn.srm import SRMLayer
from snnlib.training.data_module import CLASSES
from snnlib.training.run import TrainResult
from snnlib.visual import confusion_matrix, curves, raster, save_png

_NAMES = [str(number) for number in range(CLASSES)]


@dataclass(frozen=True)
class Picture:
    """A picture of the run folder: its file, its heading and text in the report, and how it is drawn."""

    file: str
    title: str
    text: str
    draw: Callable[[TrainResult], Figure]


def draw_pictures(result: TrainResult, folder: Path) -> None:
    """Draw every picture of `PICTURES` into the run's folder."""
    for picture in PICTURES:
        save_png(picture.draw(result), folder / picture.file)


@torch.no_grad()
def record_trains(net: nn.Module, frames: Tensor) -> dict[str, Tensor]:
    """Spike trains `[T, ...]` of one sample through a net: the input's, and every SRM layer's by name.

    Args:
        net: a net of SRM layers.
        frames: the sample's frames `[T, C, H, W]`.
    """
    trains = {"input events": frames}
    handles = [
        layer.register_forward_hook(
            lambda _, __, spikes, name=name: trains.update({name: spikes[:, 0].cpu()})
        )
        for name, layer in net.named_modules()
        if isinstance(layer, SRMLayer)
    ]
    weight = next(net.parameters())
    try:
        net(frames.unsqueeze(1).to(weight))
    finally:
        for handle in handles:
            handle.remove()
    return trains


def _draw_accuracy(result: TrainResult) -> Figure:
    columns = {"training set": "train_accuracy", "test set": "test_accuracy"}
    return curves(
        {name: [row[column] for row in result.history] for name, column in columns.items()},
        title="Accuracy after each epoch",
        ylabel="samples recognised",
        percent=True,
        target=(1 / CLASSES, "guessing"),
    )


def _draw_rates(result: TrainResult) -> Figure:
    return curves(
        {layer.name: [row[f"rate_{layer.name}"] for row in result.history] for layer in result.test.layers},
        title="How often neurons fire, on the test set",
        ylabel="spikes per neuron and time step",
        percent=True,
        target=(result.module.config.target_rate, "rate set for hidden layers before training"),
    )


def _draw_confusion(result: TrainResult) -> Figure:
    counts = result.test.confusion
    title = f"{int(counts.diagonal().sum())} of {int(counts.sum())} test samples recognised"
    return confusion_matrix(counts, _NAMES, title=title)


def _draw_raster(result: TrainResult) -> Figure:
    config = result.module.config
    frames, label = result.data.test_set[0]
    trains = record_trains(result.module.net, frames)
    predicted = int(list(trains.values())[-1].sum(0).argmax())
    *hidden, (last, output) = trains.items()
    return raster(
        {**dict(hidden), f"{last}, the output: one neuron per digit": output},
        step_ms=config.step_ms,
        title=f"One test sample through the net: shown {_NAMES[label]}, recognised as {_NAMES[predicted]}",
        classes=_NAMES,
        label=label,
    )


# A further picture, such as a Grad-CAM map, is one more entry here: the run folder and the report show what is listed.
PICTURES = (
    Picture(
        "accuracy.png",
        "Accuracy",
        "The share of digits recognised after each pass over the training set. The line of the test set counts: the "
        "net never learns from those samples. A wide gap between the lines means that it learned by heart.",
        _draw_accuracy,
    ),
    Picture(
        "confusion.png",
        "Which digits are mixed up",
        "Each row holds the test samples of one digit, each column what the net said. The diagonal is right; a number "
        "beside it says how often one digit was taken for another.",
        _draw_confusion,
    ),
    Picture(
        "raster.png",
        "One sample through the net",
        "Every mark is a spike. On top are the events of the camera while it moved three times; below, what each layer "
        "makes of them, step by step. At the bottom the ten output neurons: the one with most spikes is the answer, "
        "and the true digit is in bold.",
        _draw_raster,
    ),
    Picture(
        "spike_rates.png",
        "How busy the neurons are",
        "The share of time steps in which a neuron fires, averaged over each layer. Fewer spikes cost less energy and "
        "time; a layer that falls to zero is silent and learns nothing.",
        _draw_rates,
    ),
)
