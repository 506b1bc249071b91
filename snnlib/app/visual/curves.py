"""Numbers over epochs as lines."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from snnlib.app.visual.canvas import FAINT, INK, PALETTE, check_some, new_figure, tidy

_STYLES = ("-", "--", "-.", ":")


def curves(
    series: Mapping[str, Sequence[float]],
    *,
    title: str,
    ylabel: str,
    xlabel: str = "epoch",
    percent: bool = False,
    target: tuple[float, str] | None = None,
    log: bool = False,
    marks: Mapping[str, Sequence[bool]] | None = None,
) -> Figure:
    """Draws a line per series over 1, 2, 3, ..., each labelled with its last finite value.

    The y axis covers the values that are shown; gaps are NaN or infinite values.

    Args:
        series: name to values, one per epoch.
        title: what the reader should see.
        ylabel: quantity and unit.
        xlabel: what is counted along the x axis.
        percent: write values as percentages; they are shares in 0..1.
        target: a level to draw as a grey line, and its name; left out where it lies outside the values shown.
        log: a logarithmic y axis, for positive values over several orders of magnitude.
        marks: name of a series to which of its values get a cross.

    >>> figure = curves({"test": [0.5, 0.9]}, title="Accuracy", ylabel="accuracy", percent=True)
    >>> figure.axes[0].get_xlabel()
    'epoch'
    """
    check_some("series", "curve", series)
    figure = new_figure(7.5, 4.2)
    axes = tidy(figure.add_subplot())
    for number, (name, values) in enumerate(series.items()):
        last = next((value for value in reversed(values) if math.isfinite(value)), math.nan)
        axes.plot(
            range(1, len(values) + 1),
            values,
            # Dashes as well as colours: a black and white print must do.
            _STYLES[number // len(PALETTE) % len(_STYLES)],
            color=PALETTE[number % len(PALETTE)],
            marker="o",
            markersize=4,
            linewidth=2,
            # A point at 100 % is drawn whole; what has no logarithm would be drawn far outside.
            clip_on=log,
            label=f"{name} (last: {100 * last:.3g}%)" if percent else f"{name} (last: {last:.3g})",
        )
        if crossed := [at for at, mark in enumerate((marks or {}).get(name, ())) if mark]:
            at_epochs, heights = [at + 1 for at in crossed], [values[at] for at in crossed]
            axes.scatter(
                at_epochs, heights, 120, color=INK, marker="x", linewidths=2, zorder=3, clip_on=False
            )
    finite = [value for values in series.values() for value in values if math.isfinite(value)]
    low, high = (min(finite), max(finite)) if finite else (0.0, 1.0)
    if log:
        axes.set_yscale("log")
    else:
        # Some room above and below; a share is never outside 0 to 1.
        room = 0.06 * (high - low) or 0.05 * abs(high) or 0.05
        bounds = (max(low - room, 0.0), min(high + room, 1.0)) if percent else (low - room, high + room)
        axes.set_ylim(*bounds)
    if target is not None and low <= target[0] <= high:
        axes.axhline(target[0], color=FAINT, linestyle="--", zorder=0, label=target[1])
    if percent:
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=None))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axes.set_title(title, color=INK, loc="left")
    axes.set_xlabel(xlabel)
    axes.set_ylabel(ylabel)
    axes.grid(axis="y", color=FAINT, alpha=0.4)
    axes.legend(frameon=False, loc="best")
    return figure
