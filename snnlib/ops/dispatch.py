"""Whether a convolution adds events one by one or runs densely, by what the data and the shape let expect.

Costs count multiply-adds of 16 channels on one core; the factors were measured on a core with AVX-512 (see
docs/performance.md). The choice depends on data and shapes only, never on the time of day: the same call takes the same
path. The environment variable `SNNLIB_CONVOLUTION` sets the choice of a process, `use_convolution` that of a block.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from snnlib.ops.geometry import GROUP, Geometry, scatters

Convolution = Literal["auto", "events", "dense"]

# Below this cost there is nothing to gain.
_SMALL = 1e6
# Elements that are looked at for the density of a train.
_SAMPLE = 1 << 16
# A multiply-add of a vector: dense, and of an event with weights of one kernel row in the first and the second cache.
_DENSE, _GATHER, _GATHER_FAR, _NEAR_BYTES = 0.67, 1.2, 1.55, 24 << 10
# Start of a run of events in `gather`, and of an event's row in `scatter` with each of its vectors.
_RUN, _ROW, _ROW_VECTOR = 18.0, 6.0, 2.2
# Looking whether an input is an event.
_LOOK = 0.5


def _checked(choice: str, source: str) -> Convolution:
    if choice not in get_args(Convolution):
        raise ValueError(f"{source}: expected one of {', '.join(get_args(Convolution))}, got {choice!r}")
    return choice  # type: ignore[return-value]


_choice: Convolution = _checked(
    os.environ.get("SNNLIB_CONVOLUTION", "auto"), "environment variable SNNLIB_CONVOLUTION"
)


@contextmanager
def use_convolution(choice: Convolution) -> Iterator[None]:
    """Run the convolutions of a `with` block by `"events"` or `"dense"`, or as the data say: `"auto"`.

    The choice holds for the whole process. Spikes may differ by the rounding of the currents, as a dense convolution
    library adds in an order of its own.

    >>> import torch, snnlib
    >>> layer = snnlib.SRMConv2d(1, 2, 3)
    >>> with snnlib.use_convolution("dense"):
    ...     layer(torch.ones(4, 1, 1, 5, 5)).shape
    torch.Size([4, 1, 2, 3, 3])
    """
    global _choice  # noqa: PLW0603
    before, _choice = _choice, _checked(choice, "choice")
    try:
        yield
    finally:
        _choice = before


class Decision(NamedTuple):
    """The path of a convolution, what it was chosen by, and a sentence that says so."""

    path: Literal["events", "dense"]
    density: float
    events_cost: float
    dense_cost: float
    reason: str


def density(x: Tensor) -> float:
    """Share of nonzero elements in frames spread over steps and samples of the train `[T, N, ...]`."""
    if not x.numel():
        return 0.0
    steps, batch = x.shape[:2]
    frames = min(max(1, _SAMPLE // x[0, 0].numel()), steps * batch)
    numbers = torch.arange(frames)
    # Evenly over the steps; over the samples by the golden ratio, which follows no rhythm.
    sample = x[(2 * numbers + 1) * steps // (2 * frames), (numbers * 0.618 % 1 * batch).long()]
    return int(torch.count_nonzero(sample)) / sample.numel()


def costs(g: Geometry, share: float) -> tuple[float, float]:
    """(by events, dense) for inputs of which this share is not zero."""
    pixels = g.steps * g.batch * g.height * g.width
    vectors = math.ceil(g.channels / GROUP)
    dense = pixels * g.kernel_h * g.kernel_w * g.in_channels * vectors
    inputs = g.steps * g.batch * g.in_height * g.in_width * g.in_channels
    if scatters(g):
        rows = share * inputs * g.kernel_h
        row = _ROW + _ROW_VECTOR * math.ceil(g.kernel_w * g.channels / GROUP)
        return rows * row + inputs * _LOOK, _DENSE * dense
    near = 4 * g.kernel_w * g.in_channels * g.channels <= _NEAR_BYTES
    runs = pixels * g.kernel_h * math.ceil(vectors / 8)
    events = share * dense * (_GATHER if near else _GATHER_FAR)
    return events + runs * _RUN + inputs * _LOOK, _DENSE * dense


def decide(x: Tensor, g: Geometry, streaming: bool) -> Decision:
    """The path of one call; a stream always goes by events, whose sums do not depend on the chunk."""
    share = density(x)
    by_events, dense = costs(g, share)
    facts = f"{share:.1%} of the inputs are events; cost {by_events:.3g} by events, {dense:.3g} dense"
    if _choice != "auto":
        return Decision(_choice, share, by_events, dense, f"asked for; {facts}")
    if streaming:
        return Decision("events", share, by_events, dense, f"a stream keeps one order of addition; {facts}")
    if by_events < _SMALL:
        return Decision("events", share, by_events, dense, f"too small to matter; {facts}")
    return Decision("events" if by_events <= dense else "dense", share, by_events, dense, facts)
