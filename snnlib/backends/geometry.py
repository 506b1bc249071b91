"""Sizes of a layer's convolution, and choices that depend on sizes only."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import NamedTuple

from torch import Tensor

from snnlib.backends.memo import once

# Neurons of a band, whose state stays in the L2 cache while it walks through time.
_BAND_NEURONS = 32768
# Tasks that keep several cores busy with a small batch.
_LEAST_TASKS = 8
# Rows of weights are padded to whole vectors of the widest instruction set.
GROUP = 16
# Floats of a frame or a kernel row that the event-driven kernels count with 32 bits.
_MOST_FLOATS = 2**31


class ConvOptions(NamedTuple):
    """Options of a convolution: as `torch.nn.functional.conv*d` has them, and in its order."""

    stride: Sequence[int]
    padding: Sequence[int]
    dilation: Sequence[int]
    groups: int

    @classmethod
    def of(cls, arguments: SimpleNamespace) -> ConvOptions:
        """Returns the options among the arguments of an op."""
        stride, padding, dilation = arguments.stride, arguments.padding, arguments.dilation
        return cls(tuple(stride), tuple(padding), tuple(dilation), arguments.groups)


class Geometry(NamedTuple):
    """Sizes of one call as the kernels know it: a plain 2-D convolution.

    A dilated kernel includes the zeros between its elements. Neurons are treated as rows: `[D, H, W]` is `D * H` rows
    of W.
    """

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
    # Geometry as given: space axes of the output before pooling, groups, and the kernel without zeros.
    space: tuple[int, ...]
    groups: int
    kernel: tuple[int, ...]

    @property
    def taps(self) -> int:
        """Elements of the kernel."""
        return math.prod(self.kernel)

    @property
    def shape(self) -> dict[str, int]:
        """`ConvShape` of cpp/include/snnlib/layer/layer.h."""
        return dict(zip(self._fields[:14], self[:14], strict=True))

    @property
    def unsupported(self) -> str:
        """Returns why no event-driven kernel can take this convolution; empty if one can."""
        if self.groups > 1:
            return "the event-driven kernels have no groups"
        if len(self.space) > 2:
            return "the event-driven kernels have no third axis"
        return "a frame or a kernel is too large for the event-driven kernels" if self._too_large else ""

    @property
    def _too_large(self) -> bool:
        """Returns whether an offset in a padded frame or in the weights of a kernel row might not fit into 32 bits."""
        inputs, outputs = self.in_channels + GROUP, self.channels + GROUP
        frame = self.in_height * (self.in_width + 2 * self.padding_w + 2) * inputs
        signal = (self.height + 1) * (self.in_width * self.stride_w + self.kernel_w) * outputs
        return max(frame, signal, self.kernel_w * inputs * outputs) >= _MOST_FLOATS

    @property
    def neuron_steps(self) -> int:
        """Elements of the output spike tensor before pooling."""
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


@once
def geometry(x: Tensor, weight: Tensor, options: ConvOptions) -> Geometry:
    """Sizes of `[T, N, C, (D), H, W]` under `[O, C / groups, ...]`."""
    extents = [(taps - 1) * step + 1 for taps, step in zip(weight.shape[2:], options.dilation, strict=True)]
    axes = zip(x.shape[3:], extents, options.stride, options.padding, strict=True)
    space = tuple((size + 2 * zeros - extent) // step + 1 for size, extent, step, zeros in axes)
    sizes = (
        *x.shape[:3],
        math.prod(x.shape[3:-1]),
        x.shape[-1],
        weight.shape[0],
        math.prod(space[:-1]),
        space[-1],
        *extents[-2:],
        *options.stride[-2:],
        *options.padding[-2:],
    )
    # Not by `_make`, into which the compiler of torch 2.6 does not look.
    return Geometry(*sizes, space, options.groups, tuple(weight.shape[2:]))  # type: ignore[call-arg]


def scatters(g: Geometry) -> bool:
    """Scatter where a gather would fill half a vector, and where the kernel makes its outputs neighbours."""
    return g.channels < 2 * GROUP and g.width > 1 and g.stride_w == 1 and 1 < g.kernel_w > g.padding_w


def scatters_back(g: Geometry) -> bool:
    """The transposed convolution can scatter with any stride, and gather whole vectors of channels with stride 1.

    Pixels without a neighbour may end in part of a vector.
    """
    whole = g.in_channels % GROUP == 0 or g.in_width == 1
    gathers = g.in_channels >= 2 * GROUP and whole and g.stride_w == 1
    return not (gathers and g.padding_w < g.kernel_w)


def block_channels(g: Geometry) -> int:
    """Output channels that the weight gradient by inputs deals with at a time."""
    return 2 * GROUP if (-(-g.channels // GROUP) * GROUP) % (2 * GROUP) == 0 else GROUP
