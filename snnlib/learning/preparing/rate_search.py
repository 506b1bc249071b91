"""Weights of one spiking layer that give each of its channels a firing rate on a batch, found without randomness."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor, nn

from snnlib.learning.preparing.place_search import Currents, PlaceSearch, per_channel
from snnlib.learning.preparing.targets import REACHABLE_SHARE
from snnlib.neurons import Neuron
from snnlib.nn.gain import WeightWithGain
from snnlib.nn.spiking_layer import SpikingLayer
from snnlib.sequences.spike_count import channel_rates

# Of a factor for all channels, in those that give the potential the size of the threshold; and how often their range is
# halved: the factor is then found to a part in 50000.
_COMMON_SCALES, _HALVINGS = (1e-2, 1e2), 18


def known_potential(layer: SpikingLayer | Neuron) -> Callable[[Tensor], Tensor] | None:
    """`free_potential` of a layer or of neurons alone; None for models whose potential is not known."""
    neuron = getattr(layer, "neuron", layer)
    return None if isinstance(neuron, Neuron) and not neuron._knows_potential else layer.free_potential


def size_of_potential(current: Tensor, layer: SpikingLayer) -> float:
    """RMS of the potential in thresholds, without spikes, where there is one at all; of currents if it is not known."""
    free = known_potential(layer)
    values = current / layer.mean_threshold() if free is None else free(current)
    squares = values.float().square()
    # In float64, so that the number of threads that add cannot show in the weights.
    return float((squares.sum(dtype=torch.float64) / (squares != 0).sum()).sqrt())


class RateSearch:
    """The weights `W = a V + d` of a layer for one batch: a from the wanted spread, d per channel from its wanted rate.

    Args:
        layer: the layer; it stays as it is.
        events: the batch as it arrives at the layer.
        weight: V, a weight of the layer's shape.
        spread: RMS of the free potential of `a V`, in thresholds; None for a = 1.
        name: the layer's name, for errors.

    Raises:
        ValueError: an empty batch, no events, or a V that makes no neuron fire.
    """

    def __init__(
        self, layer: SpikingLayer, events: Tensor, weight: Tensor, spread: float | None, name: str
    ) -> None:
        current = layer.input_current(events, weight)
        if current.numel() == 0:
            raise ValueError(
                f"x: expected a batch with events, got shape {tuple(events.shape)} at layer {name}"
            )
        potential = size_of_potential(current, layer)
        if not 0 < potential < float("inf"):
            raise ValueError(
                f"{name}: expected events and a weight that can make neurons fire, got currents from "
                f"{float(current.min()):g} to {float(current.max()):g}"
            )
        scale = 1.0 if spread is None else spread / potential
        self._weight = weight * scale
        common = layer.unit_weight_current(events)
        # Shifted so far down no weight is positive; so far up a single event makes a neuron fire.
        bound = float(self._weight.abs().max()) + layer.firing_weight()
        currents = Currents(current * scale, common, int(layer.batch_first))
        self._search = PlaceSearch(
            layer.fire, currents, -bound, bound, known_potential(layer), layer.neurons_apart
        )

    def highest_rates(self) -> Tensor:
        """Firing rates beyond which no weight goes: a spike for every event."""
        return self._search.highest_rates()

    def find(self, target: Tensor, rounds: int | None = None) -> tuple[Tensor, Tensor]:
        """The weight whose channels fire at `target` `[C]`, and their rates.

        At most `highest_rates`. A channel that no weight makes fire is not shifted: its target is 0.
        """
        shift, rates = self._search.find(target, rounds)
        return self._weight + per_channel(shift, self._weight, 0), rates


class ScaleSearch:
    """`W = a V` with a factor per channel, where no shift gives the rate.

    For inputs of both signs, for neurons that answer inhibition with spikes, and for models whose potential is not
    known.

    Args:
        layer: the layer; it stays as it is.
        x: the batch as it arrives at the layer.
        weight: V, a weight of the layer's shape.
        name: the layer's name, for errors.
        turned: whether factors of channels with a negative sum of weights are negative, as events alone make no such
            channel fire.

    Raises:
        ValueError: an input or a V of 0.
    """

    def __init__(
        self, layer: SpikingLayer, x: Tensor, weight: Tensor, name: str, *, turned: bool = False
    ) -> None:
        if turned:
            negative = weight.flatten(1).sum(1) < 0
            weight = weight * per_channel(1 - 2 * negative.to(weight.dtype), weight, 0)
        self._weight = weight
        current = layer.input_current(x, weight)
        size = size_of_potential(current, layer)
        if not 0 < size < float("inf"):
            raise ValueError(
                f"{name}: expected an input and a weight that can make neurons fire, got currents of 0"
            )
        # From a potential far below the threshold to one far above it.
        self._search = PlaceSearch(
            layer.fire,
            Currents(current, None, int(layer.batch_first)),
            math.log(1e-3 / size),
            math.log(1e3 / size),
            known_potential(layer),
            layer.neurons_apart,
        )

    def highest_rates(self) -> Tensor:
        """Firing rates at the largest factor."""
        return self._search.highest_rates()

    def find(self, target: Tensor) -> tuple[Tensor, Tensor]:
        """The weight whose channels fire at `target` `[C]`, and their rates; those with target 0 keep their weight."""
        log_scale, rates = self._search.find(target)
        return self._weight * per_channel(log_scale.exp(), self._weight, 0), rates


def common_scale(layer: SpikingLayer, events: Tensor, weight: Tensor, target: float, name: str) -> float:
    """The factor of a weight with which the layer fires at a rate in the mean of its channels, by halving.

    Where that rate is not reached, half of the highest one is taken for it. The factor is negative where no weight is
    positive and nothing would fire.

    Raises:
        ValueError: an input or a weight of 0.
    """
    current = layer.input_current(events, weight)
    size = size_of_potential(current, layer)
    if not 0 < size < float("inf"):
        raise ValueError(
            f"{name}: expected an input and a weight that can make neurons fire, got currents of 0"
        )

    def rate(log_scale: float) -> float:
        return float(channel_rates(layer.fire(current * math.exp(log_scale))).mean())

    low, high = (math.log(factor / size) for factor in _COMMON_SCALES)
    sign = 1.0
    if rate(high) == 0:
        sign, current = -1.0, -current
    wanted = min(target, REACHABLE_SHARE * rate(high))
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if rate(middle) > wanted else (middle, high)
    # Above it the layer fires a little more, and not less: never silent.
    return sign * math.exp(high)


def assign_effective_weight(layer: WeightWithGain, wanted: Tensor, name: str) -> None:
    """Set the weight that acts on a layer's input, through the weight's parametrization if it has one.

    Raises:
        ValueError: the parametrization does not keep the weight that it is given.
    """
    stored = wanted / layer.weight_gain()
    if not nn.utils.parametrize.is_parametrized(layer, "weight"):
        layer.weight.copy_(stored)
        return
    steps = cast(nn.ModuleDict, layer.parametrizations)["weight"]
    if all(hasattr(step, "right_inverse") for step in cast(nn.ModuleList, steps)):
        layer.weight = stored
    # Quantised weights are off by a rounding; a lost mean or scale is off by much more.
    error = (layer.effective_weight.detach() - wanted).norm() / wanted.norm()
    if not float(error) < 0.05:
        raise ValueError(
            f"{name}: expected a parametrization that keeps the weight it is given, got one that is off by "
            f"{float(error):.0%}; calibrate before registering it"
        )
