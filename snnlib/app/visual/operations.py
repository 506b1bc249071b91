"""How many operations each layer did, beside how many a dense kernel does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure

from snnlib.app.visual.canvas import FAINT, INK, PALETTE, check_some, new_figure, tidy

_PARTS = ("dense products", "accumulations", "multiplications")


def operations(
    layers: Mapping[str, tuple[float, float, float]], *, title: str = "Synaptic operations per sample"
) -> Figure:
    """A line per layer on a logarithmic axis, from the products of two nonzero factors to all products of the layer.

    Points, as bars on a logarithmic axis would have no meaning in their lengths; the share stands beside them.

    Args:
        layers: layer name to (effective accumulations, effective multiplications, dense products) per sample.
        title: what the reader should see.

    Raises:
        ValueError: no layers.

    >>> operations({"fc1": (100.0, 0.0, 4000.0)}).axes[0].get_xlabel()
    'operations per sample'
    """
    check_some("layers", "layer", layers)
    figure = new_figure(8.5, 0.45 * len(layers) + 1.4)
    axes = tidy(figure.subplots())
    style: dict[str, Any] = {"linestyle": "none", "markersize": 9, "clip_on": False}
    for row, (acs, macs, dense) in enumerate(layers.values()):
        # Zero has no place on the axis.
        shown = [number for number in (acs, macs, dense) if number > 0]
        if not shown:
            continue
        axes.plot((min(shown), max(shown)), (row, row), color=FAINT, linewidth=2, zorder=1)
        axes.annotate(f"   {(acs + macs) / dense:.2%}", (dense, row), va="center", fontsize=9, color=INK)
    rows = range(len(layers))
    columns = list(zip(*layers.values(), strict=True))
    for column, name, colour, marker in zip((2, 0, 1), _PARTS, (FAINT, *PALETTE), "oDs", strict=False):
        points = [(number, row) for number, row in zip(columns[column], rows, strict=True) if number > 0]
        if points:
            axes.plot(*zip(*points, strict=True), marker, color=colour, label=name, zorder=2, **style)
    axes.set_yticks(rows, list(layers))
    axes.set_ylim(len(layers) - 0.5, -0.5)
    axes.set_xscale("log")
    axes.margins(x=0.12)
    axes.set_xlabel("operations per sample")
    axes.set_title(title, color=INK, loc="left")
    axes.grid(axis="x", color=FAINT, alpha=0.4)
    figure.legend(frameon=False, fontsize=9, ncols=3, loc="outside lower center")
    return figure
