"""Inputs of trained nets: frames of events, images, sound, spikes as they are, or points as spike times."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from snnlib.data import Cochlea, ToChannels, ToFrames, ToSequence, encoding
from snnlib.data.sound_to_spikes import SoundToSpikes


def transform_of(settings: Mapping[str, Any], input_shape: tuple[int, int, int]) -> Callable[[Any], Tensor]:
    """Returns the transform that a net's file describes.

    Args:
        settings: `"of"`, what it takes: `"events"`, `"image"`, `"sound"`, `"spikes"` or `"points"`, and its options.
        input_shape: `[C, H, W]` of the net's input at one step.
    """
    options = dict(settings)
    makers: dict[str, Callable[[], Callable[[Any], Tensor]]] = {
        "events": lambda: ToFrames(sensor_size=input_shape[1:], **options),
        "image": lambda: ToSequence(**options),
        "sound": lambda: SoundToSpikes(
            Cochlea(input_shape[0]), ToChannels(channels=input_shape[0], **options)
        ),
        "spikes": lambda: partial(torch.as_tensor, dtype=torch.float32),
        "points": lambda: partial(spikes_of_points, **options),
    }
    return makers[options.pop("of")]()


def spikes_of_points(points: Tensor, *, first: float, span: float, time_steps: int, dt: float) -> Tensor:
    """Returns a spike per coordinate at `first + span x`, for x from 0 to 1.

    Args:
        points: `[C]`, or several of them `[N, C]`.
        first, span: earliest time and its distance from the latest, in the unit of `dt`.
        time_steps, dt: number and length of the steps.

    Returns:
        `[T, C]`, or `[T, N, C]`; a spike between two steps is shared out to both.

    >>> spikes_of_points(torch.tensor([0.0, 0.5]), first=1.0, span=2.0, time_steps=4, dt=1.0).tolist()
    [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]
    """
    times = first + span * points.reshape(-1, points.shape[-1])
    spikes = encoding.at_times(times, time_steps, dt=dt, mode="shared")
    return spikes if points.dim() > 1 else spikes[:, 0]
