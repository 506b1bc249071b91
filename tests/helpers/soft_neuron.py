"""A neuron whose output is smooth, for finite differences."""

from typing import Any

import torch
from torch import Tensor

from snnlib import neurons
from snnlib.neurons.base import Params, State


class Soft(neurons.Neuron):
    """A neuron of a user's own whose "spike" is smooth, so that finite differences give its exact gradient."""

    state_names = ("v",)

    def __init__(self, **options: Any) -> None:
        super().__init__({"beta": 0.7, "threshold": 1.0}, **options)

    def step(self, state: State, current: Tensor, params: Params) -> tuple[Tensor, State]:
        v = params["beta"] * state[0] + current
        s = torch.sigmoid(3 * (v - params["threshold"]))
        return s, (v * (1 - s),)
