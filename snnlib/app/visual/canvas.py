"""Common looks of all pictures: colours that colour-blind readers can tell apart, sizes, and saving."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence, Sized
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from PIL import Image

from snnlib.files.atomic import write_bytes_atomically

# Okabe and Ito's palette, "Color Universal Design", 2008, without black and yellow (too pale on white).
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
INK = "#222222"
FAINT = "#BBBBBB"
# Panels in a row.
_COLUMNS = 3


def new_figure(width: float, height: float, title: str = "") -> Figure:
    """An empty figure of a size in inches that knows nothing of pyplot: no global state, no display needed."""
    figure = Figure(figsize=(width, height), dpi=120, layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    if title:
        figure.suptitle(title, color=INK)
    return figure


def grid_of_panels(count: int, width: float, height: float, title: str) -> tuple[Figure, list[Axes]]:
    """A figure with so many panels of a size in inches, three in a row."""
    columns = min(count, _COLUMNS)
    rows = -(-count // columns)
    figure = new_figure(max(width * columns + 0.6, 5.0), height * rows + 0.5, title)
    panels: list[Axes] = figure.subplots(rows, columns, squeeze=False).flatten().tolist()
    for axes in panels[count:]:
        axes.axis("off")
    return figure, panels[:count]


def column_of_panels(count: int, width: float, height: float, title: str) -> tuple[Figure, list[Axes]]:
    """Returns a figure of stacked panels with one time axis."""
    figure = new_figure(width, height * count + 0.8, title)
    return figure, figure.subplots(count, 1, squeeze=False, sharex=True)[:, 0].tolist()


def animated(
    width: float, height: float, title: str, draw: Callable[[Axes, int], object], count: int
) -> list[Image.Image]:
    """Pictures of a panel as `draw(axes, number)` leaves it, one after the other."""
    figure = new_figure(width, height)
    figure.suptitle(title, color=INK, fontsize=11, x=0.01, ha="left")
    axes, canvas = figure.add_subplot(), FigureCanvasAgg(figure)
    pictures = []
    for number in range(count):
        axes.clear()
        draw(axes, number)
        canvas.draw()  # type: ignore[no-untyped-call]
        # Laid out once: axes that move with the width of a number would jump, and it takes time.
        figure.set_layout_engine("none")
        pixels = canvas.buffer_rgba()  # type: ignore[no-untyped-call]
        # `convert` copies: the next picture is drawn into the same memory.
        pictures.append(Image.frombuffer("RGBA", canvas.get_width_height(), pixels).convert("RGB"))
    return pictures


def check_some(name: str, what: str, values: Sized) -> None:
    """Raise TypeError unless values are a dict or a list, and ValueError where there is nothing to draw."""
    if not isinstance(values, Mapping | Sequence):
        each = f" with one value per {what}" if what else ""
        raise TypeError(f"{name}: expected a dict or list{each}, got {type(values).__name__}")
    if not len(values):
        raise ValueError(f"{name}: expected at least one{what and f' {what}'}, got none")


def heading(axes: Axes, text: str, size: float = 10, colour: str = INK) -> None:
    """Write a panel's title above its left end."""
    axes.set_title(text, fontsize=size, color=colour, loc="left")


def as_picture(axes: Axes) -> None:
    """Leave out numbers at the sides of a picture."""
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_color(FAINT)


def time_unit(step_ms: float | None) -> tuple[float, str]:
    """Length of a time step on the time axis, and the axis' label: steps where their length is not known."""
    return (1.0, "time step") if step_ms is None else (step_ms, "time (ms)")


def span_time(axes: Axes, steps: int, step_ms: float | None) -> None:
    """Let the time axis reach from the first to the last of `steps` time steps, with marks at whole steps."""
    axes.set_xlim(0, steps * time_unit(step_ms)[0])
    if step_ms is None:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))


def mark_spikes(axes: Axes, times: list[float], row: int, colour: str) -> None:
    """Draws spikes as marks along the upper edge, a row per neuron, whatever the range of the potentials is."""
    height = [0.96 - 0.07 * row] * len(times)
    axes.plot(times, height, "|", color=colour, markersize=6, transform=axes.get_xaxis_transform())


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


def png_of(figure: Figure) -> bytes:
    """A figure as a PNG file."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return buffer.getvalue()


def save_png(figure: Figure, path: Path) -> None:
    """Write a figure as PNG, whole or not at all."""
    write_bytes_atomically(path, png_of(figure))


def save_gif(pictures: list[Image.Image], path: Path, *, frame_ms: int = 150) -> None:
    """Write pictures as an endless GIF, whole or not at all.

    Args:
        pictures: at least one, all of one size.
        path: the file.
        frame_ms: how long each is shown; the format counts in units of 10 ms.

    Raises:
        ValueError: no pictures.
    """
    check_some("pictures", "", pictures)
    width, height = pictures[0].size
    column = Image.new("RGB", (width, height * len(pictures)))
    for number, picture in enumerate(pictures):
        column.paste(picture, (0, number * height))
    # All frames share a palette: with a palette each the colours would flicker.
    palette = column.quantize(colors=256)
    first, *rest = [picture.quantize(palette=palette, dither=Image.Dither.NONE) for picture in pictures]
    buffer = io.BytesIO()
    first.save(buffer, "GIF", save_all=True, append_images=rest, duration=frame_ms, loop=0)
    write_bytes_atomically(path, buffer.getvalue())
