"""The first spike of every neuron. Equation: cpp/include/snnlib/events/first_spike.h."""

import torch
from torch import Tensor


def first_spike(x: Tensor) -> Tensor:
    """Steps before which a neuron has been silent so far."""
    return ((x != 0).cumsum(0) == 0).sum(0, dtype=torch.int32)
