"""A reference interpreter of NIR graphs in plain numpy: slow, and obviously what it should be."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from snnlib.exchange.nir.reading import NEURONS, Discretisation, cell_of, check_dt, kind_of
from snnlib.exchange.nir.structure import Structure, padding_of, pair, structure_of
from snnlib.structure.cells import Array, Cell, array

# Longer than any sequence.
_MOST_STEPS = 2**31

# Values of a step of a batch `[N, ...]`.
Map = Callable[[Array], Array]


@dataclass(frozen=True)
class Shift:
    """A delay: `y[t] = x[t - steps]`, with a number of steps per element."""

    steps: Array

    def initial(self, shape: tuple[int, ...]) -> list[Array]:
        """The inputs of the last steps, the newest first."""
        return [np.zeros(shape) for _ in range(int(self.steps.max(initial=0)))]

    def step(self, x: Array, states: list[Array]) -> tuple[Array, list[Array]]:
        """The delayed value of a step, and the inputs to keep."""
        states = [x, *states]
        y = np.take_along_axis(
            np.stack(states), np.broadcast_to(self.steps.astype(np.int64), x.shape)[None], axis=0
        )
        return y[0], states[:-1]


# What a node does in discrete time.
Unit = Cell | Shift | Map
# From a node's name and the node, its output shape known: the unit that a reader of the graph makes of it.
Reader = Callable[[str, Any], Unit]


def reference_reader(dt: float, discretisation: Discretisation = "euler") -> Reader:
    """NIR's own meaning at a step of `dt` seconds."""
    check_dt(dt)

    def read(name: str, node: Any) -> Unit:
        kind = kind_of(node)
        if kind in NEURONS:
            return cell_of(name, node, dt, discretisation)
        if kind == "Delay":
            return Shift(delay_steps(name, node, dt))
        return linear_map(node)

    return read


def delay_steps(name: str, node: Any, dt: float) -> Array:
    """A delay in steps.

    Raises:
        ValueError: it is negative or infinite, or no whole number of steps.
    """
    steps = array(node.delay) / dt
    if bool(np.any(steps >= _MOST_STEPS)):
        raise ValueError(
            f"{name}: expected delays below {_MOST_STEPS} steps of dt = {dt:g} s, got {steps.max():g}"
        )
    rounded = np.rint(steps)
    if bool(np.any(steps < 0)) or not bool(np.allclose(steps, rounded, rtol=0, atol=1e-6)):
        odd = steps.flat[int(np.argmax(np.abs(steps - rounded)))]
        raise ValueError(f"{name}: expected delays of whole steps of dt = {dt:g} s, got {odd:g} steps")
    return rounded


def linear_map(node: Any, dtype: type = np.float64) -> Map:
    """A node without a state, on values `[N, ...]`."""
    kind = kind_of(node)
    if kind in ("Input", "Output"):
        return lambda x: x
    if kind == "Scale":
        scale: Array = array(node.scale).astype(dtype)
        return lambda x: x * scale
    if kind in ("Affine", "Linear"):
        weight: Array = array(node.weight).astype(dtype)
        bias: Array = array(getattr(node, "bias", 0.0)).astype(dtype)
        return lambda x: x.astype(dtype) @ weight.T + bias
    if kind == "Flatten":
        first, last = int(node.start_dim), int(node.end_dim)
        return lambda x: _flattened(x, first, last)
    if kind in ("Conv1d", "Conv2d"):
        return lambda x: convolved(x.astype(dtype), node, dtype)
    kernel, stride, padding = (pair(getattr(node, key), 2) for key in ("kernel_size", "stride", "padding"))
    divisor = float(np.prod(kernel)) if kind == "AvgPool2d" else 1.0
    return lambda x: windows(x.astype(dtype), kernel, stride, padding, (1, 1)).sum((-2, -1)) / dtype(divisor)


def _flattened(x: Array, first: int, last: int) -> Array:
    axes = x.ndim - 1
    start, end = first % axes + 1, last % axes + 1
    return x.reshape(*x.shape[:start], -1, *x.shape[end + 1 :])


def windows(
    x: Array,
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...] | tuple[tuple[int, int], ...],
    dilation: tuple[int, ...],
) -> Array:
    """All windows of the last axes: `[..., windows of each axis, kernel of each axis]`."""
    axes = len(kernel)
    margins = [(p, p) if isinstance(p, int) else p for p in padding]
    x = np.pad(x, [(0, 0)] * (x.ndim - axes) + margins)
    extents = tuple(d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True))
    view = np.lib.stride_tricks.sliding_window_view(x, extents, axis=tuple(range(-axes, 0)))
    cut: list[Any] = [slice(None, None, s) for s in stride] + [slice(None, None, d) for d in dilation]
    found: Array = view[(..., *cut)]
    return found


