"""Weights of spiking layers and readouts, as `prepare_` sets them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from snnlib.functional.sparse import fan_in
from snnlib.learning.preparing.course import Course
from snnlib.learning.preparing.rate_search import find_places, known_potential, moved, size_of_potential
from snnlib.learning.preparing.targets import (
    HIGHEST_RATE,
    LEAST_RATE,
    POTENTIAL,
    STANDARDIZED_RATE,
    hidden_rate,
    much_better,
)
from snnlib.nn.layers.readout import SRMReadout
from snnlib.nn.layers.spiking_layer import SpikingLayer
from snnlib.nn.recurrent.recurrent_layer import Recurrent
from snnlib.nn.weights.gain import WeightWithGain
from snnlib.nn.weights.stored_weight import learned_weight
from snnlib.sequences.spike_count import channel_rates
from snnlib.structure.layers import is_readout

# By how many thresholds a step of Adam at 1e-3 moves the potential, without spikes, if all weights of a neuron move the
# same way. So layers of any size learn at one pace; measured between 0.1 and 4.
_STEP = 2.0
# Nor more than so many times the gain that stores the weight at torch's usual scale, 1 / sqrt(3 fan_in): a step would
# change a weight by too large a part of itself.
_LARGEST_GAIN = 4.0
_LEARNING_RATE = 1e-3
# Amplitudes, and means of spikes in more than a fifth of all places, move a potential at every step, so that their
# weights need no larger steps than torch's; with gains of 16 and 32 nets learned pixels and pooled spikes worse.
_LARGEST_GAIN_OF_AMPLITUDES, _DENSE = 4.0, 0.2
# Share of the values that are not 0 from which an input is grey, and the largest count of events in a step.
_GREY, _LARGEST_COUNT = 0.01, 31
# Differences of weights, relative to the largest, that are rounding.
_EQUAL = 1e-6
# By how much of the wanted rate a layer may miss it before its weights are scaled instead of shifted.
_MISSED = 0.25


@dataclass(frozen=True)
class PrepareLayer:
    """Prepares a layer or readout with the input of its first call.

    Args:
        name: the layer's name in the net.
        course: what is known of the net and of what was done to it.
        with_gain: whether a gain is set.
        target: wanted rate of each channel; None: as of a hidden layer.
        spread: RMS of the free potential before the shift, in thresholds; None for weights of mean 0 and one factor for
            all channels instead of a shift per channel.
    """

    name: str
    course: Course
    with_gain: bool
    target: float | None = None
    spread: float | None = 1.0

    def __call__(self, layer: SpikingLayer | SRMReadout, x: Tensor) -> None:
        """Set weight and gain."""
        if isinstance(layer, SRMReadout) or is_readout(layer):
            self._readout(layer, x)
            return
        if not bool((x != 0).any()):
            raise ValueError(
                f"{self.name}: expected input with spikes, got zeros: nothing before it fires for this batch"
            )
        weight = layer.effective_weight.detach()
        if not weight.numel():
            raise ValueError(
                f"{self.name}: expected a layer with connections, got one without any: {layer!r}"
            )
        if self.spread is None:
            self._standardise(layer, x, weight)
        else:
            self._calibrate(layer, x, weight)

    def _standardise(self, layer: SpikingLayer, x: Tensor, weight: Tensor) -> None:
        """Sets weights of mean 0 in every channel and one factor for all, with which the layer fires as wanted."""
        target = STANDARDIZED_RATE if self.target is None else self.target
        self.course.targets[self.name] = target
        self.course.as_drawn.add(self.name)
        if self._may_change(layer):
            assign_effective_weight(
                layer, self._by_one_factor(layer, x, self._centred(weight), target), self.name
            )
            self.course.changed = True

    def _calibrate(self, layer: SpikingLayer, x: Tensor, weight: Tensor) -> None:
        """Sets weights with which each channel fires as wanted, and the gain."""
        ones = layer.unit_weight_current(x.abs())
        drawn = self._rate_as_drawn(layer, x, weight)
        target = hidden_rate(ones) if self.target is None else self.target
        self.course.targets[self.name] = target if drawn is None else drawn
        if self._may_change(layer):
            wanted = self._weight(layer, x, weight, target) if drawn is None else weight
            self._store(layer, wanted, size_of_potential(ones, layer), self._is_dense(x))

    def _is_dense(self, x: Tensor) -> bool:
        dense = float((x != 0).float().mean()) > _DENSE and not bool(((x == 0) | (x == 1)).all())
        return dense or self.course.takes_grey(x)

    def _may_change(self, layer: WeightWithGain) -> bool:
        return learned_weight(layer).requires_grad and not self.course.settled

    def _rate_as_drawn(self, layer: SpikingLayer, x: Tensor, weight: Tensor) -> float | None:
        """Rate of a recurrent layer that can stay as it is: no rate is asked of it, and it has one to learn from."""
        if self.target is not None or not isinstance(layer, Recurrent):
            return None
        rates = self.course.drawn(self.name)
        if rates is None:
            rates = channel_rates(layer.fire(layer.input_current(x, weight)))
        rate = float(rates.mean())
        if not LEAST_RATE <= rate <= HIGHEST_RATE:
            return None
        self.course.as_drawn.add(self.name)
        return rate

    def _weight(self, layer: SpikingLayer, x: Tensor, weight: Tensor, target: float) -> Tensor:
        """The effective weight with which the channels fire as wanted."""
        if weight[0].numel() == 1:
            # A shift, or a factor for each, would make channels with one weight copies of each other. Sparse
            # connections, a row of which is one weight here, keep those that they were drawn with to each other, too.
            self.course.as_drawn.add(self.name)
            return self._by_one_factor(layer, x, weight, target)
        # A recurrent layer's weights are drawn to fit each other, so that one learning rate suits both.
        spread = None if isinstance(layer, Recurrent) else self.spread
        signed = bool((x < 0).any())
        shifts = not signed and known_potential(layer) is not None
        if shifts:
            found, rates, wanted = self._shifted(layer, x, self._centred(weight), spread, target)
        else:
            # Events alone make no channel with a negative sum of weights fire.
            turns = (weight.flatten(1).sum(1) < 0).reshape(-1, *[1] * (weight.dim() - 1))
            turned = weight if signed else torch.where(turns, -weight, weight)
            found, rates, wanted = self._scaled(layer, x, turned, target)
        drawn = self.course.drawn(self.name)
        if shifts and not _reached(rates, wanted):
            if drawn is not None and _reached(drawn, wanted):
                return weight
            # Neurons that answer inhibition with spikes, as adaptive and resonating ones do, fire on however far
            # weights go down.
            scaled, scaled_rates, _ = self._scaled(layer, x, weight, wanted)
            if abs(float((scaled_rates - wanted).mean())) < abs(float((rates - wanted).mean())):
                found, rates = scaled, scaled_rates
        if (spread is None or not shifts) and drawn is not None and not much_better(rates, drawn, wanted):
            return weight
        return found

    def _shifted(
        self, layer: SpikingLayer, x: Tensor, weight: Tensor, spread: float | None, target: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        """`a weight + d`: a for the spread, d per channel; with its rates, and those that were looked for, `[C]`."""
        current, size = self._current(layer, x, weight)
        scale = 1.0 if spread is None else spread / size
        weight = weight * scale
        # Shifted so far down no weight is positive; so far up a single event makes a neuron fire.
        reach = float(weight.abs().max()) + layer.firing_weight()
        slope = layer.unit_weight_current(x), reach
        place, rates, wanted = find_places(layer, current * scale, target, slope)
        return moved(weight, place, 1.0, 0), rates, wanted

    def _scaled(
        self, layer: SpikingLayer, x: Tensor, weight: Tensor, target: float | Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """`a weight` with a factor per channel, and the rates of `_shifted`."""
        place, rates, wanted = find_places(layer, self._current(layer, x, weight)[0], target)
        return moved(weight, place, None, 0), rates, wanted

    def _by_one_factor(self, layer: SpikingLayer, x: Tensor, weight: Tensor, target: float) -> Tensor:
        """`a weight` with one factor, by which the layer fires at a rate in the mean of its channels.

        It is negative where no weight is positive and nothing would fire.
        """
        current = self._current(layer, x, weight)[0]
        place, rates, _ = find_places(layer, current, target, common=True)
        if not rates.any():
            weight = -weight
            place, _, _ = find_places(layer, -current, target, common=True)
        return weight * math.exp(float(place[0]))

    def _current(self, layer: SpikingLayer, x: Tensor, weight: Tensor) -> tuple[Tensor, float]:
        """The input current of a weight, and the size of the potential that it gives."""
        current = layer.input_current(x, weight)
        size = size_of_potential(current, layer)
        if not 0 < size < math.inf:
            raise ValueError(
                f"{self.name}: expected an input and a weight that can make neurons fire, got currents from "
                f"{float(current.min()):g} to {float(current.max()):g}"
            )
        return current, size

    def _centred(self, weight: Tensor) -> Tensor:
        """The weight with mean 0 in every channel."""
        centred = weight - weight.flatten(1).mean(1).reshape(-1, *[1] * (weight.dim() - 1))
        # What rounding leaves of equal weights is no direction.
        if float(centred.abs().max()) <= _EQUAL * float(weight.abs().max()):
            raise ValueError(
                f"{self.name}: expected a weight drawn at random, got one whose channels are constant"
            )
        return centred

    def _readout(self, readout: SpikingLayer | SRMReadout, x: Tensor) -> None:
        def potential(weight: Tensor, x: Tensor) -> float:
            if isinstance(readout, SRMReadout):
                values = readout.potentials_of(x, weight).value
            else:
                values = readout.free_potential(readout.input_current(x, weight))
            return float(values.float().square().mean(dtype=torch.float64).sqrt())

        weight = readout.effective_weight.detach()
        before = potential(weight, x)
        if not 0 < before < math.inf:
            raise ValueError(f"{self.name}: expected input with spikes, got potentials of RMS {before:g}")
        if self._may_change(readout):
            per_unit = potential(torch.ones_like(weight), x.abs())
            self._store(readout, weight * (POTENTIAL / before), per_unit, self._is_dense(x))

    def _store(self, layer: WeightWithGain, wanted: Tensor, per_unit: float, dense: bool) -> None:
        """Set the effective weight, and a gain for it; `per_unit`: the potential that weights of 1 give.

        Args:
            dense: whether the input has amplitudes at every step.
        """
        self.course.changed |= not torch.equal(wanted, layer.effective_weight)
        if not nn.utils.parametrize.is_parametrized(layer, "weight"):
            layer.gain.fill_(self._gain(layer, wanted, per_unit, dense))
        assign_effective_weight(layer, wanted, self.name)

    def _gain(self, layer: WeightWithGain, wanted: Tensor, per_unit: float, dense: bool) -> float:
        if not self.with_gain:
            return 1.0
        if isinstance(layer, Recurrent) and layer.recurrent_weight.numel():
            # So both weights are stored at one size, and one learning rate suits both.
            gain = _size(wanted) / _size(layer.recurrent_weight.detach())
        else:
            usual = _size(wanted) * math.sqrt(3 * fan_in(getattr(layer, "operator", None), wanted))
            gain = min(_STEP / (_LEARNING_RATE * per_unit), _LARGEST_GAIN * usual)
        return 2.0 ** round(math.log2(min(gain, _LARGEST_GAIN_OF_AMPLITUDES) if dense else gain))


def is_grey(x: Tensor) -> bool:
    """Returns whether an input holds amplitudes, as of pixels, and neither spikes nor counts of events."""
    values = x[x != 0]
    no_counts = (values != values.round()) | (values.abs() > _LARGEST_COUNT)
    return float(no_counts.float().mean()) > _GREY


def is_copied(layer: SpikingLayer) -> bool:
    """Returns whether all channels have equal weights and see the same input, so that they would learn the same."""
    weight = layer.effective_weight.detach()
    apart = isinstance(layer, Recurrent) or getattr(layer.operator, "groups", 1) > 1 or weight.dim() == 1
    differences = (weight - weight[:1]).abs().max()
    return len(weight) > 1 and not apart and bool(differences <= _EQUAL * weight.abs().max())


def _size(weight: Tensor) -> float:
    """Standard deviation of weights, or their root mean square where all are equal."""
    size = float(weight.float().square().mean().sqrt())
    deviation = float(weight.float().std()) if weight.numel() > 1 else 0.0
    return deviation if deviation > _EQUAL * size else size


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


def _reached(rates: Tensor, wanted: Tensor) -> bool:
    """Returns whether a layer fires about as much as is wanted, in the mean of its channels."""
    return abs(float(rates.mean() / wanted.mean().clamp(min=1e-12)) - 1) <= _MISSED
