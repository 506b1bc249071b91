"""Choose the backward algorithm of a convolution: driven by input events, by output spikes, or dense.

Costs are nanoseconds of one core with AVX-512 (see docs/measurements/speed.md) and leave out what all algorithms share.
Like the forward pass's, the choice depends on data and shapes only, and `use_convolution` sets it.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

from torch import Tensor

from snnlib.backends import algorithm
from snnlib.backends.geometry import GROUP, Geometry, block_channels, scatters_back

# A vector of 16 channels: in a dense convolution, of the window that an input event sees, of the patch of traces that a
# spike samples, and of the patch of inputs that it reaches by scatter or gather.
_DENSE, _WINDOW, _PICK, _SCATTER, _GATHER = 0.28, 0.45, 1.05, 0.65, 0.57
# The weight gradient tap by tap: an input event and a vector of its row of weights; a number of the rows of inputs and
# of signals, which are read once a tap; a weight, whose gradient is transposed.
_TAP_EVENT, _OUTER, _ROW, _TRANSPOSE = 4.0, 0.5, 0.35, 2.4
# In a fully connected layer, whose weights fill the first cache: an entry, and a vector of the traces that it samples
# or of the row of weights that it adds to the inputs' field.
_ENTRY, _PICK_FAR, _GATHER_FAR = 15.0, 2.2, 1.0
# Weights of one input channel and kernel row that are taken into registers, with each of their vectors; a spike.
_SUMS, _SUMS_VECTOR, _SPIKE = 5.0, 0.8, 6.0
# A neuron and step of a dense signal, and an input that is multiplied by its field.
_SIGNAL, _MULTIPLY = 0.7, 1.0
# Below this cost there is nothing to gain from a dense convolution.
_SMALL = 1e6


class BackwardAlgorithms(NamedTuple):
    """The algorithm of each gradient: "taps" goes by input events too, all under one tap of the kernel at a time."""

    weight: Literal["inputs", "taps", "spikes", "dense"]
    input: Literal["spikes", "dense"]


def windows_are_rows(g: Geometry) -> bool:
    """Returns whether the outputs that an input event sees under one kernel row are several neighbours."""
    inside = g.padding_h < g.kernel_h and g.padding_w < g.kernel_w
    return g.stride_h == g.stride_w == 1 and inside and (g.width > 1 or g.kernel_w == 1)


def _inner(x: Tensor, g: Geometry) -> Tensor:
    """Pixels that most kernels see: where events cost most, and images are rarely as dense at their edges."""
    edge_h, edge_w = g.kernel_h - 1 - g.padding_h, g.kernel_w - 1 - g.padding_w
    if 2 * edge_h >= g.in_height or 2 * edge_w >= g.in_width or edge_h < 0 or edge_w < 0:
        return x
    return x[..., edge_h : g.in_height - edge_h, edge_w : g.in_width - edge_w]


def _pixels(g: Geometry) -> int:
    return g.steps * g.batch * g.height * g.width


def weight_costs(g: Geometry, share: float, spikes: int) -> dict[str, float]:
    """Cost of each algorithm for inputs of which this share is not zero."""
    frames, block = g.steps * g.batch, block_channels(g)
    window = _pixels(g) * g.kernel_h * g.kernel_w * g.in_channels * math.ceil(g.channels / GROUP)
    dense = _pixels(g) * g.taps * g.in_channels * math.ceil(g.channels / GROUP)
    patch = g.kernel_h * math.ceil(g.kernel_w * g.in_channels / GROUP)
    sums = frames * g.bands(1)[1] * math.ceil(g.channels / block) * g.in_channels * g.kernel_h
    sum_cost = _SUMS + _SUMS_VECTOR * g.kernel_w * block / GROUP
    return {
        "inputs": share * window * _WINDOW + sums * sum_cost if windows_are_rows(g) else math.inf,
        "spikes": spikes * (_SPIKE + _PICK * patch),
        "dense": dense * _DENSE + g.neuron_steps * _SIGNAL,
    }


def input_costs(g: Geometry, spikes: int) -> dict[str, float]:
    """Cost of each algorithm."""
    vectors = math.ceil(g.in_channels / GROUP)
    if scatters_back(g):
        patch = _SCATTER * g.kernel_h * math.ceil(g.kernel_w * g.in_channels / GROUP)
    else:
        patch = _GATHER * g.kernel_h * g.kernel_w * vectors
    inputs = g.steps * g.batch * g.in_height * g.in_width * g.in_channels
    return {
        "spikes": spikes * (_SPIKE + patch),
        "dense": g.neuron_steps * (g.taps * vectors * _DENSE + _SIGNAL) + inputs * _MULTIPLY,
    }


def _cheapest(costs: dict[str, float]) -> str:
    by_events = min((name for name in costs if name != "dense"), key=lambda name: costs[name])
    if algorithm.chosen() == "events" or costs[by_events] < _SMALL:
        return by_events
    return min(costs, key=lambda name: costs[name])


def decide(
    x: Tensor, g: Geometry, spikes: int, need_weight: bool = True, from_state: bool = False
) -> BackwardAlgorithms:
    """The algorithms of one call, whose forward pass gave this number of spikes.

    Only the choice for the weight gradient looks at the sequence; where that gradient is not needed it is "spikes".
    A gradient that comes back to the state after the last step (`from_state`) acts like a spike of every neuron there.
    """
    if from_state:
        spikes += g.neuron_steps // max(g.steps, 1)
    if g.unsupported or algorithm.chosen() == "dense":
        return BackwardAlgorithms("dense", "dense")
    weight = _cheapest(weight_costs(g, algorithm.density(_inner(x, g)), spikes)) if need_weight else "spikes"
    return BackwardAlgorithms(weight, _cheapest(input_costs(g, spikes)))  # type: ignore[arg-type]


def tap_cost(g: Geometry, share: float) -> float:
    """Cost of the weight gradient tap by tap, for a dense signal and inputs of which this share is not zero."""
    inputs, pixels = g.steps * g.batch * g.in_height * g.in_width * g.in_channels, _pixels(g)
    events = share * inputs * (_TAP_EVENT + math.ceil(g.channels / GROUP) * _OUTER)
    rows = pixels * (g.in_channels + g.channels) * _ROW
    return g.taps * (events + rows + g.in_channels * g.channels * _TRANSPOSE)


def _matrix_costs(g: Geometry, share: float) -> dict[str, float]:
    """Costs of the weight gradient of a fully connected layer with a dense signal."""
    inputs, vectors = g.steps * g.batch * g.in_channels, math.ceil(g.channels / GROUP)
    return {"taps": tap_cost(g, share), "dense": inputs * vectors * _DENSE}


def decide_for_entries(
    x: Tensor, g: Geometry, entries: int, need_weight: bool = True, from_state: bool = False
) -> BackwardAlgorithms:
    """`decide` for neurons with a surrogate, whose entries take the place of the spikes.

    A fully connected layer's weight gradient by input events is that of a convolution of one tap.
    """
    if not algorithm.is_matrix(g) or algorithm.chosen() == "dense":
        return decide(x, g, entries, need_weight, from_state)
    if from_state:
        entries += g.batch * g.channels
    vectors, signal = math.ceil(g.in_channels / GROUP), g.neuron_steps * _SIGNAL
    weight = "spikes"
    if need_weight:
        costs = {name: cost + signal for name, cost in _matrix_costs(g, algorithm.density(x)).items()}
        weight = _cheapest({**costs, "spikes": entries * (_ENTRY + vectors * _PICK_FAR)})
    field = {
        "spikes": entries * (_ENTRY + vectors * _GATHER_FAR),
        "dense": g.neuron_steps * vectors * _DENSE + signal * (weight == "spikes"),
    }
    return BackwardAlgorithms(weight, _cheapest(field))  # type: ignore[arg-type]


def decide_for_signal(x: Tensor, g: Geometry) -> Literal["inputs", "taps", "dense"]:
    """The weight gradient's algorithm where the signal is dense: by input events or densely."""
    if g.unsupported or algorithm.chosen() == "dense":
        return "dense"
    if algorithm.is_matrix(g):
        return _cheapest(_matrix_costs(g, algorithm.density(x)))  # type: ignore[return-value]
    share = algorithm.density(_inner(x, g))
    costs = {**weight_costs(g, share, 0), "taps": tap_cost(g, share)}
    del costs["spikes"]
    return _cheapest(costs)  # type: ignore[return-value]
