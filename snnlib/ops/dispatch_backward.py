"""What the gradients of an event-driven convolution go by: events of the input, output spikes, or dense signals.

Costs are nanoseconds of one core with AVX-512 (see docs/performance.md) and leave out what all ways share. Like the
forward pass's, the choice depends on data and shapes only.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

from torch import Tensor

from snnlib.ops.dispatch import density
from snnlib.ops.geometry import GROUP, Geometry

# A vector of 16 channels: of the window that an input event sees, and of the patch of traces that a spike picks.
_WINDOW, _PATCH = 0.6, 1.05
# Weights of one input channel and kernel row that are taken into registers, with each of their vectors; a spike.
_SUMS, _SUMS_VECTOR, _SPIKE = 10.0, 0.8, 6.0


class BackwardPaths(NamedTuple):
    """What each gradient goes by."""

    weight: Literal["inputs", "spikes"]


def block_channels(g: Geometry) -> int:
    """Output channels that the weight gradient by inputs deals with at a time."""
    return 2 * GROUP if math.ceil(g.channels / GROUP) % 2 == 0 else GROUP


def weight_costs(g: Geometry, share: float, spikes: int) -> tuple[float, float]:
    """(by inputs, by spikes) for inputs of which this share is not zero."""
    frames, block = g.steps * g.batch, block_channels(g)
    events = share * frames * g.height * g.width * g.in_channels
    windows = events * g.kernel_h * g.kernel_w * math.ceil(g.channels / GROUP)
    sums = frames * g.bands(1)[1] * math.ceil(g.channels / block) * g.in_channels * g.kernel_h
    by_inputs = windows * _WINDOW + sums * (_SUMS + _SUMS_VECTOR * g.kernel_w * block / GROUP)
    patch = g.kernel_h * math.ceil(g.kernel_w * g.in_channels / GROUP)
    return by_inputs, spikes * (_SPIKE + _PATCH * patch)


def windows_are_rows(g: Geometry) -> bool:
    """Whether the outputs that an input event sees under one kernel row lie next to each other."""
    return g.stride_h == g.stride_w == 1 and g.padding_h < g.kernel_h and g.padding_w < g.kernel_w


def decide(x: Tensor, g: Geometry, spikes: int) -> BackwardPaths:
    """The paths of one call, whose forward pass gave this number of spikes."""
    if not windows_are_rows(g):
        return BackwardPaths("spikes")
    by_inputs, by_spikes = weight_costs(g, density(x), spikes)
    return BackwardPaths("inputs" if by_inputs < by_spikes else "spikes")
