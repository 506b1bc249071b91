"""Heat maps over events: where and when a net's evidence lies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, to_rgba_array
from matplotlib.figure import Figure
from PIL import Image
from torch import Tensor

from snnlib.app.visual.canvas import (
    INK,
    PALETTE,
    animated,
    as_picture,
    check_some,
    heading,
    new_figure,
    stretch,
)

# White where there is nothing, then darker and darker, so that grey prints keep the order.
_HEAT = LinearSegmentedColormap.from_list("heat", ["white", "#FFD27F", PALETTE[1], "#6B1500"])
# Area of an event's dot in square points, for pictures of 34 pixels on 2 inches: less than half a pixel wide.
_DOT = 3.0


def heat_strips(
    samples: Sequence[tuple[str, Tensor, Tensor]],
    *,
    step_ms: float | None,
    parts: int = 3,
    title: str = "Where the net looks",
) -> Figure:
    """Draws a row per sample: its events under a heat map, in `parts` equal stretches of time and as a whole.

    Events are black, heat is the mean of the maps in a stretch. All stretches of a sample have one scale, from 0 to the
    hottest of them; the whole sample has its own, as its mean is lower.

    Args:
        samples: `(heading, frames, maps)` of each: events `[T, C, H, W]` and maps `[T, H, W]`, such as those of
            `explain.GradCAM(..., time="per_step")`.
        step_ms: length of a time step in milliseconds; None to count steps.
        parts: number of stretches; 3 for the three saccades of N-MNIST.
        title: what the reader should see.

    Raises:
        ValueError: no samples, shapes that do not fit, or more parts than steps; the message names the argument.

    >>> import torch
    >>> figure = heat_strips([("a 7", torch.ones(6, 2, 4, 4), torch.rand(6, 4, 4))], step_ms=10.0, parts=2)
    >>> [axes.get_title(loc="left") for axes in figure.axes[:3]]
    ['0 to 30 ms', '30 to 60 ms', 'whole sample']
    """
    check_some("samples", "", samples)
    for _, frames, maps in samples:
        _check_maps(frames, maps)
        if not 1 <= parts <= len(frames):
            raise ValueError(f"parts: expected 1 to {len(frames)}, the number of steps, got {parts}")
    figure = new_figure(2.0 * (parts + 1) + 0.9, 2.4 * len(samples) + 0.8)
    figure.suptitle(title, color=INK, fontsize=13)
    rows = figure.subfigures(len(samples), 1, squeeze=False)[:, 0]
    for row, (name, frames, maps) in zip(rows, samples, strict=True):
        row.suptitle(name, color=INK, fontsize=11, x=0.01, ha="left")
        axes = row.subplots(1, parts + 1, squeeze=False)[0].tolist()
        heats = [part.double().mean(0) for part in maps.tensor_split(parts)]
        limit = max(float(heat.max()) for heat in heats)
        start = 0
        for shown, events, heat in zip(axes, frames.tensor_split(parts), heats, strict=False):
            image = _draw_heat(shown, events, heat, limit)
            heading(shown, stretch(start, start + len(events), step_ms), 9)
            start += len(events)
        whole = maps.double().mean(0)
        _draw_heat(axes[-1], frames, whole, float(whole.max()))
        heading(axes[-1], "whole sample", 9)
        _heat_bar(row, image, axes, limit)
    return figure


def heat_animation(
    frames: Tensor, maps: Tensor, *, step_ms: float, title: str = "Where the net looks"
) -> list[Image.Image]:
    """Draws a picture per time step, for `save_gif`: the events over their heat map, all steps on one scale.

    Args:
        frames: events of one sample `[T, C, H, W]`.
        maps: maps `[T, H, W]`, such as those of `explain.GradCAM(..., time="per_step")`.
        step_ms: length of a time step in milliseconds.
        title: what the reader should see.

    Raises:
        ValueError: no steps, or maps of another shape than the frames.

    >>> import torch
    >>> len(heat_animation(torch.ones(3, 2, 4, 4), torch.rand(3, 4, 4), step_ms=10.0))
    3
    """
    _check_maps(frames, maps)
    limit = float(maps.max())

    def draw(axes: Axes, step: int) -> None:
        heat = _draw_heat(axes, frames[step : step + 1], maps[step], limit)
        heading(axes, stretch(step, step + 1, step_ms), 9)
        if step == 0:
            _heat_bar(axes.figure, heat, axes, limit)

    return animated(3.0, 3.0, title, draw, len(frames))


def _check_maps(frames: Tensor, maps: Tensor) -> None:
    """Raise ValueError unless there is one map per step, of the frames' height and width."""
    if frames.dim() != 4 or len(frames) == 0:
        raise ValueError(f"frames: expected shape [T, C, H, W] with steps, got {tuple(frames.shape)}")
    expected = (len(frames), *frames.shape[2:])
    if tuple(maps.shape) != expected:
        raise ValueError(f"maps: expected shape {expected}, one map per frame, got {tuple(maps.shape)}")


def _draw_heat(axes: Axes, events: Tensor, heat: Tensor, limit: float) -> Any:
    """Draw heat `[H, W]` from 0 to `limit` and the events `[T, C, H, W]` over it; gives the image of the heat."""
    image = axes.imshow(heat.numpy(), cmap=_HEAT, vmin=0, vmax=limit or 1.0, interpolation="nearest")
    counts = events.double().abs().sum((0, 1))
    rows, columns = counts.nonzero(as_tuple=True)
    # Dots leave the heat of their pixel visible around them; pixels with few events, such as noise, are fainter.
    strength = (counts[rows, columns] / counts.max().clamp(min=1)).sqrt()
    axes.scatter(columns, rows, s=_DOT, color=to_rgba_array(INK, strength.numpy()), marker="s", linewidths=0)
    as_picture(axes)
    return image


def _heat_bar(figure: Any, image: Any, axes: Any, limit: float) -> None:
    """A colour bar from none to most beside `axes`."""
    bar = figure.colorbar(image, ax=axes, shrink=0.8, ticks=[0, limit or 1.0])
    bar.ax.set_yticklabels(["none", "most"], fontsize=8)
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=0)
