"""Weights of one spiking layer that give each of its channels a firing rate on a batch, found without randomness."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor, nn

from snnlib.inspect.activity import count_per_neuron
from snnlib.neurons import Neuron
from snnlib.nn.gain import WeightWithGain
from snnlib.nn.neuron_layer import NeuronLayer

# Halvings of the search interval: 2^-20 of its width moves no rate that a batch can resolve.
_BISECTIONS = 20


def channel_rates(current: Tensor, layer: NeuronLayer | Neuron) -> Tensor:
    """Spikes per neuron and time step of each channel `[C]`."""
    spikes = layer(current) if isinstance(layer, Neuron) else layer.fire(current)
    counts = count_per_neuron(spikes)
    return counts.reshape(len(counts), -1).mean(1) / (spikes.shape[0] * spikes.shape[1])


def free_potential(current: Tensor, layer: NeuronLayer) -> float:
    """RMS of the potential in units of the threshold, without spikes, where there is one at all."""
    squares = layer.free_potential(current).float().square()
    # In float64, so that the number of threads that add cannot show in the weights.
    return float((squares.sum(dtype=torch.float64) / (squares != 0).sum()).sqrt())


class RateSearch:
    """The weights `W = a V + d` of a layer for one batch: a from the wanted spread, d per channel from its wanted rate.

    Args:
        layer: the layer; it stays as it is.
        events: the batch as it arrives at the layer.
        weight: V, a weight of the layer's shape.
        spread: RMS of the free potential of `a V`, in thresholds.
        name: the layer's name, for errors.

    Raises:
        ValueError: an empty batch, no events, or a V that makes no neuron fire.
    """

    def __init__(self, layer: NeuronLayer, events: Tensor, weight: Tensor, spread: float, name: str) -> None:
        self._layer = layer
        current = layer.input_current(events, weight)
        if current.numel() == 0:
            raise ValueError(
                f"x: expected a batch with events, got shape {tuple(events.shape)} at layer {name}"
            )
        potential = free_potential(current, layer)
        if not 0 < potential < float("inf"):
            raise ValueError(
                f"{name}: expected events and a weight that can make neurons fire, got currents from "
                f"{float(current.min()):g} to {float(current.max()):g}"
            )
        self._scale = spread / potential
        self._weight, self._current = weight * self._scale, current * self._scale
        self._common = layer.input_current(events, torch.ones_like(weight))
        # Shifted so far down no weight is positive; so far up a single event makes a neuron fire.
        self._bound = float(self._weight.abs().max()) + layer.sure_weight()

    def rates(self, shift: Tensor | float) -> Tensor:
        """Firing rate of each channel `[C]` with a shift d, a number or `[C]`."""
        return channel_rates(self._current + per_channel(shift, self._current, 2) * self._common, self._layer)

    def highest_rates(self) -> Tensor:
        """Firing rates beyond which no weight goes: a spike for every event."""
        return self.rates(self._bound)

    def in_place(self, tolerance: float) -> bool:
        """Whether the spread is what is wanted already."""
        return abs(self._scale - 1) < tolerance

    def find(self, target: Tensor | float) -> tuple[Tensor, Tensor]:
        """The weight whose channels fire at `target`, a number or `[C]`, and their rates.

        At most `highest_rates`. A channel that no weight makes fire is not shifted: its target is 0.
        """
        low = torch.full((len(self._weight),), -self._bound, device=self._weight.device)
        shift = bisect(self.rates, target, low, -low)
        return self._weight + per_channel(shift, self._weight, 0), self.rates(shift)


class ScaleSearch:
    """As `RateSearch` for inputs of both signs, which no shift makes fire more: `W = a V` with a factor per channel."""

    def __init__(self, layer: NeuronLayer, x: Tensor, weight: Tensor, name: str) -> None:
        self._layer, self._weight = layer, weight
        self._current = layer.input_current(x, weight)
        potential = free_potential(self._current, layer)
        if not 0 < potential < float("inf"):
            raise ValueError(
                f"{name}: expected an input and a weight that can make neurons fire, got currents of 0"
            )
        # From a potential far below the threshold to one far above it.
        self._low, self._high = math.log(1e-3 / potential), math.log(1e3 / potential)

    def rates(self, log_scale: Tensor | float) -> Tensor:
        """Firing rate of each channel `[C]` with the logarithm of its factor, a number or `[C]`."""
        scale = torch.as_tensor(log_scale, device=self._current.device).exp()
        return channel_rates(self._current * per_channel(scale, self._current, 2), self._layer)

    def highest_rates(self) -> Tensor:
        """Firing rates at the largest factor."""
        return self.rates(self._high)

    def in_place(self, tolerance: float) -> bool:
        """Factors are free: any weight will do whose rates are right."""
        return True

    def find(self, target: Tensor | float) -> tuple[Tensor, Tensor]:
        """The weight whose channels fire at `target`, and their rates; channels with target 0 keep their weight."""
        low = torch.full((len(self._weight),), self._low, device=self._weight.device)
        log_scale = bisect(self.rates, target, low, low + (self._high - self._low))
        return self._weight * per_channel(log_scale.exp(), self._weight, 0), self.rates(log_scale)


def bisect(rates: Callable[[Tensor], Tensor], target: Tensor | float, low: Tensor, high: Tensor) -> Tensor:
    """Where the rates, which grow with their argument, reach the target; 0 where that is 0."""
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        below = rates(middle) < target
        low, high = torch.where(below, middle, low), torch.where(below, high, middle)
    return high.where(torch.as_tensor(target, device=high.device) > 0, 0.0)


def per_channel(values: Tensor | float, like: Tensor, channel_dim: int) -> Tensor | float:
    """`values` `[C]` in a shape that broadcasts with a tensor with channels in that dimension; numbers as they are."""
    if not isinstance(values, Tensor):
        return values
    return values.to(like.dtype).reshape(-1, *[1] * (like.dim() - channel_dim - 1))


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
