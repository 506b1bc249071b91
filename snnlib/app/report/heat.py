"""The Grad-CAM section of a report: which layer, which samples, and whether the maps hold under occlusion."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from snnlib.app.report.evaluation import Evaluation
from snnlib.app.report.recorder import Recorded
from snnlib.app.report.samples import Sample
from snnlib.app.visual import heat_strips
from snnlib.checks import as_sizes
from snnlib.explain import GradCAM, Occlusion, occlusion_test


@dataclass(frozen=True)
class Heat:
    """Heat maps of a few samples, and the occlusion test over all samples that were kept."""

    figure: Figure
    occlusion: Occlusion
    layer: str

    def verdict(self) -> str:
        """States whether the maps show what the net uses, judged by twice the standard error of the difference."""
        gap, error = self.occlusion.difference()
        if len(self.occlusion.hottest) < 2:
            return "One sample does not tell whether the maps show what the net uses: do not rely on them."
        if gap > 2 * error:
            return (
                "Events in hot places matter more to the net than others do, so the maps show what it uses."
            )
        return "Events in hot places matter no more to the net than others do: do not rely on these maps."


def heat_maps(evaluation: Evaluation, target_layer: str | None) -> Heat | None:
    """Grad-CAM of two recognised classes and a mistake.

    None for a net without a convolutional spiking layer, where every step is labelled, and where nothing is classified.
    """
    if evaluation.task != "classes":
        return None
    samples = [sample for sample in evaluation.samples if sample.x.shape == evaluation.samples[0].x.shape]
    if samples[0].x.dim() != 4 or samples[0].labels is not None:
        return None
    net, batch_first = evaluation.net, evaluation.batch_first
    with torch.no_grad(), evaluation.recording() as recorded:
        net(evaluation.batch_of(samples[:1]))
    name = _last_conv(recorded) if target_layer is None else target_layer
    if name is None:
        return None
    stride = None if target_layer is not None else pixels_per_cell(net, recorded, name)
    layout = "NTCHW" if batch_first else "TNCHW"

    def explain(chunk: list[Sample], wanted: list[int]) -> tuple[Tensor, Tensor, Callable[[Any], Tensor]]:
        x = evaluation.batch_of(chunk)
        labels = torch.tensor(wanted, device=x.device).unsqueeze(1)

        def score(answer: Any) -> Tensor:
            return evaluation.scores(answer).gather(1, labels).squeeze(1)

        with GradCAM(net, net.get_submodule(name), stride=stride, time="per_step", layout=layout) as cam:
            return x, cam(x, score), score

    # Batches of the loader's size fit into memory.
    tests = []
    for start in range(0, len(samples), evaluation.batch_size):
        chunk = samples[start : start + evaluation.batch_size]
        x, maps, score = explain(chunk, [sample.predicted for sample in chunk])
        tests.append(occlusion_test(net, x, maps, score, batch_first=batch_first, seed=start))
    occlusion = Occlusion(
        torch.cat([test.hottest for test in tests]),
        torch.cat([test.random for test in tests]),
        tests[0].fraction,
    )
    strips = []
    for number, label, heading in _rows(samples, evaluation.names):
        _, maps, _ = explain([samples[number]], [label])
        strips.append((heading, samples[number].x, maps.select(evaluation.batch_dim, 0).cpu()))
    figure = heat_strips(
        strips, step_ms=evaluation.step_ms, parts=min(3, len(samples[0].x)), title=f"Grad-CAM of layer {name}"
    )
    return Heat(figure, occlusion, name)


def pixels_per_cell(net: nn.Module, recorded: dict[str, Recorded], name: str) -> tuple[int, int] | None:
    """Input pixels per cell of a layer's output: the product of the strides before it; None where that is not known.

    Only for chains, where each layer reads the output of the one before.
    """
    if not isinstance(net, nn.Sequential):
        return None
    sizes = []
    first = next(iter(recorded.values())).input
    for child_name, child in net.named_children():
        kernel = getattr(child, "kernel_size", 1)
        stride = getattr(child, "stride", None) or getattr(getattr(child, "operator", None), "stride", None)
        if stride is None:
            stride = kernel if "pool" in type(child).__name__.lower() else 1
        sizes.append(as_sizes("stride", stride, 2, minimum=1))
        if child_name == name:
            break
    else:
        return None
    height, width = (math.prod(along) for along in zip(*sizes, strict=True))
    output = recorded[name].spikes
    fits = height * output.shape[-2] <= first.shape[-2] and width * output.shape[-1] <= first.shape[-1]
    return (height, width) if fits else None


def _last_conv(recorded: dict[str, Recorded]) -> str | None:
    """The last layer whose spikes lie on a grid `[T, N, C, H, W]` of more than one cell."""
    grids = [
        name
        for name, layer in recorded.items()
        if layer.spikes.dim() == 5 and layer.spikes[0, 0, 0].numel() > 1
    ]
    return grids[-1] if grids else None


def _rows(samples: list[Sample], classes: list[str]) -> list[tuple[int, int, str]]:
    """`(sample, class to explain, heading)`: two classes that were recognised, then a mistake with both its classes."""
    rows: dict[int, tuple[int, int, str]] = {}
    mistake: list[tuple[int, int, str]] = []
    for number, sample in enumerate(samples):
        label, answer = classes[sample.label], classes[sample.predicted]
        if sample.label == sample.predicted and len(rows) < 2:
            rows.setdefault(
                sample.label, (number, sample.label, f"{label}, recognised: evidence for {label}")
            )
        elif sample.label != sample.predicted and not mistake:
            text = f"{label}, mistaken for {answer}: evidence for"
            mistake = [
                (number, sample.predicted, f"{text} {answer}"),
                (number, sample.label, f"{text} {label}"),
            ]
    return [*rows.values(), *mistake]
