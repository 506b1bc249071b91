"""Accuracy lost by integers: spikes and accuracy of a net with its first layers in integers, layer by layer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from snnlib.exchange.compare import SpikeCounts
from snnlib.exchange.integers.integer_net import IntegerNet
from snnlib.exchange.structure.stages import modules_of, stages_of

__all__ = ["IntegerReport", "compare_integers"]

# Share of identical spikes below which a reader may take the net for broken, and a loss of accuracy that is none.
_MANY_ALIKE, _SAME = 0.9, 0.01
# Samples that are run at once.
_BATCH = 50


class LayerLoss(NamedTuple):
    """Spikes and accuracy of a net whose layers up to this one compute in integers.

    Args:
        name: path of the layer.
        spikes: its output spikes, compared with those of the float net; None for a layer that returns potentials.
        accuracy: accuracy of the net whose remaining layers compute in floats.
    """

    name: str
    spikes: SpikeCounts | None
    accuracy: float


@dataclass(frozen=True)
class IntegerReport:
    """Result of `compare_integers`; `str()` returns a table.

    Args:
        accuracy: of the float net.
        layers: first to last; the accuracy of the last is that of the whole net in integers.
    """

    accuracy: float
    layers: list[LayerLoss]

    def __str__(self) -> str:
        width = max(len("in integers up to"), *(len(layer.name) for layer in self.layers))
        lines = [f"{'in integers up to':{width}}  accuracy  lost    spikes handed on"]
        lines.append(f"{'(nothing)':{width}}  {self.accuracy:8.1%}")
        for layer in self.layers:
            lost = self.accuracy - layer.accuracy
            lines.append(
                f"{layer.name:{width}}  {layer.accuracy:8.1%}  {lost:+6.1%}  {layer.spikes or ''}".rstrip()
            )
        few = [
            layer
            for layer in self.layers
            if layer.spikes is not None and layer.spikes.identical < _MANY_ALIKE
        ]
        if any(abs(self.accuracy - layer.accuracy) <= _SAME for layer in few):
            lines.append(
                "identical spikes are those at the same step: a spike that comes a step earlier or later counts as one "
                "missing and one extra, and the net decides alike all the same. Judge by the accuracy"
            )
        return "\n".join(lines)


def mean_output(output: Tensor) -> Tensor:
    """Scores `[N, classes]`: the mean output over time."""
    return output.flatten(2).mean(0)


@torch.no_grad()
def compare_integers(
    net: nn.Module,
    integers: IntegerNet,
    x: Tensor,
    labels: Tensor,
    *,
    scores: Callable[[Tensor], Tensor] = mean_output,
) -> IntegerReport:
    """Measures the accuracy that each integer layer loses: the rest of the float net continues from its spikes.

    Args:
        net: the float net, in evaluation mode.
        integers: what `snnlib.to_integers` made of it.
        x: inputs `[T, N, ...]`.
        labels: classes `[N]`.
        scores: from outputs `[T, N, ...]` to scores `[N, classes]`. Default: their mean over time.

    >>> import snnlib, torch
    >>> from snnlib.exchange import compare_integers
    >>> net = torch.nn.Sequential(snnlib.SRMLinear(20, 8), snnlib.SRMReadout(8, 4)).eval()
    >>> x = (torch.rand(30, 5, 20) < 0.2).float()
    >>> report = compare_integers(net, snnlib.to_integers(net, x), x, net(x).mean(0).argmax(1))
    >>> report.accuracy, [layer.name for layer in report.layers]
    (1.0, ['0', '1'])
    """
    modules = nn.Sequential(*(module for _, module in modules_of(net)))
    ends = [stage.end for stage in stages_of(net, x)]
    right = [0] * (len(ends) + 1)
    spikes = [SpikeCounts() for _ in ends]
    for begin in range(0, len(labels), _BATCH):
        part, known = x[:, begin : begin + _BATCH], labels[begin : begin + _BATCH]
        theirs, done = part, 0
        for number, (layer, end) in enumerate(zip(integers.layers[:-1], ends[:-1], strict=True)):
            theirs = modules[done:end](theirs)
            done = end
            area = layer.pool[0] * layer.pool[1]
            ours = (integers.reference(part, until=number).to(part.dtype) / area).view(theirs.shape)
            spikes[number] = spikes[number].plus(SpikeCounts.of(theirs * area, ours * area))
            right[number + 1] += _right(modules[end:](ours), known, scores)
        right[0] += _right(modules[done:](theirs), known, scores)
        right[-1] += _right(integers(part), known, scores)
    accuracy, *accuracies = (count / len(labels) for count in right)
    found = zip(integers.layers, (*spikes[:-1], None), accuracies, strict=True)
    return IntegerReport(accuracy, [LayerLoss(layer.name, count, share) for layer, count, share in found])


def _right(output: Tensor, labels: Tensor, scores: Callable[[Tensor], Tensor]) -> int:
    return int((scores(output).argmax(1) == labels).sum())
