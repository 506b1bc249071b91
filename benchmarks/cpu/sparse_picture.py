"""The picture of docs/sparse.md: a training step of sparse recurrent neurons against their number and their density.

    python benchmarks/cpu/sparse_picture.py FOLDER [--picture docs/images/sparse.png]

FOLDER holds what `sparse.py --grow --json FOLDER/grow.json` and `sparse.py --dense --json FOLDER/dense.json` wrote.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from readme_picture import save_with_words

from snnlib.app.visual.canvas import FAINT, INK, PALETTE, new_figure, tidy

PICTURE = Path(__file__).resolve().parents[2] / "docs" / "images" / "sparse.png"


def densities_of(table: dict[str, dict[str, float]]) -> list[float]:
    """Returns the densities of all rows but the dense one, in %."""
    return [float(name.partition("%")[0]) for name in table if name != "dense"]


def draw_numbers(axes: Axes, found: list[dict[str, Any]]) -> None:
    """Seconds of a processor against the number of neurons, and the line on which they are proportional."""
    sizes, seconds = ([one[key] for one in found] for key in ("neurons", "processor_seconds"))
    axes.plot(sizes, seconds, color=PALETTE[0], marker="o", linewidth=2)
    axes.plot(sizes, [seconds[0] * size / sizes[0] for size in sizes], "--", color=FAINT, linewidth=1)
    for size, value, one in zip(sizes, seconds, found, strict=True):
        text = f"{value:.3g} s, {one['mb_with_net']:,.0f} MB"
        axes.annotate(text, (size, value), (6, -12), textcoords="offset points", color=INK, fontsize=8)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(right=sizes[-1] * 12)
    axes.set_ylim(bottom=seconds[0] / 3)
    axes.set_xlabel("neurons, 100 connections each")
    axes.set_title("seconds of a processor; dashed: in proportion", color=INK, loc="left", fontsize=10)


def draw_densities(axes: Axes, tables: dict[str, dict[str, dict[str, float]]]) -> None:
    """Processor time in units of the dense net's, by density, a line for each size of net."""
    for colour, (title, table) in zip(PALETTE, tables.items(), strict=False):
        densities = densities_of(table)
        shares = [row["processor_ratio"] for name, row in table.items() if name != "dense"]
        size = title.split(" -> ")[1].partition(",")[0]
        axes.plot(densities, shares, color=colour, marker="o", linewidth=2, label=f"{size} neurons")
    axes.axhline(1, color=FAINT, linestyle="--", linewidth=1)
    axes.set_xscale("log")
    every = densities_of(next(iter(tables.values())))
    axes.set_xticks(every, [f"{density:g}" for density in every])
    axes.set_xticks([], minor=True)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("connections that exist, %")
    axes.legend(frameon=False, labelcolor=INK)
    axes.set_title("time of a step over that of dense weights", color=INK, loc="left", fontsize=10)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--picture", type=Path, default=PICTURE)
    arguments = parser.parse_args()
    grow, dense = (
        json.loads((arguments.folder / f"{name}.json").read_text(encoding="utf-8"))
        for name in ("grow", "dense")
    )
    figure = new_figure(11, 3.6)
    left, right = figure.subplots(1, 2)
    draw_numbers(tidy(left), grow)
    draw_densities(tidy(right), dense["tables"])
    facts = dense["facts"]
    title = "One training step of recurrent neurons with sparse connections, on a CPU"
    below = (
        f"T = 100. Left: batch 1, 2 % of the neurons fire. Right: batch 128, 5 % fire. {facts['processor']}, "
        f"torch {facts['torch']}, {facts['date']}"
    )
    save_with_words(figure, title, below, arguments.picture)


if __name__ == "__main__":
    main()
