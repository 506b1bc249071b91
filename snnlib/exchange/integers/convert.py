"""`snnlib.to_integers`: converts a trained net to integer weights and states, calibrated on data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn

from snnlib.checks import check_choice
from snnlib.exchange.integers.c_layout import LARGEST_NUMBER
from snnlib.exchange.integers.integer_layer import LARGEST_COUNT, LEAK_BITS, IntegerLayer, bounds, steps_of
from snnlib.exchange.integers.integer_net import IntegerNet
from snnlib.exchange.integers.scales import ScaleRule, check_scale, check_weight_bits, rounded, weight_scale
from snnlib.exchange.structure.cells import Array
from snnlib.exchange.structure.connections import Connections
from snnlib.exchange.structure.stages import Stage, decay_numbers, stages_of
from snnlib.exchange.unrolled import UnrolledNet

__all__ = ["to_integers"]

# Share of the states' range that calibration data may fill.
_ROOM = 0.9
# Bits below the point while ranges are measured.
_MEASURED = 6
# Limits of neurons in fixed point: bits of a state below its unit, and the longest refractory time.
_BITS = 12
_LONGEST_REFRACTORY = 255

Decay = Literal["multiplier", "shift"]


@torch.no_grad()
def to_integers(
    net: nn.Module,
    x: Tensor,
    *,
    weight_bits: int = 8,
    state_bits: int = 16,
    scale: ScaleRule = "channel",
    decay: Decay = "multiplier",
) -> IntegerNet:
    """Converts a trained net to integer weights, thresholds and states, without floating-point arithmetic.

    Weights become `round(w / scale)`; sums have 32 bits; thresholds become the integers at which the float neuron
    fires; a state decays by `(z * leak + 2^14) >> 15`, rounded to the nearest. A graded spike is taken off the membrane
    threshold by threshold, and adds its number times the weight. Averages of spikes before a layer become sums, with
    the divisor in the scale. States have as many fractional bits as their ranges on `x` allow, and saturate. Layers of
    neurons in fixed point (`LoihiLIF`) already compute in integers: they need no calibration and lose no accuracy.

    Args:
        net: a chain of this library's layers and neurons, `PerStep` with convolutions, linear layers and batch norm,
            and average pooling without overlap; in evaluation mode. One time constant per layer. Or an unrolled net,
            whose virtual steps are the comparisons of the integer net.
        x: inputs for calibration `[T, N, ...]`: counts of events from 0 to 255, like the net's later inputs.
        weight_bits: 8 or 4.
        state_bits: 16, or 32 for states that never saturate. A last layer that outputs potentials always has 32.
        scale: `"channel"`: any number per output channel; `"power-of-two"` per output channel; `"layer"`: one number.
            A layer that gives potentials has one number for all channels.
        decay: `"multiplier"`: leaks to 15 bits; `"shift"`: the nearest power of two, for processors without a
            multiplier.

    Raises:
        ValueError: an option out of its range, a module without counterpart (the message names its path), or inputs
            that are not counts, or zeros only.

    Source: weights and scales: Jacob et al., CVPR 2018.

    >>> import snnlib, torch
    >>> net = torch.nn.Sequential(snnlib.SRMLinear(20, 8), snnlib.SRMReadout(8, 4)).eval()
    >>> x = (torch.rand(30, 5, 20) < 0.2).float()
    >>> small = snnlib.to_integers(net, x)
    >>> small.integers(x).shape, small.integers(x).dtype
    (torch.Size([30, 5, 4]), torch.int32)
    """
    check_weight_bits(weight_bits)
    check_scale(scale)
    if state_bits not in (16, 32):
        raise ValueError(f"state_bits: expected 16 or 32, got {state_bits}")
    check_choice("decay", decay, *get_args(Decay))
    layers: list[IntegerLayer] = []
    divisor, most = 1.0, LARGEST_COUNT
    stages = net.stages if isinstance(net, UnrolledNet) else stages_of(net, x)
    for stage in stages:
        _check(stage, stage is stages[-1])
        assert stage.cell is not None
        weights = [stage.weight * divisor] + ([] if stage.recurrent is None else [stage.recurrent])
        area = stage.pool[0] * stage.pool[1]
        counts, most, divisor = most, int(stage.cell.levels) * area, 1.0 / area
        if stage.refractory is not None:
            if (weight_bits, decay) != (8, "multiplier"):
                raise ValueError(
                    f"{stage.name}: expected weight_bits=8 and decay='multiplier' for neurons in fixed point, got "
                    f"{weight_bits} and {decay!r}"
                )
            layers.append(_in_fixed_point(stage, weights))
            _check_sums(layers[-1], counts)
            continue
        # Potentials are compared with each other, so all have one unit.
        together = torch.cat([part.flatten(1) for part in weights], 1)
        unit = weight_scale(together, weight_bits, scale, alike=not stage.cell.spikes)
        integers = [rounded(part, unit, weight_bits) for part in weights]
        layer = _layer(stage, integers, unit, weight_bits, decay)
        _check_sums(layer, counts)
        try:
            layers.append(_calibrated(layer, stage.cell.strict, layers, x, state_bits))
        except RuntimeError as error:
            raise ValueError(
                f"x: expected an input that the net takes, got shape {tuple(x.shape)} at {stage.name}: {error}"
            ) from error
    return IntegerNet(layers)


def _check(stage: Stage, last: bool) -> None:
    """Raise ValueError unless integers can have such a stage, the last one or before others."""
    assert stage.cell is not None
    if not last and not stage.cell.spikes:
        raise ValueError(
            f"{stage.name}: expected neurons that fire in all layers but the last, got potentials"
        )
    if last and stage.pool != (1, 1):
        raise ValueError(f"{stage.name}: expected no pooling behind the last layer, got windows {stage.pool}")
    for decays in (stage.cell.decay, stage.cell.decay_s):
        if decays is not None and np.unique(decays).size > 1:
            raise ValueError(
                f"{stage.name}: expected one time constant for all neurons of a layer, got decays from "
                f"{decays.min():g} to {decays.max():g}; give the neurons numbers for tau, tau_m and tau_s"
            )
    most = stage.cell.levels * stage.pool[0] * stage.pool[1]
    if most > LARGEST_COUNT:
        raise ValueError(
            f"{stage.name}: expected levels and windows with counts up to {LARGEST_COUNT}, got {most:g}: levels="
            f"{stage.cell.levels:g} and windows {stage.pool}"
        )
    if stage.recurrent is not None and stage.neurons[1:] != (1, 1):
        raise ValueError(
            f"{stage.name}: expected recurrence of a layer without space axes, got {stage.neurons}"
        )
    (channels, height, _), (neurons, _, width) = stage.input, stage.neurons
    if max(channels * height, stage.input[2], neurons * width) > LARGEST_NUMBER:
        raise ValueError(
            f"{stage.name}: expected at most {LARGEST_NUMBER} inputs in a column and neurons in a row, got inputs "
            f"{stage.input} and neurons {stage.neurons}"
        )


def _check_sums(layer: IntegerLayer, most: int) -> None:
    """Raise ValueError unless sums over inputs that all count `most` fit in 32 bits."""
    parts = [most * layer.weight.double().abs().flatten(1).sum(1)]
    parts += [] if layer.recurrent is None else [layer.levels * layer.recurrent.double().abs().sum(1)]
    parts += [] if layer.bias is None else [layer.bias.double().abs()]
    largest = float(torch.stack(parts).sum(0).max())
    if largest > bounds(32)[1]:
        raise ValueError(
            f"{layer.name}: expected sums within 32 bits, got up to {largest:.3g} from inputs that count {most}, "
            "recurrence and bias in units of the weights; fewer inputs, larger weights or a smaller bias fit"
        )


def _in_fixed_point(stage: Stage, weights: Sequence[Tensor]) -> IntegerLayer:
    """A stage of neurons in fixed point with the same states, in units of 2^-12."""
    assert stage.cell is not None and stage.refractory is not None
    fraction = _fraction_of(stage, weights)
    size = 2.0 ** (fraction - _BITS)
    unit = torch.full((len(stage.weight),), size, dtype=torch.float64)
    layer = _layer(stage, [part / size for part in weights], unit, 8, "multiplier")
    drive = _whole(_channels(stage.cell.offset, len(unit)) * 2**_BITS)
    return replace(
        _at(layer, fraction, stage.cell.strict),
        drive=drive if bool(drive.any()) else None,
        refractory=int(stage.refractory),
        toward_zero=True,
    )


def _fraction_of(stage: Stage, weights: Sequence[Tensor]) -> int:
    """Bits of a state below the largest unit in which all weights are integers of 8 bits.

    Raises:
        ValueError: weights that are no multiples of a power of two; a bias or refractory time that fixed point lacks.
    """
    assert stage.refractory is not None
    if stage.bias is not None:
        raise ValueError(f"{stage.name}: expected weights without a bias before neurons in fixed point")
    if not stage.refractory <= _LONGEST_REFRACTORY:
        raise ValueError(
            f"{stage.name}: expected a refractory time up to {_LONGEST_REFRACTORY} steps, got {stage.refractory}"
        )
    units = torch.cat([weight.flatten() for weight in weights]) * 2.0**_BITS
    whole = units.round().long()
    # The lowest bit of any.
    together = int(np.bitwise_or.reduce(whole.numpy())) if len(whole) else 0
    lowest = together & -together
    fraction = max(lowest.bit_length() - 1, 0)
    fits = bool(((whole >= -128 << fraction) & (whole <= 127 << fraction)).all())
    if not fits or not torch.equal(units, whole.double()):
        raise ValueError(
            f"{stage.name}: expected weights of 8 bits in a unit of 2^-12 or more, as a layer of neurons in fixed "
            "point has them, over windows of 1, 2, 4 ... cells, got others; a layer behind windows of 4 cells that "
            "hardly fires wants weight_exponent=-10 or larger weights, as prepare_ sets them"
        )
    return fraction


def _layer(
    stage: Stage, integers: Sequence[Tensor], unit: Tensor, weight_bits: int, decay: Decay
) -> IntegerLayer:
    """A stage with integers for weights, its states wide and with bits to spare."""
    assert stage.cell is not None
    outputs = len(unit)
    weight, *recurrent = [part.to(torch.int8) for part in integers]
    leaks = [_leak(value, decay) for value in decay_numbers(stage.cell)]
    kept = {field.name: getattr(stage, field.name) for field in fields(Connections)}
    own = {
        "weight": weight,
        "bias": None if stage.bias is None else _whole(stage.bias / unit),
        "recurrent": recurrent[0] if recurrent else None,
    }
    return IntegerLayer(
        **kept | own,
        scale=unit if stage.cell.spikes else unit * _channels(stage.unit, outputs),
        threshold=None if stage.cell.fires_at is None else _channels(stage.cell.fires_at, outputs) / unit,
        reset=_reset(stage, unit),
        leak_m=leaks[0],
        leak_s=None if stage.cell.decay_s is None else leaks[1],
        fraction=_MEASURED,
        state_bits=32,
        subtracts=stage.cell.spikes and stage.cell.reset_value is None,
        weight_bits=weight_bits,
        levels=int(stage.cell.levels),
    )


def _reset(stage: Stage, unit: Tensor) -> Tensor | None:
    """Returns what a spike sets, or adds where it takes the threshold off, in units of the sums."""
    cell = stage.cell
    assert cell is not None
    if cell.threshold is None:
        return None
    value = -cell.threshold if cell.reset_value is None else cell.reset_value
    return _channels(value, len(unit)) / unit


def _channels(value: Array, channels: int) -> Tensor:
    return torch.from_numpy(np.broadcast_to(value, (channels,)).astype(np.float64))


def _whole(values: Tensor, bits: int = 32) -> Tensor:
    """The nearest integers of so many bits."""
    low, high = bounds(bits)
    return values.double().round().clamp(low, high).to(torch.int32 if bits <= 32 else torch.int64)


def _leak(leak: float, decay: Decay) -> int:
    if decay == "shift" and leak > 0:
        return 1 << int(min(max(round(LEAK_BITS + math.log2(leak)), 0), LEAK_BITS))
    return round(leak * (1 << LEAK_BITS))


def _calibrated(
    layer: IntegerLayer, strict: bool, before: Sequence[IntegerLayer], x: Tensor, state_bits: int
) -> IntegerLayer:
    """The layer with the bits below the point that its states' range on the data leaves room for."""
    # States of 48 bits hold all that sums of 32 bits add up to.
    measured = _at(layer, layer.fraction, strict, 48)
    net = IntegerNet([*before, measured])
    frames = net.reference(x, until=len(before) - 1) if before else net.frames(x)
    if not before and not bool(frames.any()):
        raise ValueError(
            f"x: expected inputs with events, to calibrate the states on, got zeros only, shape {tuple(x.shape)}"
        )
    largest = _largest_state(measured, frames) / 2**measured.fraction
    bits = state_bits if layer.threshold is not None else 32
    room = bounds(bits)[1] * _ROOM / max(largest, 1.0)
    # Sums are at most some 10^6 times a weight; more bits below the point would overflow the widest of states.
    fraction = min(max(math.floor(math.log2(room)), 0), 8)
    return _at(layer, fraction, strict, bits)


