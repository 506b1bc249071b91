"""Membrane potentials of a layer's neurons, recomputed from its input."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from snnlib.functional import srm_trace
from snnlib.neurons import ALIF, BRF
from snnlib.neurons.firing import SpikingNeuron
from snnlib.nn.recurrent_layer import Recurrent
from snnlib.nn.spiking_layer import SpikingLayer
from snnlib.nn.srm import SRMLayer


@torch.no_grad()
def normalised_potential(layer: nn.Module, x: Tensor) -> Tensor | None:
    """Potential before each reset divided by the threshold `[T, N, ...]`; None for layers whose equation is not known.

    Args:
        layer: the layer.
        x: its input, time first `[T, N, ...]`.
    """
    current = _input_current(layer, x)
    if isinstance(layer, SRMLayer):
        tau_m, tau_s, tau_grad = layer.neuron.taus
        threshold: Tensor = layer.threshold
        potential = srm_trace(
            current, tau_m=tau_m, tau_s=tau_s, tau_grad=tau_grad, threshold=threshold
        ).potential
    else:
        neuron = layer.neuron if isinstance(layer, SpikingLayer) else layer
        # The threshold of ALIF and BRF moves.
        if not isinstance(neuron, SpikingNeuron) or isinstance(neuron, ALIF | BRF):
            return None
        neuron = copy.copy(neuron)
        neuron.batch_first = False
        try:
            potential = neuron.potential(current)
        except ValueError:
            return None
        threshold = neuron.constants()["threshold"].to(potential.dtype)
    if threshold.dim():
        # One per channel, which is the dimension after time and batch.
        threshold = threshold.view(-1, *[1] * (current.dim() - 3))
    return potential / threshold


def _input_current(layer: nn.Module, x: Tensor) -> Tensor:
    """What a layer's neurons integrate `[T, N, C, ...]`: the input itself for neurons without weights."""
    if not isinstance(layer, (SRMLayer, SpikingLayer)):
        return x
    current = layer.operator.forward(x.flatten(0, 1), layer.effective_weight)
    current = current.reshape(*x.shape[:2], *current.shape[1:])
    return current + layer.sent_back(layer(x)) if isinstance(layer, Recurrent) else current


def typical_neurons(counts: Tensor) -> dict[str, int]:
    """Flat indices of neurons worth a look: the busiest, one with the median rate of those that fire, a dead one."""
    flat = counts.flatten()
    order = flat.argsort()
    firing = order[flat[order] > 0]
    chosen = {}
    if len(firing):
        chosen["busiest"] = int(firing[-1])
        if len(firing) > 2:
            chosen["median rate"] = int(firing[len(firing) // 2])
    if len(firing) < len(flat):
        chosen["dead"] = int(order[0])
    return chosen


def neuron_name(shape: Sequence[int], index: int) -> str:
    """Where a neuron of a layer with neurons `[C, ...]` lies: its number, or its channel and place.

    >>> neuron_name((10,), 3), neuron_name((4, 5, 6), 38)
    ('neuron 3', 'channel 1, (1, 2)')
    """
    if len(shape) == 1:
        return f"neuron {index}"
    place = []
    for size in reversed(shape[1:]):
        place.append(index % size)
        index //= size
    return f"channel {index}, ({', '.join(map(str, reversed(place)))})"