def convolved(x: Array, node: Any, dtype: type = np.float64) -> Array:
    """A convolution node on values `[N, C, ...]`."""
    weight: Array = array(node.weight).astype(dtype)
    axes, groups = weight.ndim - 2, int(node.groups)
    dilation = pair(node.dilation, axes)
    padding: Any = padding_of(node, axes)
    if padding == "same":
        # The odd zero of an even extent goes to the end.
        totals = [d * (k - 1) for d, k in zip(dilation, weight.shape[2:], strict=True)]
        padding = tuple((total // 2, total - total // 2) for total in totals)
    view = windows(x, weight.shape[2:], pair(node.stride, axes), padding, dilation)
    # [N, groups, C / groups, windows..., kernel...] with [groups, O / groups, C / groups, kernel...]
    view = view.reshape(len(x), groups, -1, *view.shape[2:])
    by_group = weight.reshape(groups, -1, *weight.shape[1:])
    space, taps = "xyz"[:axes], "abc"[:axes]
    out = np.einsum(f"ngc{space}{taps},goc{taps}->ngo{space}", view, by_group, optimize=True)
    bias: Array = array(node.bias).astype(dtype).reshape(-1, *[1] * axes)
    added: Array = out.reshape(len(x), weight.shape[0], *out.shape[3:]) + bias
    return added


def interpret(
    graph: Any, x: Array, dt: float, *, discretisation: Discretisation = "euler"
) -> dict[str, Array]:
    """Output of every node of a graph over a sequence, as NIR means it.

    Args:
        graph: a `nir.NIRGraph`.
        x: input `[T, N, ...]`.
        dt: length of a step in seconds.
        discretisation: `"euler"` or `"exponential"`.

    Raises:
        ValueError: a graph that is no net, or constants that do not fit `dt`; the message names the node.
    """
    structure = structure_of(graph)
    read = reference_reader(dt, discretisation)
    return run_units(structure, {name: read(name, node) for name, node in structure.nodes.items()}, x)


def run_units(structure: Structure, units: Mapping[str, Unit], x: Array) -> dict[str, Array]:
    """Outputs `[T, N, ...]` of all nodes."""
    if x.shape[2:] != structure.shapes[structure.input]:
        raise ValueError(
            f"x: expected [T, N, {', '.join(map(str, structure.shapes[structure.input]))}], got shape {x.shape}"
        )
    steps, batch = x.shape[:2]
    if structure.back:
        found = _by_steps(structure, units, x)
        return {name: np.stack(values) if values else x[:0] for name, values in found.items()}
    outputs: dict[str, Array] = {structure.input: x}
    for name, unit in units.items():
        if name == structure.input:
            continue
        value = sum(outputs[source] for source in structure.sources[name])
        if isinstance(unit, Cell | Shift):
            states = unit.initial((batch, *structure.shapes[name]))
            rows = []
            for row in np.asarray(value):
                out, states = unit.step(row, states)
                rows.append(out)
            outputs[name] = np.stack(rows)
        else:
            out = unit(np.asarray(value).reshape(steps * batch, *np.shape(value)[2:]))
            outputs[name] = out.reshape(steps, batch, *out.shape[1:])
    return outputs


def _by_steps(structure: Structure, units: Mapping[str, Unit], x: Array) -> dict[str, list[Array]]:
    batch = x.shape[1]
    found: dict[str, list[Array]] = {name: [] for name in units}
    before = {source: np.zeros((batch, *structure.shapes[source])) for source, _ in structure.back}
    states = {
        name: unit.initial((batch, *structure.shapes[name]))
        for name, unit in units.items()
        if isinstance(unit, Cell | Shift)
    }
    for row in x:
        now: dict[str, Array] = {structure.input: row}
        for name, unit in units.items():
            if name != structure.input:
                value = sum(
                    before[source] if (source, name) in structure.back else now[source]
                    for source in structure.sources[name]
                )
                if isinstance(unit, Cell | Shift):
                    now[name], states[name] = unit.step(np.asarray(value), states[name])
                else:
                    now[name] = unit(np.asarray(value))
            found[name].append(now[name])
        before = {source: now[source] for source in before}
    return found
