"""An interpreter of NIR graphs, step by step in float64: slow, and obviously what it should be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from snnlib.exchange.nir.reading import NEURONS, cell_of, delay_steps, kind_of, sinabs_cell
from snnlib.exchange.nir.structure import padding_of, pair, structure_of
from snnlib.exchange.structure.cells import Array, Cell, array

# Maps the values of a step `[N, ...]`, and keeps its own states.
Unit = Callable[[Array], Array]


def interpret(
    graph: Any, x: Array, dt: float = 1.0, *, discretisation: str = "euler", reading: str = "nir"
) -> dict[str, Array]:
    """Outputs `[T, N, ...]` of every node of a graph over a sequence, as `from_nir` documents its reading."""
    structure = structure_of(graph)
    units: dict[str, Unit] = {}
    for name, node in structure.nodes.items():
        if kind_of(node) in NEURONS:
            cell = sinabs_cell(name, node) if reading == "sinabs" else cell_of(name, node, dt, discretisation)  # type: ignore[arg-type]
            units[name] = neurons(cell)
        elif kind_of(node) == "Delay":
            units[name] = delay(delay_steps(name, node, dt))
        else:
            units[name] = linear_map(node)
    before = {source: np.zeros((x.shape[1], *structure.shapes[source])) for source, _ in structure.back}
    found: dict[str, list[Array]] = {name: [] for name in units}
    for row in x.astype(np.float64):
        now: dict[str, Array] = {}
        for name, unit in units.items():
            read = [
                before[source] if (source, name) in structure.back else now[source]
                for source in structure.sources[name]
            ]
            now[name] = unit(np.asarray(sum(read)) if read else row)
            found[name].append(now[name])
        before = {source: now[source] for source in before}
    return {name: np.stack(values) for name, values in found.items()}


def neurons(c: Cell) -> Unit:
    """The equations at the head of `snnlib/exchange/structure/cells.py`."""
    v: Array = c.start
    i: Array = np.zeros(())

    def step(x: Array) -> Array:
        nonlocal v, i
        i = x if c.decay_s is None else c.decay_s * i + c.gain_s * x
        h = c.decay * v + c.gain * i + c.offset
        if c.threshold is None:
            v = h
            return h
        z = (h > c.threshold if c.strict else h >= c.threshold).astype(np.float64)
        if c.levels > 1:
            z = z * np.clip(np.floor(h / c.threshold), 1, c.levels)
        v = h - z * c.threshold if c.reset_value is None else np.where(z > 0, c.reset_value, h)
        v = v if c.floor is None else np.maximum(v, c.floor)
        return z

    return step


def delay(steps: Array) -> Unit:
    """`y[t] = x[t - steps]`, with a number of steps per element."""
    past: list[Array] = []

    def step(x: Array) -> Array:
        past.insert(0, x)
        past.extend([np.zeros_like(x)] * (int(steps.max(initial=0)) + 1 - len(past)))
        at = np.broadcast_to(steps.astype(np.int64), x.shape)[None]
        found: Array = np.take_along_axis(np.stack(past), at, axis=0)[0]
        return found

    return step


def linear_map(node: Any) -> Unit:
    """A node without a state."""
    kind = kind_of(node)
    if kind in ("Input", "Output"):
        return lambda x: x
    if kind == "Scale":
        return lambda x: x * array(node.scale)
    if kind in ("Affine", "Linear"):
        return lambda x: x @ array(node.weight).T + array(getattr(node, "bias", 0.0))
    if kind == "Flatten":
        return lambda x: flattened(x, int(node.start_dim), int(node.end_dim))
    if kind in ("Conv1d", "Conv2d"):
        return lambda x: convolved(x, node)
    kernel, stride, padding = (pair(getattr(node, key), 2) for key in ("kernel_size", "stride", "padding"))
    divisor = 1 if kind == "SumPool2d" else None
    return lambda x: F.avg_pool2d(
        torch.from_numpy(x), kernel, stride, padding, divisor_override=divisor
    ).numpy()


def flattened(x: Array, first: int, last: int) -> Array:
    """Axes behind the batch as one."""
    axes = x.ndim - 1
    start, end = first % axes + 1, last % axes + 1
    return x.reshape(*x.shape[:start], -1, *x.shape[end + 1 :])


def convolved(x: Array, node: Any) -> Array:
    """A convolution node on values `[N, C, ...]`."""
    weight, bias = (torch.from_numpy(array(value)) for value in (node.weight, node.bias))
    axes = weight.dim() - 2
    stride, dilation = pair(node.stride, axes), pair(node.dilation, axes)
    convolve = F.conv1d if axes == 1 else F.conv2d
    options = (stride, padding_of(node, axes), dilation, int(node.groups))
    found: Array = convolve(torch.from_numpy(x), weight, bias, *options).numpy()
    return found
