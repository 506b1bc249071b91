"""Dense convolution of small images by one matrix product per kernel element, and its two gradients.

    currents[p] = sum over elements e of W[e] x[s p + d e - z]        W[e] [O, C]

with stride s, dilation d and padding z. Pixels that an element sees beside the image have no product, so 9 elements on
an image of 2x2 pixels cost 16 products of pixels and not 36. oneDNN's convolutions also reorder all weights in each
pass, which takes most of their time where rows are few. `backends.dense` chooses between both; reference:
`torch.nn.functional.conv2d`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from snnlib.backends.dense import span
from snnlib.backends.geometry import ConvOptions
from snnlib.backends.memo import MOST
from snnlib.ops.conv_layout import in_layout_of


class Seen(NamedTuple):
    """Pixels that meet under a kernel element: index of the element, of outputs and of inputs `[B, H, W, ...]`."""

    element: tuple[int, int]
    outputs: tuple[slice, slice, slice]
    inputs: tuple[slice, slice, slice]


@lru_cache(MOST)
def seen_pixels(
    size: tuple[int, ...], out: tuple[int, ...], kernel: tuple[int, ...], options: ConvOptions
) -> tuple[Seen, ...]:
    """Returns the pixels under each kernel element that sees any, first an element that all outputs see."""
    stride, padding, dilation, _ = options
    axes = [
        [
            (element, found)
            for element in range(kernel[axis])
            if (found := span(element * dilation[axis] - padding[axis], size[axis], out[axis], stride[axis]))
        ]
        for axis in range(2)
    ]
    every = slice(None)
    pairs = [
        Seen((ky, kx), (every, rows[0], columns[0]), (every, rows[1], columns[1]))
        for ky, rows in axes[0]
        for kx, columns in axes[1]
    ]
    return tuple(sorted(pairs, key=lambda seen: not _sees_all(seen, out)))


def _sees_all(seen: Seen, out: Sequence[int]) -> bool:
    return all(part.stop - part.start == size for part, size in zip(seen.outputs[1:], out, strict=True))


def _pixels(frames: Tensor) -> Tensor:
    """Returns `[B, H, W, C]` of frames, a view of channels-last ones."""
    return frames.permute(0, 2, 3, 1).contiguous()


def _elements(weight: Tensor) -> Tensor:
    """Returns `[kh, kw, O, C]` with rows of inputs, a view of channels-last weights."""
    return weight.contiguous(memory_format=torch.channels_last).permute(2, 3, 0, 1)


# An element with what a pass reads and writes under it.
_Pair = tuple[tuple[int, int], tuple[slice, ...], tuple[slice, ...]]


def _by_element(rows: Tensor, matrices: Tensor, out: Tensor, pairs: Sequence[_Pair]) -> Tensor:
    """Fills `out` with products of pixels and the element's matrix, summed over (element, read, written)."""
    if not pairs or out[pairs[0][2]].numel() < out.numel():
        out.zero_()
    for number, (element, read, written) in enumerate(pairs):
        part, place = rows[read], out[written]
        found = (part.reshape(-1, part.shape[-1]) @ matrices[element]).view(place.shape)
        if number or place.numel() < out.numel():
            place += found
        else:
            place.copy_(found)
    return out


def currents(frames: Tensor, weight: Tensor, out_size: Sequence[int], options: ConvOptions) -> Tensor:
    """Returns `[B, O, *out_size]`, channels-last, for frames `[B, C, H, W]` and a weight `[O, C, kh, kw]`, float32."""
    seen = seen_pixels(tuple(frames.shape[2:]), tuple(out_size), tuple(weight.shape[2:]), options)
    out = frames.new_empty(len(frames), *out_size, len(weight))
    pairs = [(one.element, one.inputs, one.outputs) for one in seen]
    return _by_element(_pixels(frames), _elements(weight).mT, out, pairs).permute(0, 3, 1, 2)


def input_gradient(signal: Tensor, weight: Tensor, size: Sequence[int], options: ConvOptions) -> Tensor:
    """Returns dL/dframes `[B, C, *size]`, channels-last, from dL/dcurrents `[B, O, ...]`."""
    seen = seen_pixels(tuple(size), tuple(signal.shape[2:]), tuple(weight.shape[2:]), options)
    out = signal.new_empty(len(signal), *size, weight.shape[1])
    pairs = [(one.element, one.outputs, one.inputs) for one in seen]
    return _by_element(_pixels(signal), _elements(weight), out, pairs).permute(0, 3, 1, 2)


def weight_gradient(signal: Tensor, frames: Tensor, weight: Tensor, options: ConvOptions) -> Tensor:
    """Returns dL/dW `[O, C, kh, kw]`, in the layout of the weight, from dL/dcurrents and the frames."""
    size, out, kernel = tuple(frames.shape[2:]), tuple(signal.shape[2:]), tuple(weight.shape[2:])
    seen = seen_pixels(size, out, kernel, options)
    rows, signals = _pixels(frames), _pixels(signal)
    # Channels-last: products write into rows of inputs.
    grad = rows.new_empty(signals.shape[-1], *kernel, rows.shape[-1]).permute(1, 2, 0, 3)
    if len(seen) < kernel[0] * kernel[1]:
        grad.zero_()
    for one in seen:
        part = signals[one.outputs].reshape(-1, signals.shape[-1])
        torch.mm(part.t(), rows[one.inputs].reshape(-1, rows.shape[-1]), out=grad[one.element])
    return in_layout_of(weight, grad.permute(2, 3, 0, 1))
