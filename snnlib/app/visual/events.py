"""Events as pictures: what an event camera saw, added up over stretches of time."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from snnlib.app.visual.canvas import PALETTE, as_picture, heading, new_figure, stretch

# Brighter and darker: the palette's orange and blue.
ON_COLOUR, OFF_COLOUR = PALETTE[1], PALETTE[0]


def accumulated_events(
    frames: Tensor, *, step_ms: float | None, parts: int = 3, title: str = "Input events"
) -> Figure:
    """Events of one sample added up over `parts` equal stretches of time, a picture for each.

    Args:
        frames: events `[T, 2, H, W]`; channel 0 is OFF (darker), channel 1 ON (brighter).
        step_ms: length of a time step in milliseconds; None to count steps.
        parts: number of pictures; 3 for the three saccades of N-MNIST.
        title: what the reader should see.

    Raises:
        ValueError: frames of another shape.

    >>> import torch
    >>> len(accumulated_events(torch.ones(6, 2, 4, 4), step_ms=10.0, parts=2).axes)
    2
    """
    figure = new_figure(2.6 * parts, 3.2, title)
    draw_accumulated(figure.subplots(1, parts, squeeze=False)[0].tolist(), frames, step_ms)
    return figure


def draw_accumulated(axes: list[Axes], frames: Tensor, step_ms: float | None) -> None:
    """Draw one stretch of time into each of `axes`."""
    if frames.dim() != 4 or frames.shape[1] != 2:
        raise ValueError(f"frames: expected shape [T, 2, H, W], got {tuple(frames.shape)}")
    start = 0
    for number, part in enumerate(frames.double().tensor_split(len(axes))):
        shown = axes[number]
        # ON minus OFF: white where nothing moved, colours where it became brighter or darker.
        balance = part.sum(0)[1] - part.sum(0)[0]
        limit = max(float(balance.abs().max()), 1.0)
        shown.imshow(balance.numpy(), cmap="RdBu_r", vmin=-limit, vmax=limit, interpolation="nearest")
        heading(shown, stretch(start, start + len(part), step_ms), 9)
        as_picture(shown)
        start += len(part)
