"""The picture of a difference: a raster of the neurons that changed, spikes coloured by what became of them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from snnlib.app.visual.canvas import FAINT, INK, PALETTE, new_figure, tidy
from snnlib.testing.diff import NONE, SpikeDiff, index_text

_KEPT, _FROM, _TO, _APPEARED, _VANISHED = FAINT, PALETTE[4], PALETTE[0], PALETTE[2], PALETTE[1]
_LEGEND = {"kept": _KEPT, "moved from": _FROM, "moved to": _TO, "appeared": _APPEARED, "vanished": _VANISHED}
# Up to this many neurons get a row each with its index and arrows; more are drawn as a cloud, up to the second number.
_FEW_NEURONS, _MOST_NEURONS = 20, 500


def difference_raster(diffs: Mapping[str, SpikeDiff], title: str) -> Figure:
    """One raster per sequence that changed, of its neurons that changed, the earliest change on top."""
    heights = [0.9 + min(max(_rows(diff), 3), _FEW_NEURONS) * 0.24 for diff in diffs.values()]
    figure = new_figure(10, sum(heights) + 0.9)
    figure.suptitle(title, color=INK, fontsize=12)
    panels = figure.subplots(len(diffs), 1, squeeze=False, height_ratios=heights)[:, 0]
    for axes, (name, diff) in zip(panels, diffs.items(), strict=True):
        _draw(tidy(axes), name, diff)
    panels[-1].set_xlabel("time step")
    handles = [Patch(color=colour, label=label) for label, colour in _LEGEND.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False)
    return figure


def _rows(diff: SpikeDiff) -> int:
    return len(np.unique(diff.changes[:, 0]))


def _draw(axes: Axes, name: str, diff: SpikeDiff) -> None:
    neurons, first, place = np.unique(diff.changes[:, 0], return_index=True, return_inverse=True)
    order = np.argsort(first)
    shown = neurons[order][:_MOST_NEURONS]
    few = len(shown) <= _FEW_NEURONS
    row = np.argsort(order)[place]
    row, old, new = np.column_stack((row, diff.changes[:, 1:]))[row < len(shown)].T
    moved = (old != NONE) & (new != NONE)

    steps = len(diff.expected)
    before, after = (sequence.reshape(steps, -1)[:, shown] for sequence in (diff.expected, diff.actual))
    kept_step, kept_row = (before & after).nonzero()
    for rows, step, colour in (
        (kept_row, kept_step, _KEPT),
        (row[moved], old[moved], _FROM),
        (row[moved], new[moved], _TO),
        (row[old == NONE], new[old == NONE], _APPEARED),
        (row[new == NONE], old[new == NONE], _VANISHED),
    ):
        # As wide as the time step, but for a gap that shows the steps.
        axes.hlines(rows, step + 0.05, step + 0.95, colors=colour, linewidth=9 if few else 1.0)
    if few:
        for y, start, end in zip(row[moved], old[moved], new[moved], strict=True):
            axes.annotate(
                "", (end + 0.5, y), (start + 0.5, y), arrowprops={"arrowstyle": "->", "color": INK, "lw": 1.0}
            )
        labels = [index_text(diff.shape, int(neuron)) for neuron in shown]
        axes.set_yticks(range(len(shown)), labels, fontsize=8)
    else:
        named = range(0, len(shown), -(-len(shown) // _FEW_NEURONS))
        axes.set_yticks(named, [index_text(diff.shape, int(shown[row])) for row in named], fontsize=8)
    axes.set_xlim(0, steps)
    axes.set_ylim(len(shown) - 0.3, -0.7)
    which = "" if len(shown) == len(neurons) else f", the first {len(shown)} drawn"
    axes.set_title(
        f"{name}: neurons that changed ({len(neurons)}{which})\n{diff.summary()}",
        fontsize=9,
        color=INK,
        loc="left",
    )
