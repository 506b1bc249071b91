"""Search for the places at which channels, whose rates grow with their place, fire as is wanted: in three runs."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from snnlib.backends.fixed_point import LIMIT
from snnlib.learning.preparing.targets import REACHABLE_SHARE
from snnlib.neurons import Neuron
from snnlib.nn.layers.spiking_layer import SpikingLayer
from snnlib.sequences.spike_count import channel_rates

# Levels of the free potential's distribution at which rates are looked up: halves of all steps, down to 2^-10 of them.
_LEVELS = 11
# Places beyond, each half as far from the highest as the one before: neurons that are reset need more.
_BEYOND = 8
# Places over the whole range of a neuron whose potential is not known: six powers of ten by factors of 1.5.
_UNKNOWN = 34
# Values of a sample, where a batch has more; and the fewest sequences of neurons in it.
_SAMPLE_VALUES, _SAMPLE_SITES = 4_000_000, 64
# Runs after the first: two where a curve is known well, more where it is a guess.
_ROUNDS, _ROUNDS_UNKNOWN = 2, 6
# Thresholds that a candidate's free potential reaches: not one exactly, where rounding would decide on a spike.
_OVER = 1.001
# A correction by more than this factor trusts one measurement too far.
_LARGEST_CORRECTION = 4.0
# Relative distance from the wanted rate at which no further run is worth its time.
_CLOSE = 0.02
# Factors that are searched, times what brings the potential to the threshold: from far below it to far above.
_LOWEST, _HIGHEST = 1e-3, 1e3
# Of the range of fixed-point states, which a search leaves to the rounding of weights and to learning.
_SHARE_OF_BITS = 0.5
# Those of a factor for all channels; and how often their range is halved: the factor is found to a part in 50000.
_COMMON_FACTORS, _HALVINGS = (1e-2, 1e2), 18


def known_potential(neurons: SpikingLayer | Neuron) -> Callable[[Tensor], Tensor] | None:
    """`free_potential` of a layer or of neurons alone; None for models whose potential is not known."""
    neuron = neurons.neuron if isinstance(neurons, SpikingLayer) else neurons
    return neurons.free_potential if neuron.knows_potential else None


def size_of_potential(current: Tensor, neurons: SpikingLayer | Neuron) -> float:
    """RMS of the potential in thresholds, without spikes, where there is one at all; of currents if it is not known."""
    free = known_potential(neurons)
    values = current / neurons.mean_threshold() if free is None else free(current)
    squares = values.float().square()
    # In float64, so that the number of threads that add cannot show in the weights.
    return float((squares.sum(dtype=torch.float64) / (squares != 0).sum()).sqrt())


def _room(neurons: SpikingLayer | Neuron, current: Tensor) -> float:
    """Returns how much larger currents may be for the bits of fixed-point states; without those infinity."""
    neuron = neurons.neuron if isinstance(neurons, SpikingLayer) else neurons
    if not neuron.fixed_point:
        return math.inf
    largest = float(neuron.free_potential(current.abs()).max()) * neuron.mean_threshold()
    return _SHARE_OF_BITS * LIMIT / largest


class RateSearch:
    """Rates of channels over their places, looked up on a sample and corrected on the whole batch.

    A channel's currents at a place are `current + place slope`, or `current e^place` where there is no slope. One run
    of the neurons on a sample has many candidates beside each other, placed by the free potential where that is known;
    the rates between them are interpolated. Each further run measures the whole batch and corrects the place by how far
    the sample was off. No randomness: the same batch gives the same places.

    Args:
        neurons: a layer, or neurons alone; they stay as they are.
        current: input current of the batch, `[T, N, C, ...]` or, with their `batch_first`, `[N, T, C, ...]`.
        slope: currents that broadcast with it and how far shifts go either way; None for factors.
    """

    def __init__(
        self,
        neurons: SpikingLayer | Neuron,
        current: Tensor,
        slope: tuple[Tensor, float] | None = None,
    ) -> None:
        self._fire = neurons.fire if isinstance(neurons, SpikingLayer) else neurons
        self._free = known_potential(neurons)
        self._batch_dim = 1 - int(neurons.batch_first)
        # Whether a channel's neurons and the channels do not act on each other, as they do by recurrence.
        self._apart = not isinstance(neurons, SpikingLayer) or neurons.neurons_apart
        self._current, self._slope = current, None
        if slope is None:
            size = size_of_potential(current, neurons)
            self._ends = math.log(_LOWEST / size), math.log(min(_HIGHEST / size, _room(neurons, current)))
        else:
            self._slope = slope[0].expand_as(current)
            room = (1 - 1 / _room(neurons, current)) * _room(neurons, self._slope.contiguous())
            self._ends = -min(slope[1], room), min(slope[1], room)
        self._places, self._curve = self._measure_curve()

    def find(self, target: float | Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Returns places `[C]`, their rates, and the rates that were wanted, to which no other place tried is nearer.

        A target that is a number is wanted of each channel, or a part of its rate at the highest place where that is
        less; one by channel is wanted as it is. The place is 0 where 0 is wanted.
        """
        places, curve = self._places, self._curve
        wanted = target if isinstance(target, Tensor) else (REACHABLE_SHARE * curve[-1]).clamp(max=target)
        place, found = torch.zeros_like(wanted), torch.zeros_like(wanted)
        error = torch.full_like(wanted, math.inf)
        for _ in range(_ROUNDS if self._free is not None else _ROUNDS_UNKNOWN):
            tried = _where(places, curve, wanted).where(wanted > 0, 0.0)
            rates = channel_rates(self._fire(moved(self._current, tried, self._slope, 2)))
            off = (rates - wanted).abs()
            if not self._apart:
                # Places of recurrent neurons are right together only.
                off = off.sum().expand_as(off)
            better = off < error
            place, found, error = (
                new.where(better, old) for new, old in ((tried, place), (rates, found), (off, error))
            )
            if bool(((found - wanted).abs() <= _CLOSE * wanted).all()):
                break
            if not (self._whole and self._apart):
                # How far the sample, or the curve of recurrent neurons that all move together, is off is alike around.
                factor = (rates / wanted).nan_to_num(1.0).clamp(1 / _LARGEST_CORRECTION, _LARGEST_CORRECTION)
                curve = curve * factor
            if self._apart:
                places, order = torch.cat((places, tried[None])).sort(0)
                curve = torch.cat((curve, rates[None])).gather(0, order).cummax(0).values
        # The least that fires, where what is wanted lies between no spike and the first.
        first = (curve <= 0).sum(0, keepdim=True).clamp(max=len(curve) - 1)
        silent = (found == 0) & (wanted > 0)
        place = places.gather(0, first)[0].where(silent, place)
        return place, curve.gather(0, first)[0].where(silent, found), wanted

    def _measure_curve(self) -> tuple[Tensor, Tensor]:
        """Places `[K, C]` in rising order and their rates on a sample, which grow."""
        current, slope = self._sample(_UNKNOWN if self._free is None else _LEVELS + _BEYOND + 2)
        places = self._candidates(current, slope)
        # Candidates are so many more samples.
        candidates = torch.cat([moved(current, place, slope, 2) for place in places], self._batch_dim)
        spikes = self._fire(candidates).chunk(len(places), self._batch_dim)
        rates = torch.stack([channel_rates(part) for part in spikes])
        self._whole = current.numel() == self._current.numel()
        if bool((rates[-1] == 0).any()) and not self._whole:
            # A channel that hardly gets events may have none in the sample.
            whole = channel_rates(self._fire(moved(self._current, places[-1], self._slope, 2)))
            rates[-1] = rates[-1].where(rates[-1] > 0, whole)
        return places, rates.cummax(0).values

    def _sample(self, copies: int) -> tuple[Tensor, Tensor | None]:
        """Currents and slopes of a part of the batch that is a run's work in so many copies."""
        dim = self._batch_dim
        parts = [self._current] if self._slope is None else [self._current, self._slope]
        if self._apart and self._current.dim() > 3:
            # Neurons of a channel at different pixels count as samples: [T, N, C, H, W] -> [T, N H W, C]
            parts = [part.flatten(3).movedim(3, dim + 1).flatten(dim, dim + 1) for part in parts]
        whole = parts[0].shape[dim]
        budget = _SAMPLE_VALUES // (copies * max(parts[0].numel() // whole, 1))
        kept = max(budget, _SAMPLE_SITES if self._apart else 1)
        if kept < whole:
            # The same choice in every call.
            chosen = torch.randperm(whole, generator=torch.Generator().manual_seed(0))[:kept]
            parts = [part.index_select(dim, chosen.to(part.device)) for part in parts]
        return parts[0], parts[1] if len(parts) > 1 else None

    def _candidates(self, current: Tensor, slope: Tensor | None) -> Tensor:
        ends = torch.tensor(self._ends, dtype=torch.float64, device=current.device)
        low, high = ends[0], ends[1]
        if self._free is None:
            steps = torch.linspace(0, 1, _UNKNOWN, dtype=torch.float64, device=current.device)
            return (low + steps * (high - low))[:, None].expand(-1, current.shape[2])
        # Places at which the free potential reaches the threshold, for every step and neuron.
        base = self._free(current).double()
        if slope is None:
            needed = (_OVER / base.clamp(min=0)).log()
        else:
            added = self._free(slope.contiguous()).double()
            needed = ((_OVER - base) / added).where(added > 0, math.inf)
        needed = needed.movedim(2, -1).flatten(0, -2)
        order = needed.clamp(low, high).sort(0).values
        halves = 2.0 ** -torch.arange(_LEVELS - 1, -1, -1, device=current.device)
        # Of the steps at which a place can make the channel fire at all.
        levels = ((halves[:, None] * needed.isfinite().sum(0)).round().long() - 1).clamp(min=0)
        by_level = order.gather(0, levels)
        top = by_level[-1]
        beyond = [top + (high - top) * 2.0**-i for i in range(_BEYOND, 0, -1)]
        return (
            torch.cat((torch.stack((low.expand_as(top), high.expand_as(top), *beyond)), by_level))
            .sort(0)
            .values
        )


