"""Sets weights of spiking layers and readouts for `prepare_`."""

from __future__ import annotations

import math
from typing import cast

import torch
from torch import Tensor, nn

from snnlib.functional.sparse import fan_in
from snnlib.learning.preparing.course import Course, rms
from snnlib.learning.preparing.rate_search import (
    affine,
    find_start,
    known_potential,
    size_of_potential,
)
from snnlib.learning.preparing.targets import HIGHEST_RATE, LEAST_RATE, POTENTIAL, hidden_rate
from snnlib.nn.layers.readout import SRMReadout
from snnlib.nn.layers.spiking_layer import SpikingLayer
from snnlib.nn.recurrent.recurrent_layer import Recurrent
from snnlib.nn.weights.gain import WeightWithGain
from snnlib.nn.weights.stored_weight import learned_weight
from snnlib.sequences.spike_count import channel_rates
from snnlib.structure.layers import is_readout

# Thresholds by which a step of Adam at 1e-3 moves the potential, without spikes, if all weights of a neuron move the
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
# Share of the wanted rate by which a layer may miss it before its weights are scaled instead of shifted.
_MISSED = 0.25


def set_weight(
    course: Course,
    name: str,
    gain: bool,
    asked: float | None,
    spread: float | None,
    layer: SpikingLayer | SRMReadout,
    x: Tensor,
) -> None:
    """Sets weight and gain of a layer or readout with the input of its first call.

    Args:
        course: the preparation of the net.
        name: the layer's name in the net.
        gain: whether a gain is set.
        asked: wanted rate of each channel; None: as of a hidden layer.
        spread: RMS of the free potential before the shift of each channel, in thresholds; None for weights of mean 0
            and one factor for all channels.
        layer: the layer.
        x: its input.

    Raises:
        ValueError: nothing fires before the layer, or its weight cannot make it fire.
    """
    weight = layer.effective_weight.detach()
    may_change = learned_weight(layer).requires_grad and not course.settled
    if isinstance(layer, SRMReadout) or is_readout(layer):
        size = _potential(layer, x, weight)
        if not 0 < size < math.inf:
            raise ValueError(f"expected input with spikes, got potentials of RMS {size:g}")
        if may_change:
            per_unit = _potential(layer, x.abs(), torch.ones_like(weight))
            _store(course, gain, layer, x, weight * (POTENTIAL / size), per_unit)
        return
    if not bool((x != 0).any()):
        raise ValueError("expected input with spikes, got zeros: nothing before it fires for this batch")
    if not weight.numel():
        raise ValueError(f"expected a layer with connections, got one without any: {layer!r}")
    ones = layer.unit_weight_current(x.abs())
    target = hidden_rate(ones[0, 0].numel()) if asked is None else asked
    stays = False
    if asked is None and isinstance(layer, Recurrent):
        # It stays as it is where it has a rate to learn from.
        drawn = course.drawn(name)
        rates = channel_rates(layer.fire(layer.input_current(x, weight))) if drawn is None else drawn
        stays = LEAST_RATE <= float(rates.mean()) <= HIGHEST_RATE
        target = float(rates.mean()) if stays else target
    course.targets[name] = target
    if stays or spread is None or weight[0].numel() == 1:
        course.as_drawn.add(name)
    if not may_change:
        return
    if spread is None:
        weight = standardise(layer, x, target)
    elif not stays:
        weight = calibrate(layer, x, target, spread, course.drawn(name))
    _store(course, gain, layer, x, weight, size_of_potential(ones, layer.neuron))


def standardise(layer: SpikingLayer, x: Tensor, target: float) -> Tensor:
    """Returns weights of mean 0 in every channel, times one factor that gives the layer its target rate."""
    return _by_one_factor(layer, x, _centred(layer.effective_weight.detach()), target)


def calibrate(layer: SpikingLayer, x: Tensor, target: float, spread: float, drawn: Tensor | None) -> Tensor:
    """Returns weights that give each channel its target rate.

    The weights are `a weight + d` with a for the spread and d per channel, or `a weight` with a per channel if shifts
    do not help.

    Args:
        layer: the layer, with the initial weight.
        x: its input.
        target: target rate of each channel.
        drawn: rates `[C]` with the initial weight, if known.
    """
    weight = layer.effective_weight.detach()
    if weight[0].numel() == 1:
        # A shift, or a factor for each, would make channels with one weight copies of each other. Sparse connections,
        # a row of which is one weight here, keep those that they were drawn with to each other, too.
        return _by_one_factor(layer, x, weight, target)
    # A recurrent layer's weights are drawn to fit each other, so that one learning rate suits both.
    fits, signed = isinstance(layer, Recurrent), bool((x < 0).any())
    if signed or known_potential(layer.neuron) is None:
        # Events alone make no channel with a negative sum of weights fire.
        turns = (weight.flatten(1).sum(1) < 0).reshape(-1, *[1] * (weight.dim() - 1))
        scaled, fits = weight if signed else torch.where(turns, -weight, weight), True
        start = find_start(layer, *_current(layer, x, scaled), target)
    else:
        scaled = _centred(weight)
        current, size = _current(layer, x, scaled)
        factor = 1.0 if fits else spread / size
        # Shifted so far down no weight is positive; so far up a single event makes a neuron fire.
        reach = factor * float(scaled.abs().max()) + layer.firing_weight()
        start = find_start(layer, current, size, target, (layer.unit_weight_current(x), reach), factor=factor)
        if start.missed > _MISSED:
            # Neurons that answer inhibition with spikes, as adaptive and resonating ones do, fire on however far
            # weights go down.
            other, fits = find_start(layer, *_current(layer, x, weight), start.wanted), True
            start, scaled = (other, weight) if other.missed < start.missed else (start, scaled)
    if fits and drawn is not None and not start.much_better(drawn):
        return weight
    return affine(scaled, start.factor, start.shift, 0)


