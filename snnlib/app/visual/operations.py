"""How many operations each layer did, beside how many a dense kernel does."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.figure import Figure

from snnlib.app.visual.canvas import FAINT, INK, PALETTE, new_figure, tidy

_PARTS = ("accumulations", "multiplications")


def operations(
    layers: Mapping[str, tuple[float, float, float]], *, title: str = "Synaptic operations per sample"
) -> Figure:
    """Two bars per layer on a logarithmic axis: all products of the layer, and those of two nonzero factors.

    Args:
        layers: layer name to (effective accumulations, effective multiplications, dense products) per sample.
        title: what the reader should see.

    Raises:
        ValueError: no layers.

    >>> operations({"fc1": (100.0, 0.0, 4000.0)}).axes[0].get_xlabel()
    'operations per sample'
    """
    if not layers:
        raise ValueError("layers: expected at least one layer, got none")
    figure = new_figure(8.5, 0.45 * len(layers) + 1.3)
    axes = tidy(figure.subplots())
    for row, (acs, macs, dense) in enumerate(layers.values()):
        axes.barh(row, dense, height=0.7, color=FAINT, label="dense products" if row == 0 else None)
        # A call of a layer has either; both stand side by side where its calls differ.
        start = 0.0
        for colour, part, name in zip(PALETTE, (acs, macs), _PARTS, strict=False):
            axes.barh(row, part, left=start, height=0.4, color=colour, label=name if row == 0 else None)
            start += part
        if dense:
            axes.annotate(f" {(acs + macs) / dense:.2%}", (dense, row), va="center", fontsize=9, color=INK)
    axes.set_yticks(range(len(layers)), list(layers))
    axes.invert_yaxis()
    axes.set_xscale("symlog", linthresh=1)
    axes.margins(x=0.12)
    axes.set_xlabel("operations per sample")
    axes.set_title(title, color=INK, loc="left")
    axes.legend(frameon=False, fontsize=9, ncols=3, loc="upper center", bbox_to_anchor=(0.5, -0.25))
    return figure
