"""Choose the dense algorithm of a convolution from its sizes: torch's, one product per kernel element, or Winograd's.

Costs are nanoseconds of one core, fitted on an AMD EPYC of Zen 4 (`benchmarks/cpu/convolution_paths.py`;
docs/measurements/speed.md has the table). They hold what ordering weights takes: oneDNN brings weights into an order of
its own in each pass, which takes most of its time on images of a few pixels.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Literal, NamedTuple, get_args

from snnlib.backends.geometry import GROUP, Geometry
from snnlib.backends.memo import MOST

Pass = Literal["currents", "input", "weight"]
Algorithm = Literal["torch", "elements", "winograd"]
PASSES: tuple[Pass, ...] = get_args(Pass)

# A multiply-add of a vector of 16 channels: in oneDNN's convolutions, those of the weight gradient, in matrix products,
# and in the products of Winograd's tiles.
_TORCH, _TORCH_WEIGHT, _PRODUCT, _TILE = 0.27, 0.34, 0.4, 0.36
# A weight: ordered by oneDNN, in the weight gradient; copied for products; read by a product without a copy;
# transformed by Winograd's algorithm, and copied and transformed in the forward pass. Above `MANY` weights, which
# outgrow caches, the factor of the last two.
_ORDER, _ORDER_BACK, _COPY, _READ = 1.0, 2.5, 0.75, 0.15
_TRANSFORM, _TRANSFORM_FORWARD, _MANY_FACTOR = 1.1, 1.7, 2.0
MANY = 1 << 20
# Calls: one of a convolution, and one product with the copies around it.
_CALL, _ELEMENT = 15e3, 18e3
# A number of the wider operand of a product, which is read once.
_WIDE = 1.0
# An output and an input of the forward pass, which are read and written once.
_OUTPUT, _INPUT = 0.4, 1.0
# Channels from which on Winograd's algorithm gains, of what it reads and of what it writes.
_READ_CHANNELS, _WRITTEN_CHANNELS = 32, 64


class Choice(NamedTuple):
    """A dense algorithm, and its cost."""

    algorithm: Algorithm
    cost: float


def span(at: int, size: int, outputs: int, stride: int) -> tuple[slice, slice] | None:
    """Returns outputs of an axis whose input `output * stride + at` lies in the image, and these inputs."""
    first, last = max(0, -(at // stride)), min(outputs - 1, (size - 1 - at) // stride)
    if first > last:
        return None
    start = first * stride + at
    return slice(first, last + 1), slice(start, last * stride + at + 1, stride)


def _seen(g: Geometry) -> int:
    """Returns the number of pairs of an input and an output pixel that meet under a kernel element, in one frame."""
    axes = (
        (g.in_height, g.height, g.kernel_h, g.kernel[-2], g.stride_h, g.padding_h),
        (g.in_width, g.width, g.kernel_w, g.kernel[-1], g.stride_w, g.padding_w),
    )
    pairs = 1
    for size, outputs, extent, elements, stride, padding in axes:
        gap = (extent - 1) // max(elements - 1, 1)
        spans = (span(element * gap - padding, size, outputs, stride) for element in range(elements))
        pairs *= sum(found[0].stop - found[0].start for found in spans if found)
    return pairs


def fits_winograd(g: Geometry, of: Pass) -> bool:
    """Returns whether Winograd's algorithm can take this pass, with channels enough to be faster than torch."""
    read, written = (g.in_channels, g.channels) if of == "currents" else (g.channels, g.in_channels)
    plain = g.kernel == (g.kernel_h, g.kernel_w) == (3, 3) and g.groups == g.stride_h == g.stride_w == 1
    padded = g.padding_h == g.padding_w <= 2
    return of != "weight" and plain and padded and read >= _READ_CHANNELS and written >= _WRITTEN_CHANNELS


@lru_cache(MOST)
def costs(g: Geometry, of: Pass) -> dict[Algorithm, float]:
    """Returns the cost of each algorithm that can take a pass."""
    frames, weights = g.steps * g.batch, g.taps * g.in_channels * g.channels // g.groups
    outputs, inputs = frames * g.height * g.width, frames * g.in_height * g.in_width
    moved = (outputs * g.channels * _OUTPUT + inputs * g.in_channels * _INPUT) if of == "currents" else 0.0
    # Each multiply-add of vectors along the channels that the pass writes.
    read, written = (g.channels, g.in_channels) if of == "input" else (g.in_channels, g.channels)
    vectors = read // g.groups * math.ceil(written / GROUP)
    torch, order = (_TORCH_WEIGHT, _ORDER_BACK) if of == "weight" else (_TORCH, _ORDER)
    found: dict[Algorithm, float] = {
        "torch": _CALL + outputs * g.taps * vectors * torch + weights * order + moved
    }
    if len(g.space) == 2 and g.groups == 1:
        products = frames * _seen(g) * vectors * _PRODUCT
        copies = weights * (_READ if g.taps == 1 else _COPY)
        found["elements"] = g.taps * _ELEMENT + products + copies + moved
    if fits_winograd(g, of):
        height, width = (g.height, g.width) if of == "currents" else (g.in_height, g.in_width)
        tiles = frames * math.ceil(height / 2) * math.ceil(width / 2)
        transform = _TRANSFORM_FORWARD if of == "currents" else _TRANSFORM
        many = _MANY_FACTOR if weights > MANY else 1.0
        found["winograd"] = _CALL + tiles * 16 * vectors * _TILE + weights * transform * many + moved
    return found


@lru_cache(MOST)
def cheapest(g: Geometry, of: Pass) -> Choice:
    """Returns the algorithm of the least cost; a fully connected layer is one product of its weights as they are."""
    if is_product(g):
        return Choice("elements", _product_cost(g, of))
    found = costs(g, of)
    best = min(found, key=lambda name: found[name])
    return Choice(best, found[best])


def _product_cost(g: Geometry, of: Pass) -> float:
    """Returns the cost of one matrix product; narrow ones take the time in which their wide operand is read."""
    rows, inputs, outputs = g.steps * g.batch, g.taps * g.in_channels, g.channels
    written = inputs if of == "input" else outputs
    vectors = inputs * outputs // max(written, 1) * math.ceil(written / GROUP)
    return _CALL + inputs * outputs * _READ + rows * max(vectors * _PRODUCT, max(inputs, outputs) * _WIDE)


def is_product(g: Geometry) -> bool:
    """Returns whether the kernel is as large as the image: the layer is fully connected."""
    whole = (g.in_height, g.in_width) == (g.kernel_h, g.kernel_w) and g.taps == g.kernel_h * g.kernel_w
    return whole and g.padding_h == g.padding_w == 0 and g.groups == 1 and len(g.space) == 2
