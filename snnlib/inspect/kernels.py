"""Which ways a layer takes with a train, and why."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from snnlib.backends import choice, choice_backward
from snnlib.backends.choice import Decision
from snnlib.backends.choice_backward import BackwardPaths
from snnlib.functional.event_driven import as_event_driven
from snnlib.nn import SRMLayer
from snnlib.ops.geometry import geometry


class Dispatch(NamedTuple):
    """The ways of a layer, and what they were chosen by.

    Args:
        forward: path of the currents, share of nonzero inputs, both costs in nanoseconds of one core, and the reason.
        rate: share of neurons that fire in a step.
        gradients: what the gradients of weight and input go by: events of the input, output spikes, or dense signals.
    """

    forward: Decision
    rate: float
    gradients: BackwardPaths

    def __str__(self) -> str:
        return (
            f"forward: {self.forward.path} ({self.forward.reason})\n"
            f"backward: {self.rate:.1%} of the neurons fire; "
            f"weight gradient: {self.gradients.weight}, input gradient: {self.gradients.input}"
        )


def explain_dispatch(layer: SRMLayer, x: Tensor) -> Dispatch:
    """How `layer` would deal with the train `x` now, with the densities and costs that decide. Runs the layer once.

    Raises:
        TypeError: `layer` has no SRM neurons.

    >>> import torch, snnlib
    >>> layer = snnlib.SRMConv2d(2, 64, 5)
    >>> quiet = (torch.rand(30, 8, 2, 34, 34) < 0.02).float()
    >>> snnlib.explain_dispatch(layer, quiet).forward.path
    'events'
    >>> snnlib.explain_dispatch(layer, torch.rand(30, 8, 2, 34, 34)).forward.path
    'dense'
    """
    if not isinstance(layer, SRMLayer):
        raise TypeError(f"layer: expected an SRM layer, got {type(layer).__name__}")
    with torch.no_grad():
        weight = layer.effective_weight
        spikes = layer.run(x, weight).spikes
        rate = float(spikes.mean(dtype=torch.float32)) if spikes.numel() else 0.0
        conv = as_event_driven(layer.operator, x, weight)
        if isinstance(conv, str):
            forward = Decision("dense", choice.density(x), math.nan, math.nan, conv)
            return Dispatch(forward, rate, BackwardPaths("dense", "dense"))
        g = geometry(*conv[:3], time_dim=int(layer.batch_first))
        forward = choice.decide(conv.x, g, streaming=False)
        return Dispatch(forward, rate, choice_backward.decide(conv.x, g, round(rate * g.neuron_steps)))