def _by_one_factor(layer: SpikingLayer, x: Tensor, weight: Tensor, target: float) -> Tensor:
    """Returns `a weight` with one factor that gives the layer its mean target rate.

    The factor is negative if no weight is positive, so that neurons fire.
    """
    current, size = _current(layer, x, weight)
    start = find_start(layer, current, size, target, common=True)
    if not start.rates.any():
        weight, start = -weight, find_start(layer, -current, size, target, common=True)
    return weight * float(start.factor[0])


def _current(layer: SpikingLayer, x: Tensor, weight: Tensor) -> tuple[Tensor, float]:
    """Returns the input current of a weight, and the size of the potential that it gives."""
    current = layer.input_current(x, weight)
    size = size_of_potential(current, layer.neuron)
    if not 0 < size < math.inf:
        raise ValueError(
            f"expected an input and a weight that can make neurons fire, got currents from "
            f"{float(current.min()):g} to {float(current.max()):g}"
        )
    return current, size


def _centred(weight: Tensor) -> Tensor:
    """Returns the weight with mean 0 in every channel."""
    centred = weight - weight.flatten(1).mean(1).reshape(-1, *[1] * (weight.dim() - 1))
    # A remainder of rounding equal weights is no direction.
    if float(centred.abs().max()) <= _EQUAL * float(weight.abs().max()):
        raise ValueError("expected a weight drawn at random, got one whose channels are constant")
    return centred


def _potential(readout: SpikingLayer | SRMReadout, x: Tensor, weight: Tensor) -> float:
    """Returns the RMS of a readout's potentials with a weight."""
    if isinstance(readout, SRMReadout):
        return rms(readout.potentials_of(x, weight))
    return rms(readout.free_potential(readout.input_current(x, weight)))


def _store(
    course: Course, gain: bool, layer: SpikingLayer | SRMReadout, x: Tensor, weight: Tensor, per_unit: float
) -> None:
    """Sets the effective weight, and a gain for it; `per_unit`: the potential that weights of 1 give."""
    course.changed |= not torch.equal(weight, layer.effective_weight)
    if not nn.utils.parametrize.is_parametrized(layer, "weight"):
        layer.gain.fill_(
            _gain(layer, weight, per_unit, course.takes_grey(x) or _is_dense(x)) if gain else 1.0
        )
    assign_effective_weight(layer, weight)


def _is_dense(x: Tensor) -> bool:
    """Returns whether an input has amplitudes at most steps."""
    return float((x != 0).float().mean()) > _DENSE and not bool(((x == 0) | (x == 1)).all())


def _gain(layer: WeightWithGain, wanted: Tensor, per_unit: float, dense: bool) -> float:
    """Returns the power of two by which a weight is stored smaller."""
    if isinstance(layer, Recurrent) and layer.recurrent_weight.numel():
        # So both weights are stored at one size, and one learning rate suits both.
        gain = _size(wanted) / _size(layer.recurrent_weight.detach())
    else:
        usual = _size(wanted) * math.sqrt(3 * fan_in(getattr(layer, "operator", None), wanted))
        gain = min(_STEP / (_LEARNING_RATE * per_unit), _LARGEST_GAIN * usual)
    return 2.0 ** round(math.log2(min(gain, _LARGEST_GAIN_OF_AMPLITUDES) if dense else gain))


def _size(weight: Tensor) -> float:
    """Returns the standard deviation of weights, or their root mean square where all are equal."""
    deviation = float(weight.float().std()) if weight.numel() > 1 else 0.0
    return deviation if deviation > _EQUAL * rms(weight) else rms(weight)


def is_grey(x: Tensor) -> bool:
    """Returns whether an input holds amplitudes such as pixels instead of spikes or event counts."""
    values = x[x != 0]
    no_counts = (values != values.round()) | (values.abs() > _LARGEST_COUNT)
    return float(no_counts.float().mean()) > _GREY


def is_copied(layer: SpikingLayer) -> bool:
    """Returns whether all channels have equal weights and the same input, so that they would learn the same."""
    weight = layer.effective_weight.detach()
    apart = isinstance(layer, Recurrent) or getattr(layer.operator, "groups", 1) > 1 or weight.dim() == 1
    differences = (weight - weight[:1]).abs().max()
    return len(weight) > 1 and not apart and bool(differences <= _EQUAL * weight.abs().max())


def assign_effective_weight(layer: WeightWithGain, wanted: Tensor) -> None:
    """Sets the weight that acts on a layer's input, through the weight's parametrization if it has one.

    Raises:
        ValueError: the parametrization cannot represent the weight.
    """
    stored = wanted / layer.weight_gain()
    if not nn.utils.parametrize.is_parametrized(layer, "weight"):
        if not isinstance(layer.weight, nn.Parameter):
            raise ValueError(
                "expected a parameter, got a weight that a hook computes; prune or norm after prepare_"
            )
        layer.weight.copy_(stored)
        return
    steps = cast(nn.ModuleDict, layer.parametrizations)["weight"]
    if all(hasattr(step, "right_inverse") for step in cast(nn.ModuleList, steps)):
        layer.weight = stored
    # Quantised weights are off by a rounding; a lost mean or scale is off by much more.
    error = (layer.effective_weight.detach() - wanted).norm() / wanted.norm()
    if not float(error) < 0.05:
        raise ValueError(
            f"expected a parametrization that keeps the weight it is given, got one that is off by "
            f"{float(error):.0%}; calibrate before registering it"
        )
