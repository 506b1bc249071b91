"""Finds the place of each channel, whose rate grows with its place, that gives a target rate, by halving."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from snnlib.backends.fixed_point import LIMIT
from snnlib.learning.preparing.targets import REACHABLE_SHARE
from snnlib.neurons import Neuron
from snnlib.neurons.base import knows_potential
from snnlib.neurons.constants import mean_threshold
from snnlib.nn.layers.spiking_layer import SpikingLayer
from snnlib.sequences.spike_count import channel_rates

# Values of a sample, where a batch has more.
_SAMPLE_VALUES = 4_000_000
# Runs at most, after each of which the step is halved: a factor is found to a part in 10^5, a shift to one in 10^6 of
# its range. Channels that act on each other take steps that shrink more slowly, as the others move meanwhile.
_RUNS, _SHRINK = 20, 0.7
# Relative distance from the wanted rate at which no further run is worth its time.
_CLOSE = 0.02
# Factors that are searched, times what brings the potential to the threshold: from far below it to far above.
_LOWEST, _HIGHEST = 1e-3, 1e3
# Of the range of fixed-point states, which a search leaves to the rounding of weights and to learning.
_SHARE_OF_BITS = 0.5


def known_potential(neurons: SpikingLayer | Neuron) -> Callable[[Tensor], Tensor] | None:
    """Returns `free_potential` of a layer or of neurons alone; None for models whose potential is not known."""
    neuron = neurons.neuron if isinstance(neurons, SpikingLayer) else neurons
    return neurons.free_potential if knows_potential(neuron) else None


def size_of_potential(current: Tensor, neurons: SpikingLayer | Neuron) -> float:
    """Returns the RMS of the nonzero potential in thresholds, without spikes; of currents if it is not known."""
    free = known_potential(neurons)
    neuron = neurons.neuron if isinstance(neurons, SpikingLayer) else neurons
    values = current / mean_threshold(neuron) if free is None else free(current)
    squares = values.float().square()
    # In float64, so that the number of threads that add cannot show in the weights.
    return float((squares.sum(dtype=torch.float64) / (squares != 0).sum()).sqrt())


def _room(neurons: SpikingLayer | Neuron, current: Tensor) -> float:
    """Returns how much larger currents may be for the bits of fixed-point states; without those infinity."""
    neuron = neurons.neuron if isinstance(neurons, SpikingLayer) else neurons
    if not neuron.fixed_point:
        return math.inf
    largest = float(neuron.free_potential(current.abs()).max()) * mean_threshold(neuron)
    return _SHARE_OF_BITS * LIMIT / largest


def find_places(
    neurons: SpikingLayer | Neuron,
    current: Tensor,
    target: float | Tensor,
    slope: tuple[Tensor, float] | None = None,
    *,
    common: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the place of each channel at which it fires as wanted, its rate there, and the wanted rate, `[C]`.

    A channel's currents at a place are `current + place slope`, or `current e^place` where there is no slope. The same
    batch gives the same places; a batch of more than four million values is searched on a part of its neurons.

    Args:
        neurons: a layer, or neurons alone; they stay as they are.
        current: input current of the batch, `[T, N, C, ...]` or, with their `batch_first`, `[N, T, C, ...]`.
        target: a number is wanted of each channel, or a part of its rate at the highest place where that is less; rates
            by channel are wanted as they are. The place is 0 where 0 is wanted.
        slope: currents that broadcast with it and how far shifts go either way; None for factors.
        common: whether all channels have one place, which gives the target in their mean.
    """
    if slope is None:
        size = size_of_potential(current, neurons)
        ends = math.log(_LOWEST / size), math.log(min(_HIGHEST / size, _room(neurons, current)))
    else:
        room = (1 - 1 / _room(neurons, current)) * _room(neurons, slope[0].expand_as(current).contiguous())
        ends = -min(slope[1], room), min(slope[1], room)
    # Channels of a recurrent layer act on each other: their places are right together only.
    apart = not isinstance(neurons, SpikingLayer) or neurons.neurons_apart
    fire = neurons.fire if isinstance(neurons, SpikingLayer) else neurons
    steps = None if slope is None else slope[0].expand_as(current)

    def rates_at(place: Tensor) -> Tensor:
        rates = channel_rates(fire(moved(values, place, added, 2)))
        return rates.mean().expand_as(rates) if common else rates

    values, added = _sample(current, steps, 1 - int(neurons.batch_first)) if apart else (current, steps)
    least = torch.full((current.shape[2],), ends[1], dtype=torch.float64, device=current.device)
    least_rates = rates_at(least)
    if values.numel() < current.numel() and bool((least_rates == 0).any()):
        # A channel that hardly gets events may have none in the sample.
        values, added = current, steps
        least_rates = rates_at(least)
    wanted = target if isinstance(target, Tensor) else (REACHABLE_SHARE * least_rates).clamp(max=target)
    place, found, error = least, least_rates, torch.full_like(wanted, math.inf)
    tried, step = torch.full_like(least, sum(ends) / 2).where(wanted > 0, 0.0), (ends[1] - ends[0]) / 4
    for _ in range(_RUNS):
        rates = rates_at(tried)
        off = (rates - wanted).abs()
        off = off if apart else off.sum().expand_as(off)
        # Rather a little more: one factor may jump from no spike to many.
        off = off.where(rates >= wanted, math.inf) if common else off
        better, lower = off < error, (rates > 0) & (tried < least)
        place, found, error = tried.where(better, place), rates.where(better, found), off.where(better, error)
        least, least_rates = tried.where(lower, least), rates.where(lower, least_rates)
        if bool(((found - wanted).abs() <= _CLOSE * wanted).all()):
            break
        tried = tried + torch.sign(wanted - rates) * step
        step = step * (0.5 if apart else _SHRINK)
    # The least that fires, where what is wanted lies between no spike and the first.
    silent = (found == 0) & (wanted > 0)
    return least.where(silent, place), least_rates.where(silent, found), wanted


def _sample(current: Tensor, slope: Tensor | None, dim: int) -> tuple[Tensor, Tensor | None]:
    """Returns currents and slopes of a part of the batch, whose dimension is `dim`; pixels count as samples."""
    if current.numel() <= _SAMPLE_VALUES:
        return current, slope
    parts = [current] if slope is None else [current, slope]
    if current.dim() > 3:
        # [T, N, C, H, W] -> [T, N H W, C]
        parts = [part.flatten(3).movedim(3, dim + 1).flatten(dim, dim + 1) for part in parts]
    whole = parts[0].shape[dim]
    # The same choice in every call.
    chosen = torch.randperm(whole, generator=torch.Generator().manual_seed(0))
    chosen = chosen[: max(_SAMPLE_VALUES * whole // current.numel(), 1)].to(current.device)
    parts = [part.index_select(dim, chosen) for part in parts]
    return parts[0], parts[1] if len(parts) > 1 else None


def moved(values: Tensor, place: Tensor, slope: Tensor | float | None, channel_dim: int) -> Tensor:
    """Returns values at a place of each channel: `values + place slope`, or `values e^place` without a slope."""
    shape = (-1, *[1] * (values.dim() - channel_dim - 1))
    if slope is None:
        return values * place.exp().to(values.dtype).reshape(shape)
    return values + place.to(values.dtype).reshape(shape) * slope
