"""Search for the places at which channels, whose rates grow with their place, fire as is wanted: in three runs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

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


@dataclass(frozen=True)
class Currents:
    """Currents of a batch for a place per channel: `base + place slope`, or `base e^place` where there is no slope.

    Args:
        base: currents `[T, N, C, ...]`, `[N, T, C, ...]` where time is the second dimension.
        slope: currents that broadcast with them, or None.
        time_dim: 0 or 1.
    """

    base: Tensor
    slope: Tensor | None
    time_dim: int = 0

    def at(self, place: Tensor) -> Tensor:
        """Currents with places `[C]`."""
        if self.slope is None:
            return self.base * per_channel(place.exp(), self.base, 2)
        return self.base + per_channel(place, self.base, 2) * self.slope

    def stacked(self, places: Tensor) -> Tensor:
        """Currents with places `[K, C]`, as K times as many samples, candidate after candidate."""
        return torch.cat([self.at(place) for place in places], 1 - self.time_dim)

    def sample(self, copies: int, apart: bool) -> Currents:
        """A part of the batch that is a run's work in so many copies.

        With `apart`, neurons of a channel at different pixels count as samples.
        """
        parts = [self.base] if self.slope is None else [self.base, self.slope.expand_as(self.base)]
        if self.time_dim:
            parts = [part.transpose(0, 1) for part in parts]
        if apart:
            # [T, N, C, H, W] -> [T, N H W, C]
            parts = [
                part.flatten(3).permute(0, 1, 3, 2).flatten(1, 2) if part.dim() > 3 else part
                for part in parts
            ]
        whole = parts[0].shape[1]
        per_site = max(parts[0][:, 0].numel(), 1)
        budget = _SAMPLE_VALUES // (copies * per_site)
        kept = min(whole, max(budget, _SAMPLE_SITES if apart else 1))
        if kept < whole:
            # The same choice in every call.
            generator = torch.Generator().manual_seed(0)
            chosen = torch.randperm(whole, generator=generator)[:kept].to(self.base.device)
            parts = [part[:, chosen] for part in parts]
        if self.time_dim:
            parts = [part.transpose(0, 1) for part in parts]
        return replace(self, base=parts[0], slope=parts[1] if len(parts) > 1 else None)


class PlaceSearch:
    """Rates of channels over their places, looked up on a sample and corrected on the whole batch.

    One run of the neurons on a sample has many candidates beside each other, placed by the free potential where that is
    known; the rates between them are interpolated. Each further run measures the whole batch and corrects the place by
    how far the sample was off. No randomness: the same batch gives the same places.

    Args:
        fire: neurons' spikes for currents.
        currents: of the batch.
        low, high: places between which rates are looked for.
        free: potential without spikes in thresholds for currents; None for neurons where it is not known.
        apart: whether a channel's neurons and the channels do not act on each other, as they do by recurrence.
    """

    def __init__(
        self,
        fire: Callable[[Tensor], Tensor],
        currents: Currents,
        low: float,
        high: float,
        free: Callable[[Tensor], Tensor] | None,
        apart: bool,
    ) -> None:
        self._fire, self._currents, self._free, self._apart = fire, currents, free, apart
        self._places, self._rates = self._curve(low, high, apart)

    def highest_rates(self) -> Tensor:
        """Rates `[C]` at the highest place, on the sample."""
        return self._rates[-1]

    def find(self, wanted: Tensor, rounds: int | None = None) -> tuple[Tensor, Tensor]:
        """Places `[C]` tried whose rates are nearest to the wanted ones, and these rates; place 0 where 0 is wanted.

        In at most so many further runs; None for two, or six where the potential is not known.
        """
        places, curve = self._places, self._rates
        found: tuple[Tensor, Tensor] | None = None
        for _ in range(rounds or (_ROUNDS if self._free is not None else _ROUNDS_UNKNOWN)):
            place = _where(places, curve, wanted).where(wanted > 0, 0.0)
            rates = channel_rates(self._fire(self._currents.at(place)))
            found = (place, rates) if found is None else self._nearer(found, (place, rates), wanted)
            if near(found[1], wanted, _CLOSE):
                break
            if not (self._whole and self._apart):
                # How far the sample, or the curve of recurrent neurons that all move together, is off is alike around.
                off = (rates / wanted).nan_to_num(1.0).clamp(1 / _LARGEST_CORRECTION, _LARGEST_CORRECTION)
                curve = curve * off
            if self._apart:
                places, order = torch.cat((places, place[None])).sort(0)
                curve = torch.cat((curve, rates[None])).gather(0, order).cummax(0).values
        assert found is not None
        # The least that fires, where what is wanted lies between no spike and the first.
        first = (curve <= 0).sum(0, keepdim=True).clamp(max=len(curve) - 1)
        silent = (found[1] == 0) & (wanted > 0)
        return found[0].where(~silent, places.gather(0, first)[0]), found[1].where(
            ~silent, curve.gather(0, first)[0]
        )

    def _nearer(
        self, one: tuple[Tensor, Tensor], other: tuple[Tensor, Tensor], wanted: Tensor
    ) -> tuple[Tensor, Tensor]:
        errors = [(rates - wanted).abs() for _, rates in (one, other)]
        if not self._apart:
            # Places of recurrent neurons are right together only.
            errors = [error.sum().expand_as(error) for error in errors]
        better = errors[1] < errors[0]
        return other[0].where(better, one[0]), other[1].where(better, one[1])

    def _curve(self, low: float, high: float, apart: bool) -> tuple[Tensor, Tensor]:
        """Places `[K, C]` in rising order and their rates on a sample, which grow."""
        copies = _UNKNOWN if self._free is None else _LEVELS + _BEYOND + 2
        sample = self._currents.sample(copies, apart)
        places = self._candidates(sample, low, high)
        spikes = self._fire(sample.stacked(places))
        per_candidate = spikes.chunk(len(places), 1 - sample.time_dim)
        rates = torch.stack([channel_rates(part) for part in per_candidate])
        self._whole = sample.base.numel() == self._currents.base.numel()
        if bool((rates[-1] == 0).any()) and not self._whole:
            # A channel that hardly gets events may have none in the sample.
            whole = channel_rates(self._fire(self._currents.at(places[-1])))
            rates[-1] = rates[-1].where(rates[-1] > 0, whole)
        return places, rates.cummax(0).values

    def _candidates(self, sample: Currents, low: float, high: float) -> Tensor:
        device = sample.base.device
        places = sample.base.shape[2]
        ends = torch.tensor([low, high], dtype=torch.float64, device=device)
        if self._free is None:
            steps = torch.linspace(0, 1, _UNKNOWN, dtype=torch.float64, device=device)
            return (ends[0] + steps * (ends[1] - ends[0]))[:, None].expand(-1, places)
        needed = self._needed(sample)
        reached = needed.isfinite().sum(0)
        order = needed.clamp(low, high).sort(0).values
        halves = 2.0 ** -torch.arange(_LEVELS - 1, -1, -1, device=device)
        # Of the steps at which a place can make the channel fire at all.
        levels = ((halves[:, None] * reached).round().long() - 1).clamp(min=0)
        by_level = order.gather(0, levels)
        beyond = [by_level[-1] + (high - by_level[-1]) * 2.0**-i for i in range(_BEYOND, 0, -1)]
        edges = (ends[:1, None].expand(1, places), ends[1:, None].expand(1, places))
        return torch.cat((edges[0], by_level, torch.stack(beyond), edges[1])).sort(0).values

    def _needed(self, sample: Currents) -> Tensor:
        """Places at which the free potential reaches the threshold, for every step and neuron, `[M, C]`."""
        assert self._free is not None
        base = self._free(sample.base).double()
        if sample.slope is None:
            needed = (_OVER / base.clamp(min=0)).log()
        else:
            slope = self._free(sample.slope.contiguous()).double()
            needed = ((_OVER - base) / slope.clamp(min=0)).nan_to_num(math.inf)
            needed = needed.where(slope > 0, math.inf)
        return needed.movedim(2, -1).flatten(0, -2)


def _where(places: Tensor, curve: Tensor, rates: Tensor) -> Tensor:
    """Places `[C]` at which a rising curve `[K, C]` has these rates, on a straight line between its points."""
    below = (curve < rates).sum(0).clamp(1, len(curve) - 1) - 1
    pick = torch.stack((below, below + 1))
    r, p = curve.gather(0, pick), places.gather(0, pick)
    share = ((rates - r[0]) / (r[1] - r[0]).clamp(min=1e-12)).clamp(0, 1)
    return p[0] + share * (p[1] - p[0])


def near(rates: Tensor, wanted: Tensor, tolerance: float) -> bool:
    """Returns whether rates per channel are what is wanted, up to a part of it."""
    return bool(((rates - wanted).abs() <= tolerance * wanted).all())


def per_channel(values: Tensor | float, like: Tensor, channel_dim: int) -> Tensor | float:
    """`values` `[C]` in a shape that broadcasts with a tensor with channels in that dimension; numbers as they are."""
    if not isinstance(values, Tensor):
        return values
    return values.to(like.dtype).reshape(-1, *[1] * (like.dim() - channel_dim - 1))
