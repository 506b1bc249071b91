"""A NIR graph as text."""

from __future__ import annotations

from typing import Any

import numpy as np

from snnlib.exchange.nir.reading import kind_of
from snnlib.exchange.nir.structure import structure_of
from snnlib.exchange.structure.cells import array
from snnlib.inspect.shown import in_columns

_HIDDEN = ("input_type", "output_type", "metadata", "input_shape")


def shown(graph: Any) -> str:
    """Returns a line per node: name, kind, inputs, output shape, and constants with their ranges.

    Raises:
        ValueError: a graph that is no net; the message names the node.
    """
    structure = structure_of(graph)
    rows: list[tuple[str, ...]] = [("node", "kind", "reads", "shape", "constants")]
    for name, node in structure.nodes.items():
        read = " + ".join(
            source + (" [t-1]" if (source, name) in structure.back else "")
            for source in structure.sources[name]
        )
        constants = ", ".join(
            f"{key} {_range(value)}"
            for key, value in vars(node).items()
            if key not in _HIDDEN and value is not None
        )
        rows.append((name, kind_of(node), read, "x".join(map(str, structure.shapes[name])), constants))
    return "\n".join(in_columns(rows, left=len(rows[0])))


def _range(value: Any) -> str:
    if isinstance(value, str | bytes):
        return value.decode() if isinstance(value, bytes) else value
    numbers = array(value)
    if numbers.dtype == object:
        return str(value)
    if numbers.size == 0:
        return "none"
    low, high = float(numbers.min()), float(numbers.max())
    text = f"{low:.6g}" if low == high else f"{low:.4g}..{high:.4g}"
    return (
        text if numbers.ndim == 0 or np.ndim(value) == 0 else f"[{'x'.join(map(str, numbers.shape))}] {text}"
    )
