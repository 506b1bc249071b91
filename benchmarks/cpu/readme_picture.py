"""The picture of README.md: a training step's time and memory, here and in other libraries.

    python benchmarks/cpu/readme_picture.py FOLDER [--picture docs/images/speed.png]

FOLDER holds `training_step.json` and `fine_bins.json` of `make bench-peers`, which draws this picture at its end. Of
each library the faster layout is drawn.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from nmnist_nets import FUSED, SHORT_LIST
from turns import Table

from snnlib.app.visual.canvas import FAINT, INK, PALETTE, new_figure, save_png, tidy

PICTURE = Path(__file__).resolve().parents[2] / "docs" / "images" / "speed.png"


def draw_bars(axes: Axes, table: Table, key: str, title: str) -> None:
    """A bar per row, with its figure and, of times, how many times the first row's it is; what is ours is blue."""
    values = [row[key] for row in table.values()]
    colours = [PALETTE[0] if name.startswith("snnlib") else FAINT for name in table]
    axes.barh(range(len(table)), values, color=colours, height=0.7)
    for row, (name, value) in enumerate(zip(table, values, strict=True)):
        text = f"{value:,.{0 if value >= 100 else 1}f} {key.rpartition('_')[2].replace('mb', 'MB')}"
        if key == "median_ms" and row:
            text += f"  (× {table[name]['ratio']:.1f})"
        axes.annotate(
            text, (value, row), (4, 0), textcoords="offset points", va="center", color=INK, fontsize=8
        )
    axes.set_yticks(range(len(table)), list(table) if key == "median_ms" else [])
    axes.set_ylim(len(table) - 0.5, -0.5)
    # Room for the text behind the longest bar.
    axes.set_xlim(0, max(values) * 1.6)
    axes.xaxis.set_visible(False)
    axes.spines[["bottom"]].set_visible(False)
    axes.set_title(title, color=INK, loc="left", fontsize=10)


def draw_over_steps(axes: Axes, tables: dict[str, Table], title: str) -> None:
    """A line per library over the number of time steps; what is ours is blue."""
    lines: dict[str, list[tuple[int, float]]] = {}
    (table,) = tables.values()
    for name, row in table.items():
        steps, _, library = name.removeprefix("T = ").partition(", ")
        library = library if library in SHORT_LIST else FUSED
        lines.setdefault(library, []).append((int(steps), row["processor_ms"]))
    for library, points in lines.items():
        colour = PALETTE[0] if library == FUSED else INK if library.startswith("snnTorch") else FAINT
        steps_of, times = zip(*points, strict=True)
        axes.loglog(steps_of, times, color=colour, marker="o", markersize=3)
        axes.annotate(library.partition(",")[0], points[-1], (4, 0), textcoords="offset points", fontsize=8)
    axes.set_xticks(steps_of, [str(steps) for steps in steps_of])
    axes.minorticks_off()
    axes.set_xlim(min(steps_of) * 0.8, max(steps_of) * 4)
    axes.set_xlabel("time steps of the same recordings", color=INK, fontsize=8)
    axes.set_title(title, color=INK, loc="left", fontsize=10)


def save_with_words(figure: Figure, title: str, below: str, picture: Path) -> None:
    """Stores a picture with its title and with what was measured, below."""
    figure.suptitle(title, color=INK, x=0.01, ha="left", fontweight="bold")
    figure.supxlabel(below, color=INK, fontsize=8)
    save_png(figure, picture)
    print(f"picture: {picture}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--picture", type=Path, default=PICTURE)
    arguments = parser.parse_args()
    figures = json.loads((arguments.folder / "training_step.json").read_text(encoding="utf-8"))
    ((_, table),) = figures["tables"].items()
    missing = [name for name in SHORT_LIST if name not in table]
    if missing:
        raise SystemExit(
            f"folder: expected rows of {', '.join(SHORT_LIST)}, got none of {', '.join(missing)}"
        )
    facts = figures["facts"]
    figure = new_figure(13.3, 2.7)
    chosen = {name: table[name] for name in SHORT_LIST}
    left, right, over_steps = figure.subplots(1, 3, width_ratios=(1.2, 1, 1))
    draw_bars(tidy(left), chosen, "median_ms", "milliseconds")
    draw_bars(tidy(right), chosen, "peak_mb", "peak MB")
    bins = json.loads((arguments.folder / "fine_bins.json").read_text(encoding="utf-8"))
    draw_over_steps(tidy(over_steps), bins["tables"], "ms of one processor, batch 4")
    title = "One training step of a spiking convolutional net on N-MNIST, on a CPU"
    below = (
        f"12C5-P2-64C5-P2-10, 30 steps, batch 50, forward + backward + Adam. {facts['processor']}, "
        f"{facts['threads']} threads, torch {facts['torch']}, {facts['date']}\n"
        "Times and factors are medians over turns, each by itself."
    )
    save_with_words(figure, title, below, arguments.picture)


if __name__ == "__main__":
    main()
