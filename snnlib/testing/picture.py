"""The picture of a difference: a raster of the neurons that changed, spikes coloured by what became of them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure

from snnlib.testing.diff import index_text, spike_changes
from snnlib.testing.golden import Spikes

# Colours of Okabe and Ito's palette, "Color Universal Design", 2008, on grey.
_KEPT, _GOLDEN, _OBTAINED = "#BBBBBB", "#D55E00", "#0072B2"
# Neurons of a sequence that are drawn.
_MOST_NEURONS = 20


def difference_raster(changed: Mapping[str, tuple[Spikes, Spikes]], title: str) -> Figure:
    """Draws a raster of the neurons that changed for each pair golden and obtained, the earliest change on top."""
    rows = {}
    for name, (golden, obtained) in changed.items():
        neurons, first = np.unique(spike_changes(golden, obtained)[:, 0], return_index=True)
        rows[name] = neurons[np.argsort(first)]
    heights = [0.9 + np.clip(len(neurons), 3, _MOST_NEURONS) * 0.24 for neurons in rows.values()]
    figure = Figure(figsize=(10, sum(heights) + 0.9), dpi=120, layout="constrained")
    figure.suptitle(title, fontsize=12)
    panels = figure.subplots(len(changed), 1, squeeze=False, height_ratios=heights)[:, 0]
    for axes, (name, (golden, obtained)) in zip(panels, changed.items(), strict=True):
        shown = rows[name][:_MOST_NEURONS]
        before, after = (spikes.reshape(len(spikes), -1)[:, shown] for spikes in (golden, obtained))
        for label, colour, spikes in (
            ("kept", _KEPT, before & after),
            ("golden alone", _GOLDEN, before & ~after),
            ("obtained alone", _OBTAINED, after & ~before),
        ):
            step, row = spikes.nonzero()
            # As wide as the time step, but for a gap that shows the steps.
            axes.hlines(row, step + 0.05, step + 0.95, colors=colour, linewidth=9, label=label)
        axes.set_yticks(range(len(shown)), [index_text(golden.shape, int(i)) for i in shown], fontsize=8)
        axes.set_xlim(0, len(golden))
        axes.set_ylim(len(shown) - 0.3, -0.7)
        changes = f"{name}: {len(shown)} of {len(rows[name])} neurons that changed"
        axes.set_title(changes, fontsize=9, loc="left")
    panels[-1].set_xlabel("time step")
    handles, labels = panels[-1].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(handles), frameon=False)
    return figure
