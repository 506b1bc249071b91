"""Common looks of all pictures: colours that colour-blind readers can tell apart, sizes, and saving."""

from __future__ import annotations

import io
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from snnlib.data.atomic import write_bytes_atomically

# Okabe and Ito's palette, "Color Universal Design", 2008, without black and yellow (too pale on white).
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
INK = "#222222"
FAINT = "#BBBBBB"


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of a size in inches that knows nothing of pyplot: no global state, no display needed."""
    figure = Figure(figsize=(width, height), dpi=120, layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def time_unit(step_ms: float | None) -> tuple[float, str]:
    """Length of a time step on the time axis, and the axis' label: steps where their length is not known."""
    return (1.0, "time step") if step_ms is None else (step_ms, "time (ms)")


def span_time(axes: Axes, steps: int, step_ms: float | None) -> None:
    """Let the time axis reach from the first to the last of `steps` time steps, with marks at whole steps."""
    axes.set_xlim(0, steps * time_unit(step_ms)[0])
    if step_ms is None:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))


def stretch(start: int, stop: int, step_ms: float | None) -> str:
    """Name of the time from step `start` up to, but not including, step `stop`."""
    if step_ms is None:
        return f"steps {start} to {stop - 1}"
    return f"{start * step_ms:g} to {stop * step_ms:g} ms"


def tidy(axes: Axes) -> Axes:
    """Remove the frame's upper and right side."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(FAINT)
    axes.tick_params(color=FAINT, labelcolor=INK)
    return axes


def save_png(figure: Figure, path: Path) -> None:
    """Write a figure as PNG, whole or not at all."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    write_bytes_atomically(path, buffer.getvalue())
