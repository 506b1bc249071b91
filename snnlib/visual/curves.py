"""Numbers over epochs as lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from snnlib.visual.canvas import FAINT, INK, PALETTE, new_figure, tidy

_STYLES = ("-", "--", "-.", ":")


def curves(
    series: Mapping[str, Sequence[float]],
    *,
    title: str,
    ylabel: str,
    xlabel: str = "epoch",
    percent: bool = False,
    target: tuple[float, str] | None = None,
) -> Figure:
    """One line per series over 1, 2, 3, ..., each labelled with its last value.

    Args:
        series: name to values, one per epoch.
        title: what the reader should see.
        ylabel: quantity and unit.
        xlabel: what is counted along the x axis.
        percent: write values as percentages; they are shares in 0..1.
        target: a level to draw as a grey line, and its name.

    >>> figure = curves({"test": [0.5, 0.9]}, title="Accuracy", ylabel="accuracy", percent=True)
    >>> figure.axes[0].get_xlabel()
    'epoch'
    """
    figure = new_figure(7.5, 4.2)
    axes = tidy(figure.add_subplot())
    for number, (name, values) in enumerate(series.items()):
        last = f"{values[-1]:.1%}" if percent else f"{values[-1]:.3g}"
        axes.plot(
            range(1, len(values) + 1),
            values,
            # Dashes as well as colours: a black and white print must do.
            _STYLES[number // len(PALETTE) % len(_STYLES)],
            color=PALETTE[number % len(PALETTE)],
            marker="o",
            markersize=4,
            linewidth=2,
            label=f"{name} (last: {last})",
        )
    if target is not None:
        level, name = target
        axes.axhline(level, color=FAINT, linestyle="--", zorder=0, label=name)
    if percent:
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=None))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axes.set_title(title, color=INK, loc="left")
    axes.set_xlabel(xlabel)
    axes.set_ylabel(ylabel)
    axes.set_ylim(bottom=0)
    axes.grid(axis="y", color=FAINT, alpha=0.4)
    axes.legend(frameon=False, loc="best")
    return figure
