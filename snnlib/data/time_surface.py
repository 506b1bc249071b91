"""Events to time surfaces: the time since each pixel's last event, `[T, 2, H, W]`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from snnlib.checks import check_positive_number
from snnlib.data.checks import check_float_dtype, check_int, check_sensor_size
from snnlib.data.events import EVENT_DTYPE, Events
from snnlib.data.formats.nmnist_bin import NMNIST_SENSOR_SIZE
from snnlib.data.frames import columns_of

__all__ = ["ToTimeSurface", "time_surface"]


def time_surface(
    events: Events,
    *,
    tau_us: float,
    time_steps: int = 30,
    step_us: int = 10_000,
    sensor_size: tuple[int, int] = NMNIST_SENSOR_SIZE,
    dtype: torch.dtype = torch.float32,
) -> torch.Tensor:
    """Computes an exponentially decaying trace of each pixel's last event, at the end of every time step.

    With `L` the latest time before `T_k = (k + 1) step_us` of an event of polarity p at pixel (x, y)::

        surface[k, p, y, x] = exp(-(T_k - L) / tau_us), 0 before the first event

    Args:
        events: events `[E]`; `t` in microseconds from the start of the recording, in any order. Events after the last
            step are left out.
        tau_us: time constant of the decay in microseconds.
        time_steps: number of steps T.
        step_us: length of a step in microseconds.
        sensor_size: `(height, width)` in pixels.
        dtype: floating dtype of the result; the exponential is computed in float64.

    Returns:
        Tensor `[T, 2, H, W]` in 0..1; channel 0 holds OFF events, channel 1 ON events.

    Raises:
        TypeError: `events` is not an event array, or an argument has the wrong type.
        ValueError: an event outside the sensor, before time 0 or of another polarity than 0 and 1; an argument out of
            range.

    Source: Lagorce et al., "HOTS: A Hierarchy of Event-Based Time-Surfaces for Pattern Recognition", IEEE TPAMI 39(7),
    2017, equation 3, for all pixels at fixed times instead of around each event.

    Example:
        >>> from snnlib.data import as_events
        >>> events = as_events(t=[0, 15], x=[1, 0], y=[0, 0], p=[1, 1])
        >>> time_surface(events, tau_us=10, time_steps=2, step_us=10, sensor_size=(1, 2))[:, 1, 0].exp().log()
        tensor([[0.0000, 0.3679],
                [0.6065, 0.1353]])
    """
    steps, step = check_int("time_steps", time_steps, 1), check_int("step_us", step_us, 1)
    height, width = check_sensor_size("sensor_size", sensor_size)
    check_positive_number("tau_us", tau_us)
    check_float_dtype(dtype)
    columns = columns_of(events, (height, width))
    order = np.argsort(columns[0], kind="stable")
    t, x, y, p = (column[order[columns[0][order] < steps * step]] for column in columns)
    last = np.full((steps, 2 * height * width), -1, np.int64)
    # A cell with several events keeps the last one, which is the latest.
    last[t // step, (p * height + y) * width + x] = t
    last = np.maximum.accumulate(last, axis=0)
    ends = (np.arange(steps) + 1)[:, None] * step
    surface = np.where(last < 0, 0.0, np.exp((last - ends) / tau_us))
    return torch.from_numpy(surface).view(steps, 2, height, width).to(dtype)


@dataclass(kw_only=True, eq=False)
class ToTimeSurface:
    """`time_surface` with fixed options, as a picklable `transform` of a data set.

    Arguments, defaults and errors are those of `time_surface`; wrong arguments raise here, not at the first sample.

    Example:
        >>> from snnlib.data import as_events
        >>> ToTimeSurface(tau_us=20_000)(as_events(t=[7_000], x=[3], y=[4], p=[1])).count_nonzero().item()
        30
    """

    tau_us: float
    time_steps: int = 30
    step_us: int = 10_000
    sensor_size: tuple[int, int] = NMNIST_SENSOR_SIZE
    dtype: torch.dtype = torch.float32

    def __post_init__(self) -> None:
        self(np.empty(0, EVENT_DTYPE))

    def __call__(self, events: Events) -> torch.Tensor:
        return time_surface(events, **self.__dict__)
