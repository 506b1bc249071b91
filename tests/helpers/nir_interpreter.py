"""An interpreter of NIR graphs in plain numpy, step by step: slow, and obviously what it should be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from snnlib.exchange.nir.reading import NEURONS, cell_of, delay_steps, kind_of, sinabs_cell
from snnlib.exchange.nir.structure import padding_of, pair, structure_of
from snnlib.structure.cells import Array, Cell, array

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
    for row in x:
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
    """The equations at the head of `snnlib/structure/cells.py`."""
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
        if c.max_spikes > 1:
            z = z * np.clip(np.floor(h / c.threshold), 1, c.max_spikes)
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
    divisor = float(np.prod(kernel)) if kind == "AvgPool2d" else 1.0
    margins = [(size, size) for size in padding]
    return lambda x: windows(x, kernel, stride, margins, (1, 1)).sum((-2, -1)) / divisor


def flattened(x: Array, first: int, last: int) -> Array:
    """Axes behind the batch as one."""
    axes = x.ndim - 1
    start, end = first % axes + 1, last % axes + 1
    return x.reshape(*x.shape[:start], -1, *x.shape[end + 1 :])


def windows(
    x: Array,
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    margins: list[tuple[int, int]],
    dilation: tuple[int, ...],
) -> Array:
    """All windows of the last axes: `[..., windows of each axis, kernel of each axis]`."""
    axes = len(kernel)
    x = np.pad(x, [(0, 0)] * (x.ndim - axes) + margins)
    extents = tuple(d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True))
    view = np.lib.stride_tricks.sliding_window_view(x, extents, axis=tuple(range(-axes, 0)))
    cut: list[Any] = [slice(None, None, s) for s in stride] + [slice(None, None, d) for d in dilation]
    found: Array = view[(..., *cut)]
    return found


def convolved(x: Array, node: Any) -> Array:
    """A convolution node on values `[N, C, ...]`."""
    weight = array(node.weight)
    axes, groups = weight.ndim - 2, int(node.groups)
    dilation, padding = pair(node.dilation, axes), padding_of(node, axes)
    if padding == "same":
        # The odd zero of an even extent goes to the end.
        totals = [d * (k - 1) for d, k in zip(dilation, weight.shape[2:], strict=True)]
        margins = [(total // 2, total - total // 2) for total in totals]
    else:
        margins = [(int(size), int(size)) for size in padding]
    view = windows(x, weight.shape[2:], pair(node.stride, axes), margins, dilation)
    # [N, groups, C / groups, windows..., kernel...] with [groups, O / groups, C / groups, kernel...]
    view = view.reshape(len(x), groups, -1, *view.shape[2:])
    by_group = weight.reshape(groups, -1, *weight.shape[1:])
    space, taps = "xyz"[:axes], "abc"[:axes]
    out = np.einsum(f"ngc{space}{taps},goc{taps}->ngo{space}", view, by_group, optimize=True)
    added: Array = out.reshape(len(x), weight.shape[0], *out.shape[3:]) + array(node.bias).reshape(
        -1, *[1] * axes
    )
    return added
