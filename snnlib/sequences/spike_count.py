"""Spikes of each neuron of a sequence, counted along memory, and the rates of channels."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def count_per_neuron(spikes: Tensor) -> Tensor:
    """Returns `spikes.sum((0, 1))` of a spike tensor `[T, N, ...]`, in float64."""
    rows = spikes.flatten(0, 1)
    # As a matrix product along memory this takes 3 ms where torch's sum takes 85 ms (12C5 at batch 50, 2 cores).
    order = sorted(range(1, rows.dim()), key=rows.stride, reverse=True)
    ordered = rows.permute(0, *order)
    matrix = ordered.flatten(1).to(torch.promote_types(spikes.dtype, torch.float32))
    # Sums of whole numbers: exact in float32 up to 2**24 spikes of a neuron.
    counts = matrix.t().mv(matrix.new_ones(len(matrix))).view(ordered.shape[1:])
    return counts.permute([order.index(dim) for dim in range(1, rows.dim())]).double()


def channel_rates(spikes: Tensor) -> Tensor:
    """Returns spikes per neuron and time step of each channel `[C]` of a spike tensor `[T, N, C, ...]`."""
    counts = count_per_neuron(spikes)
    return counts.reshape(len(counts), -1).mean(1) / (spikes.shape[0] * spikes.shape[1])


def levels_of(module: nn.Module) -> float:
    """Returns the largest number of spikes that neurons, or those of a layer, give in a step; infinite if unbounded."""
    return float(getattr(getattr(module, "neuron", module), "levels", 1))


def is_graded(module: nn.Module) -> bool:
    """Returns whether neurons, or those of a layer, give several spikes in a step.

    `spikes.clamp(max=1)` then counts steps with spikes. Of other neurons the number of spikes is that of these steps.
    """
    return levels_of(module) > 1
