"""Costs of a linear map and of a block beside torch's modules, for the batch that `fuse_(net, x)` is given."""

from __future__ import annotations

from typing import NamedTuple, cast

import torch
from torch import Tensor

from snnlib.backends import algorithm, dense
from snnlib.backends.geometry import geometry
from snnlib.functional.operators import Convolution, FullyConnected
from snnlib.nn.fusion.linear_map import LinearMap, operator_of

# Nanoseconds of the host that an event-driven map takes more than torch's, forward and backward, and a block more than
# its map with torch's batch norm. A neuron and step saves this time in a block, whose currents are read fewer times.
_MAP, _BLOCK, _SAVED = 200e3, 120e3, 0.6
# Nanoseconds of a weight in addition: in a training step weights come from memory, unlike in the loops that the costs
# were fitted in, and torch in its own layout orders them faster.
_WEIGHT = 3.0


class Gain(NamedTuple):
    """Nanoseconds of a training step that a map or a block saves; negative where it takes longer."""

    as_map: float
    as_block: float


def gain_of(linear: LinearMap, x: Tensor) -> Gain:
    """Returns what an event-driven map and a block gain on an input `[T, N, C, ...]`, by the cost model."""
    operator = cast(Convolution | FullyConnected, operator_of(linear))
    whole = operator.unfolded(x, linear.weight.detach())
    own = whole.reached()
    before, g = (geometry(conv.x, conv.weight, conv.options) for conv in (whole, own))
    by_torch = sum(dense.costs(before, of)["torch"] for of in dense.PASSES)
    share = algorithm.density(own.x)
    weight_costs = [algorithm.tap_cost(g, share), dense.cheapest(g, "weight").cost]
    if not g.unsupported:
        weight_costs += [algorithm.weight_costs(g, share, 0)["inputs"]]
    ours = min(algorithm.costs(g, share, neurons=False)) + dense.cheapest(g, "input").cost + min(weight_costs)
    as_map = by_torch - ours - _WEIGHT * whole.weight.numel() - _MAP
    return Gain(as_map, as_map + g.neuron_steps * _SAVED - _BLOCK)


def takes_time(x: Tensor) -> bool:
    """Returns whether the cost model holds for an input: a float32 sequence on a CPU."""
    return x.device.type == "cpu" and x.dtype == torch.float32
