"""Finds by bisection the factor or shift of each channel's current that gives a target rate."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass

import torch
from torch import Tensor

from snnlib.backends.fixed_point import LIMIT
from snnlib.learning.preparing.targets import REACHABLE_SHARE
from snnlib.neurons import Neuron
from snnlib.neurons.base import knows_potential
from snnlib.neurons.constants import mean_threshold
from snnlib.neurons.surrogate import Surrogate, Triangle
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
# Share of the range of fixed-point states that a search leaves to the rounding of weights and to learning.
_SHARE_OF_BITS = 0.5
# Share of the error in the rates as drawn that a search must come below to change the weights.
_BETTER = 0.7


@dataclass(frozen=True)
class Start:
    """Factor and shift of each channel `[C]`, with the resulting and the target rates."""

    factor: Tensor
    shift: Tensor
    rates: Tensor
    wanted: Tensor

    @property
    def missed(self) -> float:
        """Returns the mean relative deviation of channels from their target rates."""
        return abs(float(self.rates.mean() / self.wanted.mean().clamp(min=1e-12)) - 1)

    def much_better(self, drawn: Tensor) -> bool:
        """Returns whether rates are nearer to the targets than initial rates, by more than the search's precision.

        Otherwise initial weights that fit each other stay.
        """
        error, error_drawn = (float((rates - self.wanted).abs().sum()) for rates in (self.rates, drawn))
        return error < _BETTER * error_drawn


def known_potential(neuron: Neuron) -> Neuron | None:
    """Returns a neuron with the same `free_potential`; None for models without one."""
    surrogate = getattr(neuron, "surrogate", None)
    if surrogate is not None and not isinstance(surrogate, Surrogate):
        # A function of one's own, with which no kernel runs; potentials do not depend on it.
        neuron = copy.copy(neuron)
        neuron.surrogate = Triangle()
    return neuron if knows_potential(neuron) else None


def size_of_potential(current: Tensor, neuron: Neuron) -> float:
    """Returns the RMS of the nonzero free potential in thresholds; of currents for models without one."""
    known = known_potential(neuron)
    values = current / mean_threshold(neuron) if known is None else known.free_potential(current)
    squares = values.float().square()
    # Sums in float64, so that the number of threads that add cannot show in the weights.
    return float((squares.sum(dtype=torch.float64) / (squares != 0).sum()).sqrt())


def _room(neuron: Neuron, current: Tensor) -> float:
    """Returns by how much currents may grow without overflow of fixed-point states; else infinity."""
    known = known_potential(neuron)
    if not neuron.fixed_point or known is None:
        return math.inf
    return (
        _SHARE_OF_BITS * LIMIT / (float(known.free_potential(current.abs()).max()) * mean_threshold(neuron))
    )


def find_start(
    neurons: SpikingLayer | Neuron,
    current: Tensor,
    size: float,
    target: float | Tensor,
    shifts: tuple[Tensor, float] | None = None,
    *,
    factor: float = 1.0,
    common: bool = False,
) -> Start:
    """Returns the factor or the shift of each channel that gives its target rate.

    The same batch gives the same result; in a batch of more than four million values the search uses part of the
    neurons.

    Args:
        neurons: a layer, or standalone neurons; unchanged.
        current: input current of the batch, `[T, N, C, ...]` or, with their `batch_first`, `[N, T, C, ...]`.
        size: of the potential that it gives, `size_of_potential`.
        target: a number for all channels, lowered to a part of a channel's highest rate if that is less, or exact
            rates per channel. Channels with a target of 0 stay unchanged.
        shifts: the current of a shift by 1, which broadcasts, and the largest shift in both directions; None for
            factors.
        factor: factor of all currents, before the search.
        common: whether all channels share one factor, at which their mean rate is the target.
    """
    neuron = neurons.neuron if isinstance(neurons, SpikingLayer) else neurons
    fire = neurons.fire if isinstance(neurons, SpikingLayer) else neurons
    # Channels of a recurrent layer act on each other: their places are right together only.
    apart = not isinstance(neurons, SpikingLayer) or neurons.neurons_apart
    current, unit = current if factor == 1 else current * factor, None
    if shifts is None:
        ends = math.log(_LOWEST / size), math.log(min(_HIGHEST / size, _room(neuron, current)))
    else:
        unit, room = shifts[0].expand_as(current), _room(neuron, current)
        reach = min(shifts[1], (1 - 1 / room) * _room(neuron, unit.contiguous()))
        ends = -reach, reach
    dim = 1 - int(neurons.batch_first)
    values, units = _sample(current, dim, apart), None if unit is None else _sample(unit, dim, apart)

    def rates_at(place: Tensor) -> Tensor:
        # A sample of pixels has other dimensions.
        shape = (-1, *[1] * (values.dim() - 3))
        part = (place.exp() if units is None else place).to(values.dtype).reshape(shape)
        rates = channel_rates(fire(values * part if units is None else values + part * units))
        return rates.mean().expand_as(rates) if common else rates

    place = torch.full((current.shape[2],), ends[1], dtype=torch.float64, device=current.device)
    rates = rates_at(place)
    if values.numel() < current.numel() and bool((rates == 0).any()):
        # A channel that hardly gets events may have none in the sample.
        values, units = current, unit
        rates = rates_at(place)
    wanted = target if isinstance(target, Tensor) else (REACHABLE_SHARE * rates).clamp(max=target)
    error = torch.full_like(wanted, math.inf)
    tried, step = torch.full_like(place, sum(ends) / 2).where(wanted > 0, 0.0), (ends[1] - ends[0]) / 4
    for _ in range(_RUNS):
        found = rates_at(tried)
        off = (found - wanted).abs()
        off = off if apart else off.sum().expand_as(off)
        # Rather a little more: one factor may jump from no spike to many, and silence is no start.
        better = (off < error) & (found >= wanted if common else (found > 0) | (wanted == 0))
        place, rates, error = tried.where(better, place), found.where(better, rates), off.where(better, error)
        if bool(((rates - wanted).abs() <= _CLOSE * wanted).all()):
            break
        tried = tried + torch.sign(wanted - found) * step
        step = step * (0.5 if apart else _SHRINK)
    none = torch.zeros_like(place)
    parts = (factor * place.exp(), none) if unit is None else (none + factor, place)
    return Start(*parts, rates, wanted)


def _sample(values: Tensor, dim: int, apart: bool) -> Tensor:
    """Returns part of a large batch, along dimension `dim`; pixels count as samples."""
    size = values.numel()
    if size <= _SAMPLE_VALUES or not apart:
        return values
    if values.dim() > 3:
        # [T, N, C, H, W] -> [T, N H W, C]
        values = values.flatten(3).movedim(3, dim + 1).flatten(dim, dim + 1)
    whole = values.shape[dim]
    # Every call makes the same choice.
    chosen = torch.randperm(whole, generator=torch.Generator().manual_seed(0))
    return values.index_select(dim, chosen[: max(_SAMPLE_VALUES * whole // size, 1)].to(values.device))


def affine(values: Tensor, factor: Tensor, shift: Tensor, channel_dim: int) -> Tensor:
    """Returns `factor values + shift` per channel, for currents or weights."""
    shape = (-1, *[1] * (values.dim() - channel_dim - 1))
    return values * factor.to(values.dtype).reshape(shape) + shift.to(values.dtype).reshape(shape)
