"""A converted loop over time as nodes and edges: what the calls of one step hand on are the values of the graph."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from torch import Tensor

from snnlib.exchange.folded import FoldedNet
from snnlib.exchange.loop import Lane, Slice, Stacked
from snnlib.exchange.trace import Call
from snnlib.structure.unsupported import Unsupported

if TYPE_CHECKING:
    from snnlib.exchange.nir.walk import Value, Walk

_ADDITIONS = ("add", "__add__", "__radd__", "__iadd__")


def walk_loop(walk: Walk, path: str, net: FoldedNet, value: Value) -> Value:
    """The calls of a step, one after the other.

    Raises:
        Unsupported: a call that no node makes, or an output that is not one sequence.
    """
    if len(net.inputs) != 1:
        raise Unsupported("a net with several inputs has no counterpart")
    readers = Counter(leaf.call for call in net.loop.step for leaf in call.args if isinstance(leaf, Lane))
    lanes: dict[int, Value] = {}
    for number, call in enumerate(net.loop.step):
        values = [_value(leaf, value, lanes, call) for leaf in call.args if isinstance(leaf, Slice | Lane)]
        name = f"{path}.{call.name}".lstrip(".")
        if isinstance(call.target, str) and values:
            made = walk.module(name, net.leaf(call.target), values[0], 2)
        else:
            made = _function(walk, f"{name}_{number}", call, values)
        lanes[number] = replace(made, shared=readers[number] > 1)
    return lanes[net.loop.output[sequence_of(net)].lane.call]


def sequence_of(net: FoldedNet) -> int:
    """Which leaf of an output is the sequence of spikes; potentials, sums and single steps may stand beside it."""
    found = {
        leaf.lane.call: number
        for number, leaf in enumerate(net.loop.output)
        if isinstance(leaf, Stacked) and leaf.lane.out == 0
    }
    if len(found) != 1:
        raise Unsupported(f"an output of {len(found)} sequences of spikes has no counterpart")
    return next(iter(found.values()))


def in_time(net: FoldedNet, leaves: list[Any]) -> Tensor:
    """That sequence `[T, N, ...]` among the leaves of an output."""
    number = sequence_of(net)
    sequence: Tensor = leaves[number].movedim(net.loop.output[number].dim, 0)
    return sequence


def _value(leaf: Slice | Lane, value: Value, lanes: dict[int, Value], call: Call) -> Value:
    if isinstance(leaf, Slice):
        return value
    if leaf.out != 0:
        raise Unsupported(f"the state of a neuron that {call.name} reads has no counterpart")
    return lanes[leaf.call]


def _function(walk: Walk, name: str, call: Call, values: list[Value]) -> Value:
    if call.name in _ADDITIONS and len(values) == len(call.args) == 2:
        return walk.sum(name, *values)
    plain = [leaf for leaf in call.args if not isinstance(leaf, Slice | Lane)]
    if len(values) == 1 and call.name == "flatten" and plain in ([1], [1, -1]):
        return walk.flatten(name.replace(".", "_"), values[0], 1, -1, 1)
    # The size of the batch, and all else.
    if len(values) == 1 and call.name in ("view", "reshape") and len(plain) == 2 and plain[1] == -1:
        return walk.flatten(name.replace(".", "_"), values[0], 1, -1, 1)
    raise Unsupported(f"the call of {call.name} in its loop has no counterpart")
