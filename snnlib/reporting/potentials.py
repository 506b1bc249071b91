"""Membrane potentials of a layer's neurons, recomputed from its input."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from snnlib.functional import srm_trace
from snnlib.nn.srm import SRMLayer


@torch.no_grad()
def normalised_potential(layer: nn.Module, x: Tensor) -> Tensor | None:
    """Potential before each reset divided by the threshold `[T, N, ...]`; None for layers whose equation is not known.

    Args:
        layer: the layer.
        x: its input, time first `[T, N, ...]`.
    """
    if not isinstance(layer, SRMLayer):
        return None
    current = layer.operator.forward(x.flatten(0, 1), layer.effective_weight)
    current = current.view(*x.shape[:2], *current.shape[1:])
    tau_m, tau_s, tau_grad = layer.neuron.taus
    trace = srm_trace(current, tau_m=tau_m, tau_s=tau_s, tau_grad=tau_grad, threshold=layer.threshold)
    threshold = layer.threshold
    if threshold.dim():
        # One per channel, which is the dimension after time and batch.
        threshold = threshold.view(-1, *[1] * (current.dim() - 3))
    return trace.potential / threshold


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
