"""Heat maps over events as an animation, step by step."""

from __future__ import annotations

import io
from pathlib import Path

from PIL import Image
from torch import Tensor

from snnlib.app.visual.canvas import INK, animated, check_some, heading, new_figure
from snnlib.app.visual.heat import check_maps, draw_heat, heat_bar
from snnlib.data.atomic import write_bytes_atomically


def heat_animation(
    frames: Tensor, maps: Tensor, *, step_ms: float, title: str = "Where the net looks"
) -> list[Image.Image]:
    """One picture per time step: the step's events over its heat map, all steps on one scale. For `save_gif`.

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
    check_maps(frames, maps)
    limit = float(maps.max())
    figure = new_figure(3.0, 3.0)
    figure.suptitle(title, color=INK, fontsize=11, x=0.01, ha="left")
    axes = figure.add_subplot()

    def draw(step: int) -> None:
        axes.clear()
        heat = draw_heat(axes, frames[step : step + 1], maps[step], limit)
        heading(axes, f"{step * step_ms:g} to {(step + 1) * step_ms:g} ms", 9)
        if step == 0:
            heat_bar(figure, heat, axes, limit)

    return animated(figure, draw, len(frames))


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
    # One palette for all: with one each the colours would flicker.
    palette = column.quantize(colors=256)
    first, *rest = [picture.quantize(palette=palette, dither=Image.Dither.NONE) for picture in pictures]
    buffer = io.BytesIO()
    first.save(buffer, "GIF", save_all=True, append_images=rest, duration=frame_ms, loop=0)
    write_bytes_atomically(path, buffer.getvalue())