def common_factor(layer: SpikingLayer, current: Tensor, target: float) -> float:
    """The factor of a layer's currents at which it fires at a rate in the mean of its channels, by halving.

    Where that rate is not reached, a part of the highest one is taken for it. The factor is negative where no weight is
    positive and nothing would fire.
    """
    size = size_of_potential(current, layer)
    low = math.log(_COMMON_FACTORS[0] / size)
    high = math.log(min(_COMMON_FACTORS[1] / size, _room(layer, current)))

    def rate(log_factor: float) -> float:
        return float(channel_rates(layer.fire(current * math.exp(log_factor))).mean())

    sign = 1.0
    if rate(high) == 0:
        sign, current = -1.0, -current
    wanted = min(target, REACHABLE_SHARE * rate(high))
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if rate(middle) > wanted else (middle, high)
    # Above it the layer fires a little more, and not less: never silent.
    return sign * math.exp(high)


def _where(places: Tensor, curve: Tensor, rates: Tensor) -> Tensor:
    """Places `[C]` at which a rising curve `[K, C]` has these rates, on a straight line between its points."""
    below = (curve < rates).sum(0).clamp(1, len(curve) - 1) - 1
    pick = torch.stack((below, below + 1))
    r, p = curve.gather(0, pick), places.gather(0, pick)
    share = ((rates - r[0]) / (r[1] - r[0]).clamp(min=1e-12)).clamp(0, 1)
    return p[0] + share * (p[1] - p[0])


def moved(values: Tensor, place: Tensor, slope: Tensor | float | None, channel_dim: int) -> Tensor:
    """Values at a place of each channel: `values + place slope`, or `values e^place` without a slope."""
    shape = (-1, *[1] * (values.dim() - channel_dim - 1))
    if slope is None:
        return values * place.exp().to(values.dtype).reshape(shape)
    return values + place.to(values.dtype).reshape(shape) * slope
