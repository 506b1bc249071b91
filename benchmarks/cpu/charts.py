"""Pictures of the benchmarks' tables: bars for things, lines over numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from turns import COLUMNS, Table

from snnlib.app.visual.canvas import FAINT, INK, PALETTE, new_figure, tidy

# By name of a line its points (x, y).
Lines = Mapping[str, Sequence[tuple[float, float]]]
PANELS_IN_A_ROW = 4


def bars(tables: dict[str, Table], *, title: str, keys: Sequence[str] = ("median_ms",)) -> Figure:
    """A row of panels per table, one for each of `keys`, with a bar per row; what is ours is blue."""
    heights = [len(table) for table in tables.values()]
    figure = new_figure(2.7 + 5.3 * len(keys), 0.7 + sum(0.32 * rows + 0.7 for rows in heights))
    grid = figure.subplots(len(tables), len(keys), squeeze=False, height_ratios=heights)
    for panels, (heading, table) in zip(grid, tables.items(), strict=True):
        for axes, key in zip(panels, keys, strict=True):
            _bars(tidy(axes), table, key)
            # Names stand at the first panel only.
            if axes is not panels[0]:
                axes.set_yticklabels([])
            above = heading if axes is panels[0] else COLUMNS[key][0]
            axes.set_title(above, color=INK, loc="left", fontsize=10)
    figure.suptitle(title, color=INK, x=0.01, ha="left", fontweight="bold")
    return figure


def _bars(axes: Axes, table: Table, key: str) -> None:
    names = [name for name in table if key in table[name]]
    values = [table[name][key] for name in names]
    colours = [PALETTE[0] if name.startswith("snnlib") else FAINT for name in names]
    axes.barh(range(len(names)), values, color=colours, height=0.7)
    for row, (name, value) in enumerate(zip(names, values, strict=True)):
        digits = 0 if value >= 100 else 1
        text = f"{value:,.{digits}f} {key.rpartition('_')[2].replace('mb', 'MB')}"
        if key == "median_ms" and name != names[0]:
            text += f"  (× {table[name]['ratio']:.1f})"
        axes.annotate(
            text, (value, row), (4, 0), textcoords="offset points", va="center", color=INK, fontsize=8
        )
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    # Room for the text behind the longest bar.
    axes.set_xlim(0, max(values) * 1.6)
    axes.xaxis.set_visible(False)
    axes.spines[["bottom"]].set_visible(False)


def lines(panels: Mapping[str, Lines], *, title: str, xlabel: str) -> Figure:
    """A panel per entry; its name is that of the y axis. What is ours is blue and drawn through."""
    figure = new_figure(1.0 + 4.2 * len(panels), 4.2)
    for axes, (ylabel, series) in zip(
        figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True
    ):
        others = iter(PALETTE[1:])
        for name, points in series.items():
            ours = name.startswith("snnlib")
            axes.plot(
                *zip(*points, strict=True),
                "-" if ours else "--",
                color=PALETTE[0] if ours else next(others),
                marker="o",
                markersize=4,
                linewidth=2,
                label=name,
            )
        tidy(axes)
        axes.set_xlim(left=0)
        axes.set_ylim(bottom=0)
        axes.set_xlabel(xlabel)
        axes.set_ylabel(ylabel)
        axes.grid(color=FAINT, alpha=0.4)
    if len(series) > 1:
        handles, labels = axes.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    figure.suptitle(title, color=INK, x=0.01, ha="left", fontweight="bold")
    return figure


def courses(panels: Mapping[str, Lines], *, names: Sequence[str], ours: int) -> Figure:
    """Per cent against seconds, a panel per task; the first of `names`, which are ours, are drawn through."""
    rows = -(-len(panels) // PANELS_IN_A_ROW)
    figure = new_figure(3.6 * PANELS_IN_A_ROW, 3.0 * rows + 0.6)
    grid = figure.subplots(rows, PANELS_IN_A_ROW, squeeze=False).flatten()
    colours = dict(zip(names, (*PALETTE, INK, FAINT), strict=True))
    drawn = {}
    for axes, (task, series) in zip(grid, panels.items(), strict=False):
        for name, points in series.items():
            style = "-" if name in names[:ours] else "--"
            (drawn[name],) = axes.plot(
                *zip(*points, strict=True), style, color=colours[name], marker="o", markersize=3
            )
        tidy(axes)
        axes.set_title(task if series else f"{task}: not run", color=INK, loc="left", fontsize=10)
        axes.set_xlim(left=0)
        axes.set_ylim(0, 100)
        axes.grid(color=FAINT, alpha=0.4)
    for axes in grid[len(panels) :]:
        axes.remove()
    figure.supxlabel("seconds of processor time", color=INK, fontsize=10)
    figure.supylabel("test accuracy (%)", color=INK, fontsize=10)
    if drawn:
        shown = [name for name in names if name in drawn]
        figure.legend(
            [drawn[name] for name in shown],
            shown,
            loc="outside upper center",
            ncols=len(shown),
            frameon=False,
        )
    return figure
