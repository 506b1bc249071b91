"""Moves the thresholds of graded neurons into weights, so that whole potentials are whole numbers of spikes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd

from snnlib.functional.sparse import SparselyConnected
from snnlib.neurons.firing import SpikingNeuron
from snnlib.nn.layers.per_step import PerStep
from snnlib.nn.layers.spiking_layer import SpikingLayer
from snnlib.nn.recurrent.recurrent_layer import Recurrent
from snnlib.nn.weights.stored_weight import places_of

__all__ = ["fold_levels_"]

# Modules of torch that scale their output by a weight and a bias per channel.
_SCALES = (nn.Linear, _ConvNd, nn.modules.batchnorm._BatchNorm)


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
        ValueError: a neuron without such weights in front of it; a neuron, or weights, that the net also has in other
            places; a threshold or weights that are computed, as by `bound_` and `weight_norm`; thresholds per channel
            behind sparse connections or a transposed convolution; or a potential (`rest`, `reset_value`, `start_value`,
            `floor`) other than 0.

    >>> import torch, snnlib
    >>> neuron = snnlib.neurons.IF(threshold=0.5, levels=4)
    >>> net = torch.nn.Sequential(snnlib.SpikingLinear(3, 2, neuron=neuron))
    >>> x = torch.rand(5, 1, 3)
    >>> expected = net(x)
    >>> torch.equal(snnlib.nn.fold_levels_(net)(x), expected), float(net[0].neuron.threshold)
    (True, 1.0)
    """
    # Nothing changes before every neuron was checked.
    found = [(front, _changed(neuron, front)) for neuron, front in _checked(net, places_of(net))]
    for front, tensors in found:
        threshold = tensors.pop("threshold")
        if isinstance(front, SpikingLayer):
            front.gain = front.gain / threshold.to(front.gain.dtype)
        for tensor in tensors.values():
            shape = [-1, *[1] * (tensor.dim() - 1)] if threshold.dim() else []
            tensor.div_(threshold.reshape(shape).to(tensor.dtype))
        threshold.fill_(1.0)
    return net


def _checked(net: nn.Module, places: Counter[int]) -> Iterator[tuple[SpikingNeuron, nn.Module]]:
    """Yields graded neurons, each with the module whose output charges it, if they can be folded."""
    pairs: Counter[tuple[nn.Module, nn.Module]] = Counter()
    for module in net.modules():
        if isinstance(module, nn.Sequential):
            pairs.update(pairwise(module))
        elif isinstance(module, SpikingLayer):
            pairs[module, module.neuron] += 1
    fronts = {neuron: front for front, neuron in pairs}
    for name, neuron in net.named_modules():
        if not isinstance(neuron, SpikingNeuron) or neuron.levels == 1:
            continue
        chain = [fronts.get(neuron, neuron)]
        while isinstance(chain[-1], PerStep) and len(chain[-1]):
            chain.append(chain[-1][-1])
        front = chain[-1]
        # A spiking layer in front of other neurons gives spikes, which no weight of it scales.
        own = isinstance(front, SpikingLayer) and front.neuron is neuron
        if not (own or (isinstance(front, _SCALES) and getattr(front, "affine", True))):
            got = "nothing" if front is neuron else type(front).__name__
            raise ValueError(
                f"net: expected {name or 'the net'} in a spiking layer, or behind a convolution, a linear layer or a "
                f"batch norm with weights, got {got}"
            )
        _check_neuron(name, neuron, front)
        counts = {part: places[id(tensor)] for part, tensor in _changed(neuron, front).items()}
        if computed := [part for part, count in counts.items() if not count]:
            raise ValueError(
                f"net: expected a plain {computed[0]} to fold {name}, got one that is computed in every call; remove "
                "its bounds, parametrization or hook first (torch.nn.utils.parametrize.remove_parametrizations)"
            )
        # A spiking layer may stand anywhere, as its own neurons alone take its currents.
        both = {neuron} if own else {neuron, chain[0]}
        together = {places[id(part)] for part in both} == {pairs[chain[0], neuron]}
        if not together or {1, *counts.values(), *(places[id(part)] for part in chain[1:])} != {1}:
            raise ValueError(
                f"net: expected {name} and the weights in front of it in one place, got some that stand in several; "
                "give each place a copy.deepcopy"
            )
        yield neuron, front


def _check_neuron(name: str, neuron: SpikingNeuron, front: nn.Module) -> None:
    # The first axis of their weights is not that of the output channels.
    others = any(isinstance(part, _ConvTransposeNd | SparselyConnected) for part in front.modules())
    if neuron.threshold.dim() and others:
        raise ValueError(
            f"net: expected one threshold for all channels of {name} behind sparse connections or a transposed "
            "convolution, got one per channel"
        )
    potentials = {"rest": 0.0, "reset_value": 0.0, "start_value": None, "floor": None}
    for option, none in potentials.items():
        if (value := getattr(neuron, option, none)) not in (none, 0.0):
            raise ValueError(f"net: expected no {option} of {name}, whose threshold goes, got {value}")


def _changed(neuron: SpikingNeuron, front: nn.Module) -> dict[str, Tensor]:
    """Returns the threshold, and the tensors that are divided by it; a spiking layer has a gain for its weight."""
    layer = ["recurrent_weight"] if isinstance(front, Recurrent) else []
    names = layer if isinstance(front, SpikingLayer) else ["weight", "bias"]
    parts = [(neuron, "threshold"), *((front, name) for name in names)]
    # Read without computing: that would take a step of spectral norm. No place holds the empty tensor.
    found = {name: {**part._parameters, **part._buffers}.get(name, Tensor()) for part, name in parts}
    return {name: tensor for name, tensor in found.items() if tensor is not None}
