"""The pictures of a run, each with the sentences that explain it to a newcomer."""

from __future__ import annotations

from collections.abc import Callable, Sized
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from snnlib.data import stack_time_first
from snnlib.explain import GradCAM
from snnlib.functional import Convolution
from snnlib.nn.pool import SpikeAvgPool2d
from snnlib.nn.srm import SRMConv2d, SRMLayer
from snnlib.training.run import TrainResult
from snnlib.visual import confusion_matrix, curves, heat_strips, raster, save_png

# Test samples among which those for the heat maps are looked for: enough to hold a mistake of most nets.
_HEAT_SAMPLES = 60


@dataclass(frozen=True)
class Picture:
    """A picture of the run folder: its file, its heading and text in the report, and how it is drawn.

    `draw` gives None where a run has nothing to show; `absent` is what the report says then.
    """

    file: str
    title: str
    text: str
    draw: Callable[[TrainResult], Figure | None]
    absent: str = ""


def draw_pictures(result: TrainResult, folder: Path) -> list[str]:
    """Draw the pictures of `PICTURES` into the run's folder; gives the files of those that there are."""
    files = []
    for picture in PICTURES:
        figure = picture.draw(result)
        if figure is not None:
            save_png(figure, folder / picture.file)
            files.append(picture.file)
    return files


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
        target=(1 / len(result.test.classes), "guessing"),
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
    return confusion_matrix(counts, result.test.classes, title=title)


def _draw_raster(result: TrainResult) -> Figure:
    module, config, names = result.module, result.module.config, result.test.classes
    frames, label = result.data.test_set[0]
    trains = record_trains(module.net, frames)
    potentials = None
    with torch.no_grad():
        output = module.net(frames.unsqueeze(1).to(next(module.parameters())))
        predicted = int(module.objective.scores(output).argmax())
    if config.loss == "tet":
        potentials = output[:, 0].float().cpu()
    else:
        last = list(trains)[-1]
        trains[f"{last}, the output: one neuron per digit"] = trains.pop(last)
    return raster(
        trains,
        potentials=potentials,
        step_ms=config.step_ms,
        title=f"One test sample through the net: shown {names[label]}, recognised as {names[predicted]}",
        classes=names,
        label=label,
    )


def _draw_heat(result: TrainResult) -> Figure | None:
    net, scores = result.module.net, result.module.objective.scores
    layer, stride = last_conv(net)
    if layer is None:
        return None
    samples = result.data.test_set
    step = -(-len(cast(Sized, samples)) // _HEAT_SAMPLES)
    frames, labels = stack_time_first([samples[index] for index in range(0, len(cast(Sized, samples)), step)])
    weight = next(net.parameters())
    with torch.no_grad():
        answers = scores(net(frames.to(weight))).argmax(1).cpu()
    rows = _rows(labels.tolist(), answers.tolist())
    shown = frames[:, [sample for sample, _, _ in rows]].to(weight)
    with GradCAM(net, layer, stride=stride, time="per_step") as cam:
        # What the run decides by, and so what is explained, need not be the number of spikes.
        classes = torch.tensor([[target] for _, target, _ in rows], device=weight.device)
        maps = cam(shown, lambda output: scores(output).gather(1, classes)).cpu()
    return heat_strips(
        [(heading, frames[:, sample], maps[:, row]) for row, (sample, _, heading) in enumerate(rows)],
        step_ms=result.module.config.step_ms,
        # The three movements of the camera, unless there are fewer steps.
        parts=min(3, len(frames)),
        title="Where the evidence lies",
    )


def last_conv(net: nn.Module) -> tuple[SRMConv2d | None, int]:
    """The last conv layer of a chain of layers, None if it has none, and the input pixels per cell of its output."""
    found, stride, pixels = None, 1, 1
    for layer in net.children():
        # The notation of nets has square windows only.
        if isinstance(layer, SRMConv2d):
            pixels *= cast(Convolution, layer.operator).stride[0]
            found, stride = layer, pixels
        elif isinstance(layer, SpikeAvgPool2d):
            pixels *= cast(int, layer.kernel_size)
    return found, stride


def _rows(labels: list[int], answers: list[int]) -> list[tuple[int, int, str]]:
    """`(sample, class to explain, heading)`: two digits that were recognised, then a mistake with both its classes."""
    rows: dict[int, tuple[int, int, str]] = {}
    mistake: list[tuple[int, int, str]] = []
    for sample, (label, answer) in enumerate(zip(labels, answers, strict=True)):
        if label == answer and len(rows) < 2:
            rows.setdefault(label, (sample, label, f"a {label}, recognised: evidence for {label}"))
        elif label != answer and not mistake:
            taken = f"a {label}, taken for a {answer}: evidence for"
            mistake = [(sample, answer, f"{taken} {answer}"), (sample, label, f"{taken} {label}")]
    return [*rows.values(), *mistake]


# A further picture is one more entry here: the run folder and the report show what is listed.
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
        "makes of them, step by step. At the bottom the ten output neurons: the one with the highest mean potential is "
        "the answer (where they fire, the one with most spikes; with the loss first-spike, the one that fires first), "
        "and the true digit is in bold.",
        _draw_raster,
    ),
    Picture(
        "heat.png",
        "What the net looks at",
        "Dark are the places whose spikes in the last convolutional layer spoke for a digit (Grad-CAM); black dots "
        "are the events of the camera. Each of its three movements has a picture, the last one is the mean of all. The "
        "lower rows show a mistake, if there was one: what spoke for the wrong answer, and what for the right one.",
        _draw_heat,
        absent="This net has no convolutional layer, so there are no places to show.",
    ),
    Picture(
        "spike_rates.png",
        "How busy the neurons are",
        "The share of time steps in which a neuron fires, averaged over each layer. Fewer spikes cost less energy and "
        "time; a layer that falls to zero is silent and learns nothing.",
        _draw_rates,
    ),
)
