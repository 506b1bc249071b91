"""Moves the thresholds of graded neurons into weights, so that whole potentials are whole numbers of spikes."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from snnlib.neurons.firing import SpikingNeuron
from snnlib.nn.layers.per_step import PerStep
from snnlib.nn.layers.spiking_layer import SpikingLayer
from snnlib.nn.recurrent.recurrent_layer import Recurrent

__all__ = ["fold_levels_"]

# Modules of torch that scale their output by a weight and a bias per channel.
_SCALES = (nn.Linear, nn.modules.conv._ConvNd, nn.modules.batchnorm._BatchNorm)


@torch.no_grad()
def fold_levels_(net: nn.Module) -> nn.Module:
    """Divides the weights in front of graded neurons by their thresholds, which become 1, in place.

    ::

        W <- W / threshold,   b <- b / threshold,   threshold <- 1

    Spikes stay the same up to rounding, and equal where thresholds are powers of two. A learned threshold is the scale
    of a neuron's numbers; after folding, the scale is part of the weights. Call it after training, since the scale of
    learning rates changes.

    Args:
        net: any module. Neurons with `levels` above 1 stand in spiking layers, or in an `nn.Sequential` behind a
            convolution, a linear layer or a batch norm of torch, in `PerStep` or not.

    Returns:
        The net.

    Raises:
        ValueError: a neuron without such weights in front of it, sparse recurrent connections, or a potential (`rest`,
            `reset_value`, `start_value`, `floor`) other than 0.

    >>> import torch, snnlib
    >>> neuron = snnlib.neurons.IF(threshold=0.5, levels=4)
    >>> net = torch.nn.Sequential(snnlib.SpikingLinear(3, 2, neuron=neuron))
    >>> x = torch.rand(5, 1, 3)
    >>> expected = net(x)
    >>> torch.equal(snnlib.nn.fold_levels_(net)(x), expected), float(net[0].neuron.threshold)
    (True, 1.0)
    """
    found = list(_graded(net))
    # Nothing changes before every neuron was checked.
    for name, neuron, front in found:
        _check(name, neuron, front)
    for _, neuron, front in found:
        assert front is not None
        _divide(front, neuron.threshold)
        neuron.threshold.fill_(1.0)
    return net


def _graded(net: nn.Module) -> Iterator[tuple[str, SpikingNeuron, nn.Module | None]]:
    """Yields graded neurons by name, each with the module whose output charges it."""
    fronts: dict[nn.Module, nn.Module] = {}
    for module in net.modules():
        if isinstance(module, nn.Sequential):
            children = list(module)
            fronts.update(zip(children[1:], children, strict=False))
        elif isinstance(module, SpikingLayer):
            fronts[module.neuron] = module
    for name, module in net.named_modules():
        if isinstance(module, SpikingNeuron) and module.levels > 1:
            front = fronts.get(module)
            while isinstance(front, PerStep) and len(front):
                front = front[-1]
            yield name, module, front


def _check(name: str, neuron: SpikingNeuron, front: nn.Module | None) -> None:
    # A spiking layer in front of other neurons gives spikes, which no weight of it scales.
    own = isinstance(front, SpikingLayer) and front.neuron is neuron
    if not (own or (isinstance(front, _SCALES) and front.weight is not None)):
        got = "nothing" if front is None else type(front).__name__
        raise ValueError(
            f"net: expected {name} in a spiking layer, or behind a convolution, a linear layer or a batch norm with "
            f"weights, got {got}"
        )
    if isinstance(front, Recurrent) and front.recurrent_weight.dim() == 1:
        raise ValueError(f"net: expected a full recurrent matrix in front of {name}, got sparse connections")
    potentials = {"rest": 0.0, "reset_value": 0.0, "start_value": None, "floor": None}
    for option, none in potentials.items():
        if (value := getattr(neuron, option, none)) not in (none, 0.0):
            raise ValueError(f"net: expected no {option} of {name}, whose threshold goes, got {value}")


def _divide(front: nn.Module, threshold: Tensor) -> None:
    """Divides the outputs of a module by the threshold of their channels."""
    if isinstance(front, SpikingLayer):
        front.gain = front.gain / threshold.to(front.gain.dtype)
        scaled: list[Tensor] = [front.recurrent_weight] if isinstance(front, Recurrent) else []
    else:
        scaled = [part for part in (front.weight, front.bias) if isinstance(part, Tensor)]
    for part in scaled:
        shape = [-1, *[1] * (part.dim() - 1)] if threshold.dim() else []
        part.div_(threshold.reshape(shape).to(part.dtype))