def _at(layer: IntegerLayer, fraction: int, strict: bool, state_bits: int = 32) -> IntegerLayer:
    """The layer with so many bits below the point: thresholds in whole units, those at which the float neuron fires."""

    def whole(value: Tensor) -> Tensor:
        units = value.double() * 2**fraction
        # A number that is whole up to rounding stays what it is.
        near = units.round()
        return torch.where((units - near).abs() < 1e-6 * near.abs().clamp(min=1), near, units)

    threshold, reset = layer.threshold, layer.reset
    if threshold is not None:
        least = whole(threshold)
        # A threshold one beyond the widest state is never reached.
        threshold = (least.floor() + 1 if strict else least.ceil()).clamp(bounds(32)[0], 2**31).long()
    return replace(
        layer,
        fraction=fraction,
        threshold=threshold,
        reset=None if reset is None else _whole(whole(reset), state_bits),
        state_bits=state_bits,
    )


def _largest_state(layer: IntegerLayer, frames: Tensor) -> float:
    """Largest size of a membrane or current on the data."""
    # A membrane begins where a spike sets it, and what lies beyond the threshold then saturates without a trace.
    sets = layer.reset is not None and not layer.subtracts
    most = layer.threshold if sets else None
    # The amount that several spikes take off has to fit as well: the first may come at half the threshold.
    start = layer.reset if sets or layer.levels > 1 else torch.zeros(1)
    assert start is not None
    largest = float(start.abs().max())
    for current, membrane, _ in steps_of(layer, frames):
        kept = membrane if most is None else membrane.clamp(max=most.view(-1, 1, 1))
        largest = max(largest, float(current.abs().max()), float(kept.abs().max()))
    return largest
