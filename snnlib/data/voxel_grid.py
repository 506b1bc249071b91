"""Events to voxel grids: polarity divided between neighbouring time bins, `[bins, H, W]`."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Literal

import numpy as np
import torch

from snnlib.checks import check_choice
from snnlib.data.checks import check_float_dtype, check_int, check_sensor_size
from snnlib.data.events import EVENT_DTYPE, Events
from snnlib.data.frames import columns_of
from snnlib.vision.segment import segment_sum_dense

__all__ = ["ToVoxelGrid", "voxel_grid"]

Polarity = Literal["sign", "channels"]


def voxel_grid(
    events: Events,
    bins: int,
    sensor_size: tuple[int, int],
    *,
    polarity: Polarity = "sign",
    dtype: torch.dtype = torch.float32,
) -> torch.Tensor:
    """Sums events in space and, with linear weights, in time.

    Times are scaled from the first to the last event of the recording, `t* = (B - 1) (t - t_0) / (t_end - t_0)`; an
    event has the weight `max(0, 1 - |b - t*|)` in bin b, 1 in all::

        grid[b, y, x] = sum over events at (x, y) of s max(0, 1 - |b - t*|)

    with s = -1 for OFF and +1 for ON. The sum over the grid is the sum of s. If all events have the same time, they go
    to bin 0. Sums are computed in float64.

    Args:
        events: events `[E]`; any origin and order of times.
        bins: number of time bins B.
        sensor_size: `(height, width)` in pixels.
        polarity: `"sign"` (default, as in the paper) adds ON and OFF events with their signs; `"channels"` counts them
            separately, each with s = 1.
        dtype: floating dtype of the result.

    Returns:
        Tensor `[B, H, W]`, with `"channels"` `[B, 2, H, W]`: channel 0 holds OFF events, channel 1 ON events. No events
        give zeros.

    Raises:
        TypeError: `events` is not an event array, or an argument has the wrong type.
        ValueError: an event outside the sensor or of another polarity than 0 and 1; an argument out of range.

    Source: Zhu et al., "Unsupervised Event-based Learning of Optical Flow, Depth, and Egomotion", CVPR 2019,
    section 3.1.

    Example:
        >>> from snnlib.data import as_events
        >>> events = as_events(t=[0, 250, 500, 1000], x=[0] * 4, y=[0] * 4, p=[1, 0, 1, 1])
        >>> voxel_grid(events, 3, (1, 1)).flatten().tolist()
        [0.5, 0.5, 1.0]
    """
    count = check_int("bins", bins, 1)
    height, width = check_sensor_size("sensor_size", sensor_size)
    check_choice("polarity", polarity, "sign", "channels")
    check_float_dtype(dtype)
    t, x, y, p = columns_of(events, (height, width), any_time=True)
    channels = 1 if polarity == "sign" else 2
    shape = (count, height, width) if polarity == "sign" else (count, 2, height, width)
    if t.size == 0:
        return torch.zeros(shape, dtype=dtype)
    t -= t.min()
    scaled = torch.from_numpy(t * ((count - 1) / max(int(t.max()), 1)))
    # The last event is in the last bin, whose right neighbour would be outside; its weight there is 0.
    left = scaled.floor().long().clamp(max=max(count - 2, 0))
    right = (left + 1).clamp(max=count - 1)
    share = scaled - left
    sign = torch.from_numpy(2 * p - 1 if polarity == "sign" else np.ones_like(p))
    weights = torch.cat((sign * (1 - share), sign * share))
    plane = torch.from_numpy((y * width + x) + (0 if polarity == "sign" else p * height * width))
    cells = torch.cat((left, right)) * (channels * height * width) + plane.repeat(2)
    return segment_sum_dense(weights, cells, count * channels * height * width).reshape(shape).to(dtype)


@dataclass(eq=False)
class ToVoxelGrid:
    """`voxel_grid` with fixed options, as a picklable `transform` of a data set.

    Arguments, defaults and errors are those of `voxel_grid`; wrong arguments raise here, not at the first sample.

    Example:
        >>> from snnlib.data import as_events
        >>> transform = ToVoxelGrid(bins=5, sensor_size=(34, 34), polarity="channels")
        >>> transform(as_events(t=[7_000], x=[3], y=[4], p=[1])).nonzero().tolist()
        [[0, 1, 4, 3]]
    """

    bins: int
    sensor_size: tuple[int, int]
    _: KW_ONLY
    polarity: Polarity = "sign"
    dtype: torch.dtype = torch.float32

    def __post_init__(self) -> None:
        self(np.empty(0, EVENT_DTYPE))

    def __call__(self, events: Events) -> torch.Tensor:
        return voxel_grid(events, **self.__dict__)
