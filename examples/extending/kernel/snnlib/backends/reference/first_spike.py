"""The first spike of every neuron. Equation: cpp/include/snnlib/events/first_spike.h."""

import torch
from torch import Tensor


def first_spike(x: Tensor, time_dim: int) -> Tensor:
    """Steps before which a neuron has been silent so far."""
    silent = (x != 0).cumsum(time_dim) == 0
    return silent.sum(time_dim, dtype=torch.int32)
