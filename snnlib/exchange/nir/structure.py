"""The structure of a NIR graph: nested graphs opened, the order of its nodes, the edges that close a cycle, shapes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from snnlib.checks import conv_outputs
from snnlib.exchange.nir.reading import NEURONS, kind_of
from snnlib.exchange.structure.cells import array, pair

Shape = tuple[int, ...]

KINDS = (
    *NEURONS,
    *("Input", "Output", "Affine", "Linear", "Scale", "Conv1d", "Conv2d", "SumPool2d", "AvgPool2d"),
    *("Flatten", "Delay"),
)


@dataclass(frozen=True)
class Structure:
    """A graph without nesting.

    Args:
        nodes: by name, each after the nodes that it reads, other than by edges that close a cycle.
        sources: names of the nodes that each node adds up.
        back: edges (source, target) that bring the value of the step before.
        loops: the nodes in their order, those of a cycle together; others alone.
        shapes: shape of each node's output, without time and batch.
        input, outputs: the names of these nodes.
    """

    nodes: dict[str, Any]
    sources: dict[str, tuple[str, ...]]
    back: frozenset[tuple[str, str]]
    loops: tuple[tuple[str, ...], ...]
    shapes: dict[str, Shape]
    input: str
    outputs: tuple[str, ...]


def structure_of(graph: Any) -> Structure:
    """The graph's structure.

    Raises:
        ValueError: no or several inputs, no output, an edge to a node that is missing, an unknown node, or shapes that
            do not fit, or an output that the input does not reach; the message names the node.
    """
    nodes, edges = _opened(graph)
    names = [name for name, node in nodes.items() if kind_of(node) == "Input"]
    outputs = tuple(name for name, node in nodes.items() if kind_of(node) == "Output")
    if len(names) != 1 or not outputs:
        raise ValueError(
            f"graph: expected one Input and at least one Output, got {len(names)} and {len(outputs)}"
        )
    for name, node in nodes.items():
        if kind_of(node) not in KINDS:
            raise ValueError(f"{name}: expected a node of NIR, got {kind_of(node)}")
    for edge in edges:
        for end in edge:
            if end not in nodes:
                raise ValueError(f"edges: expected names of nodes, got {end!r} in {edge}")
    if len(set(edges)) != len(edges):
        raise ValueError("edges: expected each edge once, got one twice")
    loops, back = _ordered(names[0], nodes, edges)
    order = [name for loop in loops for name in loop]
    sources = {name: tuple(a for a, b in edges if b == name and a in order) for name in order}
    nodes = {name: nodes[name] for name in order}
    try:
        shapes = _shapes(nodes, sources, back, without_batch=False)
    except ValueError as error:
        try:
            # Exporters that run the net on a sample may write its batch as the input's first axis.
            shapes = _shapes(nodes, sources, back, without_batch=True)
        except ValueError:
            raise error from None
    for name in outputs:
        if name not in order:
            raise ValueError(f"{name}: expected edges that lead to it from the Input, got none")
    return Structure(nodes, sources, frozenset(back), loops, shapes, names[0], outputs)


def _opened(graph: Any, prefix: str = "") -> tuple[dict[str, Any], list[tuple[str, str]]]:
    """Nodes and edges, with those of nested graphs in the place of these."""
    nodes: dict[str, Any] = {}
    edges = [(prefix + a, prefix + b) for a, b in graph.edges]
    for key, node in graph.nodes.items():
        name = prefix + key
        if kind_of(node) != "NIRGraph":
            nodes[name] = node
            continue
        inner, inner_edges = _opened(node, f"{name}.")
        entry = [n for n, each in inner.items() if kind_of(each) == "Input"]
        leave = [n for n, each in inner.items() if kind_of(each) == "Output"]
        if len(entry) != 1 or len(leave) != 1:
            raise ValueError(f"{name}: expected a nested graph with one Input and one Output")
        reads = [b for a, b in inner_edges if a == entry[0]]
        gives = [a for a, b in inner_edges if b == leave[0]]
        nodes |= {n: each for n, each in inner.items() if n not in (entry[0], leave[0])}
        edges += [edge for edge in inner_edges if entry[0] not in edge and leave[0] not in edge]
        edges = [
            (a, b)
            for old in edges
            for a in (gives if old[0] == name else [old[0]])
            for b in (reads if old[1] == name else [old[1]])
        ]
    return nodes, edges


def _ordered(
    first: str, nodes: dict[str, Any], edges: Sequence[tuple[str, str]]
) -> tuple[tuple[tuple[str, ...], ...], set[tuple[str, str]]]:
    """Nodes that the input reaches, sources first, and the edges that lead back to a node on the path to them.

    Nodes of a cycle stand together, as they have to be computed together.
    """
    order: list[str] = []
    back: set[tuple[str, str]] = set()
    on_path: dict[str, bool] = {}
    targets = {name: [b for a, b in edges if a == name] for name in nodes}
    # Depth first, without recursion, as nets may be deep.
    stack = [(first, iter(targets[first]))]
    on_path[first] = True
    while stack:
        name, rest = stack[-1]
        following = next(rest, None)
        if following is None:
            stack.pop()
            on_path[name] = False
            order.append(name)
        elif following not in on_path:
            on_path[following] = True
            stack.append((following, iter(targets[following])))
        elif on_path[following]:
            back.add((name, following))
    order.reverse()
    # Nodes that reach each other are found backwards from the first of them; parts before it are found already.
    sources = {name: [a for a, b in edges if b == name] for name in order}
    loops: list[tuple[str, ...]] = []
    left = set(order)
    for name in order:
        part, reading = set[str](), [name]
        while reading:
            node = reading.pop()
            if node in left:
                left.remove(node)
                part.add(node)
                reading += sources[node]
        if part:
            loops.append(tuple(other for other in order if other in part))
    return tuple(loops), back


def _shapes(
    nodes: dict[str, Any],
    sources: dict[str, tuple[str, ...]],
    back: set[tuple[str, str]],
    without_batch: bool,
) -> dict[str, Shape]:
    shapes: dict[str, Shape] = {}
    for name, node in nodes.items():
        if kind_of(node) == "Input":
            shape = tuple(int(size) for size in np.asarray(node.input_type["input"]).reshape(-1))
            shapes[name] = shape[1:] if without_batch else shape
            continue
        known = {source: shapes[source] for source in sources[name] if (source, name) not in back}
        if not known:
            raise ValueError(f"{name}: expected an input, got none but those of the step before")
        if len(set(known.values())) != 1:
            raise ValueError(f"{name}: expected inputs of one shape, got {known}")
        shapes[name] = output_shape(name, node, next(iter(known.values())))
    for source, name in back:
        first = next(s for s in sources[name] if (s, name) not in back)
        if shapes[source] != shapes[first]:
            raise ValueError(
                f"{name}: expected inputs of one shape, got {shapes[first]} and {shapes[source]} from {source}"
            )
    return shapes


def output_shape(name: str, node: Any, shape: Shape) -> Shape:
    """Shape of a node's output for one of its input.

    Raises:
        ValueError: the input does not fit.
    """
    kind = kind_of(node)
    if kind in ("Affine", "Linear"):
        weight = array(node.weight)
        if weight.ndim != 2 or shape != (weight.shape[1],):
            raise ValueError(f"{name}: expected inputs {weight.shape[1:]}, got shape {shape}")
        return (weight.shape[0],)
    if kind in ("Conv1d", "Conv2d"):
        return _conv_shape(name, node, shape)
    if kind in ("SumPool2d", "AvgPool2d"):
        if len(shape) != 3:
            raise ValueError(f"{name}: expected inputs [C, H, W], got shape {shape}")
        kernel, stride, padding = (
            pair(getattr(node, key), 2) for key in ("kernel_size", "stride", "padding")
        )
        return (shape[0], *conv_outputs(name, shape[1:], kernel, stride, padding, (1, 1)))
    if kind == "Flatten":
        start, end = int(node.start_dim) % len(shape), int(node.end_dim) % len(shape)
        return (*shape[:start], math.prod(shape[start : end + 1]), *shape[end + 1 :])
    if kind in (*NEURONS, "Scale", "Delay"):
        key = {"Scale": "scale", "Delay": "delay", "Threshold": "threshold"}.get(kind, "r")
        own = array(getattr(node, key)).shape
        # A number for all neurons may be an array of no or one entry.
        if math.prod(own) != 1 and own != shape:
            raise ValueError(f"{name}: expected inputs {own}, as its constants are, got shape {shape}")
    return shape


def _conv_shape(name: str, node: Any, shape: Shape) -> Shape:
    weight = array(node.weight)
    axes = weight.ndim - 2
    channels = weight.shape[1] * int(node.groups)
    if len(shape) != axes + 1 or shape[0] != channels:
        raise ValueError(f"{name}: expected inputs of {channels} channels and {axes} axes, got shape {shape}")
    stride, dilation = (pair(getattr(node, key), axes) for key in ("stride", "dilation"))
    mode = padding_of(node, axes)
    if mode == "same":
        return (weight.shape[0], *shape[1:])
    assert not isinstance(mode, str)
    return (weight.shape[0], *conv_outputs(name, shape[1:], weight.shape[2:], stride, mode, dilation))


def padding_of(node: Any, axes: int) -> Shape | Literal["same"]:
    """Padding of a convolution: numbers per axis, or "same"."""
    value = node.padding
    if isinstance(value, bytes | np.bytes_):
        value = value.decode()
    if isinstance(value, np.ndarray) and value.dtype.kind in "SUO":
        value = str(value.item().decode() if isinstance(value.item(), bytes) else value.item())
    if isinstance(value, str):
        return "same" if value == "same" else (0,) * axes
    return pair(value, axes)
