"""A recording at a glance: where and when its events are, as a picture or an animation."""

from __future__ import annotations

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image

from snnlib.app.visual.canvas import INK, PALETTE, animated, heading, new_figure, tidy
from snnlib.app.visual.events import draw_accumulated
from snnlib.data.events import Events
from snnlib.data.frames import ToFrames
from snnlib.data.statistics import describe_events

# Rows and columns of a picture; more pixels would be smaller than a screen's.
_LARGEST_SIDE = 320
_HOT_SHOWN = 10
# Counts above this quantile of the pixels with events are shown as it.
_SHOWN_SHARE = 0.98


def _frames(events: Events, sensor_size: tuple[int, int], parts: int) -> tuple[torch.Tensor, float]:
    """Counts `[parts, 2, H, W]` of equal parts of the duration, pixels joined where there are many; ms of a part."""
    pool = -(-max(sensor_size) // _LARGEST_SIDE)
    small = events.copy()
    if len(events):
        small["t"] -= events["t"].min()
    small["x"] //= pool
    small["y"] //= pool
    step_us = int(small["t"].max(initial=0)) // parts + 1
    size = -(-sensor_size[0] // pool), -(-sensor_size[1] // pool)
    # The window is the recording itself: no event is late, and a burst is worth seeing.
    frames, _ = ToFrames(time_steps=parts, step_us=step_us, sensor_size=size, mode="count").bin(small)
    # Else a hot pixel would set the scale, and all others be pale.
    counts = frames[frames > 0]
    limit = float(counts.kthvalue(max(int(_SHOWN_SHARE * len(counts)), 1)).values) if len(counts) else 1.0
    return frames.clamp_(max=limit), step_us / 1000


def recording_overview(events: Events, sensor_size: tuple[int, int], *, title: str, parts: int = 3) -> Figure:
    """Events added up over equal parts of the duration, and the rates of ON and OFF events over time.

    Args:
        events: events `[E]`, ordered by time.
        sensor_size: `(height, width)` in pixels.
        title: what the reader should see.
        parts: number of pictures.

    >>> from snnlib.data import as_events
    >>> figure = recording_overview(as_events([0, 9], [1, 2], [3, 3], [0, 1]), (8, 8), title="two events")
    >>> len(figure.axes)
    4
    """
    figure = new_figure(3.0 * parts, 5.0, title)
    grid = figure.add_gridspec(2, parts, height_ratios=(3, 2))
    frames, step_ms = _frames(events, sensor_size, parts)
    pictures = [figure.add_subplot(grid[0, number]) for number in range(parts)]
    draw_accumulated(pictures, frames, step_ms)
    for x, y, _ in describe_events(events).hot_pixels[:_HOT_SHOWN]:
        pool = sensor_size[0] / frames.shape[2]
        pictures[0].plot(x / pool, y / pool, "s", mfc="none", mec=PALETTE[2], ms=6)
    rates = tidy(figure.add_subplot(grid[1, :]))
    t = (events["t"] - events["t"].min()) / 1000 if len(events) else np.zeros(0)
    edges = np.linspace(0, float(t.max(initial=0)) or 1.0, 101)
    for polarity, name, colour in ((1, "ON", PALETTE[1]), (0, "OFF", PALETTE[0])):
        counts, _ = np.histogram(t[events["p"] == polarity], edges)
        rates.step(edges[:-1], counts / (edges[1] - edges[0]), where="post", color=colour, label=name)
    rates.set_xlabel("time (ms)", color=INK)
    rates.set_ylabel("events per ms", color=INK)
    rates.set_xlim(0, edges[-1])
    rates.legend(frameon=False)
    return figure


def recording_animation(
    events: Events, sensor_size: tuple[int, int], *, title: str, parts: int = 30
) -> list[Image.Image]:
    """Draws a picture per equal part of the duration, for `save_gif`; arguments as in `recording_overview`.

    >>> from snnlib.data import as_events
    >>> len(recording_animation(as_events([0, 9], [1, 2], [3, 3], [0, 1]), (8, 8), title="two events", parts=5))
    5
    """
    frames, step_ms = _frames(events, sensor_size, parts)
    height = 4.0 * max(sensor_size[0] / sensor_size[1], 0.5) + 0.6

    def draw(axes: Axes, number: int) -> None:
        draw_accumulated([axes], frames[number : number + 1], None)
        heading(axes, f"{number * step_ms:.4g} to {(number + 1) * step_ms:.4g} ms", 9)

    return animated(4.0, height, title, draw, parts)
