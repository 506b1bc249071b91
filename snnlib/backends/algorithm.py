"""Choose the event-driven or the dense convolution from input density and layer shape.

Costs are nanoseconds of one core beyond what both algorithms need; the factors were measured on a core with AVX-512 at
3.6 GHz (docs/measurements/speed.md has the table). The choice depends on data and shapes only, never on the time of
day: the same call takes the same algorithm. The environment variable `SNNLIB_CONVOLUTION` sets the choice of a process,
`use_convolution` that of a block.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from snnlib.backends.geometry import GROUP, Geometry, scatters
from snnlib.backends.process_setting import ProcessSetting

Convolution = Literal["auto", "events", "dense"]

# Below this cost there is nothing to gain.
_SMALL = 5e5
# Elements that are looked at for the density of a sequence: a sixteenth, but some frames at least and never too many.
_SAMPLE, _LEAST_SAMPLE, _MOST_SAMPLE = 1 / 16, 1 << 13, 1 << 16
# Dense: a multiply-add of a vector of 16 channels, an output, an input.
_DENSE, _OUTPUT, _INPUT = 0.27, 0.4, 1.0
# Event lists: looking whether an input is an event, and an event.
_LOOK, _EVENT = 0.5, 1.0
# Gather: a vector of weights of an event, with those of one kernel row in the first and in the second cache; the least
# for all vectors of an event, as they are added one after the other; start of a run of events.
_GATHER, _GATHER_FAR, _NEAR_BYTES, _CHAIN, _RUN = 0.34, 0.58, 24 << 10, 0.75, 6.0
# Where all weights do not fit into the second cache: a vector by gather, and tap by tap.
_GATHER_FARTHEST, _TAPS, _FAR_BYTES = 1.7, 1.1, 2 << 20
# Scatter: a vector of an event; start of a pixel with events, and a vector of it.
_SCATTER, _PIXEL, _PIXEL_VECTOR = 0.55, 9.0, 0.2


_choice: ProcessSetting[Convolution] = ProcessSetting("SNNLIB_CONVOLUTION", get_args(Convolution))


@contextmanager
def use_convolution(choice: Convolution) -> Iterator[None]:
    """Run the convolutions of a `with` block by `"events"` or `"dense"`, or as the data say: `"auto"`.

    Forward and backward passes alike, each by the choice at its time. The choice holds for the whole process; of blocks
    in several threads that of the block that began last. Spikes may differ by the rounding of the currents, as a dense
    convolution library adds in an order of its own. On a GPU `"events"` takes the CPU's order, slowly, for its spikes
    bit for bit (`docs/cuda.md`); the others leave convolutions to torch there.

    >>> import torch, snnlib
    >>> layer = snnlib.SRMConv2d(1, 2, 3)
    >>> with snnlib.use_convolution("dense"):
    ...     layer(torch.ones(4, 1, 1, 5, 5)).shape
    torch.Size([4, 1, 2, 3, 3])
    """
    with _choice.use(choice, "choice"):
        yield


def chosen() -> Convolution:
    """The choice that holds now."""
    return _choice.value


class Decision(NamedTuple):
    """The path of a convolution, what it was chosen by, and a sentence that says so."""

    path: Literal["events", "dense"]
    density: float
    events_cost: float
    dense_cost: float
    reason: str


def density(x: Tensor) -> float:
    """Share of nonzero elements in frames spread over steps and samples of the spike tensor `[T, N, ...]`."""
    if not x.numel():
        return 0.0
    steps, batch = x.shape[:2]
    elements = min(max(_LEAST_SAMPLE, int(_SAMPLE * x.numel())), _MOST_SAMPLE)
    frames = min(max(1, elements // x[0, 0].numel()), steps * batch)
    # Evenly over the steps; over the samples by the golden ratio, which follows no rhythm.
    step = [(2 * i + 1) * steps // (2 * frames) for i in range(frames)]
    sample = x[step, [int(i * 0.618 % 1 * batch) for i in range(frames)]]
    return int(torch.count_nonzero(sample)) / sample.numel()


def costs(g: Geometry, share: float, neurons: bool = True) -> tuple[float, float]:
    """(event-driven, dense) for inputs of which this share is not zero; of currents with or without `neurons` behind.

    The event-driven algorithm has zeros between the taps of a dilated kernel, the dense one none.
    """
    frames = g.steps * g.batch
    in_pixels, pixels = frames * g.in_height * g.in_width, frames * g.height * g.width
    inputs, vectors = in_pixels * g.in_channels, math.ceil(g.channels / GROUP)
    taps = pixels * g.kernel_h * g.kernel_w * g.in_channels
    dense_taps = pixels * g.taps * g.in_channels // g.groups
    dense = dense_taps * vectors * _DENSE + pixels * g.channels * _OUTPUT + inputs * _INPUT
    if g.unsupported:
        return math.inf, dense
    lists = inputs * (_LOOK + share * _EVENT)
    if scatters(g):
        row_vectors = g.kernel_h * math.ceil(g.kernel_w * g.channels / GROUP)
        active = in_pixels * (1 - (1 - share) ** g.in_channels)
        starts = active * (_PIXEL + _PIXEL_VECTOR * row_vectors)
        return lists + starts + share * inputs * row_vectors * _SCATTER, dense
    near = 4 * g.kernel_w * g.in_channels * g.channels <= _NEAR_BYTES
    far = (_GATHER_FARTHEST if neurons else _TAPS) if _outgrows_cache(g) else _GATHER_FAR
    per_tap = max(vectors * (_GATHER if near else far), _CHAIN)
    runs = pixels * g.kernel_h * math.ceil(vectors / 8)
    return lists + share * taps * per_tap + runs * _RUN, dense


def is_matrix(g: Geometry) -> bool:
    """Returns whether the layer is fully connected over channels alone: one cell, one tap and no padding around."""
    one_cell = (g.in_height, g.in_width, g.taps) == (1, 1, 1)
    return not g.unsupported and one_cell and (g.padding_h, g.padding_w) == (0, 0)


def by_taps(g: Geometry) -> bool:
    """Returns whether currents without neurons are summed tap by tap: if weights do not fit into the second cache."""
    return is_matrix(g) or _outgrows_cache(g)


def _outgrows_cache(g: Geometry) -> bool:
    return not g.unsupported and not scatters(g) and 4 * g.taps * g.in_channels * g.channels > _FAR_BYTES


def decide(x: Tensor, g: Geometry, streaming: bool, neurons: bool = True) -> Decision:
    """The algorithm of one call; a stream is event-driven if it can be, as those sums do not depend on the chunk."""
    share = density(x)
    by_events, dense = costs(g, share, neurons)
    if g.unsupported:
        return Decision("dense", share, by_events, dense, g.unsupported)
    facts = f"{share:.1%} of the inputs are events; cost {by_events:.3g} event-driven, {dense:.3g} dense"
    if _choice.value != "auto":
        return Decision(_choice.value, share, by_events, dense, f"asked for; {facts}")
    if streaming:
        return Decision("events", share, by_events, dense, f"a stream keeps one order of addition; {facts}")
    if by_events < _SMALL:
        return Decision("events", share, by_events, dense, f"too small to matter; {facts}")
    return Decision("events" if by_events <= dense else "dense", share, by_events, dense, facts)


def path(x: Tensor, g: Geometry, streaming: bool, neurons: bool = True) -> Literal["events", "dense"]:
    """Returns the path of `decide`, and reads the sequence only if the choice depends on it."""
    if g.unsupported:
        return "dense"
    if _choice.value != "auto":
        return _choice.value
    if streaming or costs(g, 1.0)[0] < _SMALL:
        return "events"
    return decide(x, g, streaming, neurons).path
