"""Sizes of an event-driven convolution, and what follows from them alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

# Neurons of a band, whose state stays in the L2 cache while it walks through time.
_BAND_NEURONS = 32768
# Tasks that keep several cores busy with a small batch.
_LEAST_TASKS = 8
# Rows of weights are padded to whole vectors of the widest instruction set.
GROUP = 16


class Geometry(NamedTuple):
    """Sizes of one call, in the order of `Shape` in cpp/bindings/srm_conv.cpp."""

    steps: int
    batch: int
    in_channels: int
    in_height: int
    in_width: int
    channels: int
    height: int
    width: int
    kernel_h: int
    kernel_w: int
    stride_h: int
    stride_w: int
    padding_h: int
    padding_w: int

    @property
    def neuron_steps(self) -> int:
        """Elements of the spike train."""
        return self.steps * self.batch * self.height * self.row

    @property
    def row(self) -> int:
        """Neurons of an output row."""
        return self.width * self.channels

    def bands(self, pool_h: int) -> tuple[int, int]:
        """(rows of a band, bands of a sample): by shape alone, so that no result depends on the threads."""
        lines = math.ceil(self.height / pool_h)
        most = min(_BAND_NEURONS // max(pool_h * self.row, 1), lines * self.batch // _LEAST_TASKS)
        rows = math.ceil(lines / math.ceil(lines / max(1, min(most, lines)))) * pool_h
        return rows, math.ceil(self.height / rows)


def geometry(
    x: Tensor, weight: Tensor, stride: Sequence[int], padding: Sequence[int], time_dim: int
) -> Geometry:
    """Sizes of a train `[T, N, C, H, W]` (`[N, T, ...]` for time dimension 1) under a weight `[O, C, kh, kw]`."""
    steps, batch = x.shape[time_dim], x.shape[1 - time_dim]
    height, width = (
        (size + 2 * zeros - taps) // step + 1
        for size, taps, step, zeros in zip(x.shape[3:], weight.shape[2:], stride, padding, strict=True)
    )
    kernel_h, kernel_w = weight.shape[2:]
    sizes = (
        steps,
        batch,
        *x.shape[2:],
        weight.shape[0],
        height,
        width,
        kernel_h,
        kernel_w,
        *stride,
        *padding,
    )
    return Geometry._make(sizes)


def scatters(g: Geometry) -> bool:
    """Scatter where a gather would fill half a vector, and where the kernel makes its outputs neighbours."""
    return g.channels < 2 * GROUP and g.width > 1 and g.stride_w == 1 and 1 < g.kernel_w > g.padding_w


def scatters_back(g: Geometry) -> bool:
    """The transposed convolution can scatter with any stride, and gather whole vectors of channels with stride 1."""
    gathers = g.in_channels >= 2 * GROUP and g.in_channels % GROUP == 0 and g.stride_w == 1
    return not (gathers and g.padding_w < g.kernel_w)
