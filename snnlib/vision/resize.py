"""Bicubic resizing of frames."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, get_args

import torch
from torch import Tensor

from snnlib.checks import as_sizes, check_choice, check_flag, check_floating, check_rank, without_autocast

__all__ = ["resize_bicubic"]

Align = Literal["half_pixel", "corner"]


def cubic_kernel(offset: Tensor, a: float = -0.75) -> Tensor:
    """Keys' cubic convolution kernel, the weight of a pixel at distance `offset`, in pixels::

        k(t) = (a+2)|t|^3 - (a+3)|t|^2 + 1          |t| <= 1
               a|t|^3 - 5a|t|^2 + 8a|t| - 4a        1 < |t| < 2
               0                                    otherwise

    Exactly 1 at 0 and exactly 0 at other integers, for any a.

    >>> import torch, snnlib
    >>> snnlib.vision.resize.cubic_kernel(torch.tensor([0.0, 0.5, 1.0, -1.5]), a=-1.0).tolist()
    [1.0, 0.625, 0.0, -0.125]
    """
    t = offset.abs()
    # Factored, for the exact zeros.
    near = (1 - t) * (1 + (1 - (a + 2) * t) * t)
    far = a * (t - 1) * (t - 2) ** 2
    return torch.where(t <= 1, near, torch.where(t < 2, far, 0.0))


def _weights(
    inputs: int, outputs: int, ratio: float, a: float, antialias: bool, align: Align, device: torch.device
) -> Tensor:
    """The matrix `[outputs, inputs]` that resizes one axis, float64."""
    shift = 0.5 if align == "half_pixel" else 0.0
    stretch = max(ratio, 1.0) if antialias else 1.0
    source = (torch.arange(outputs, dtype=torch.float64, device=device) + shift) * ratio - shift
    # Without antialias, two pixels beyond either border repeat the one at the border.
    beyond = 0 if antialias else 2
    pixels = torch.arange(-beyond, inputs + beyond, device=device)
    weights = cubic_kernel((pixels - source.unsqueeze(1)) / stretch, a)
    if antialias:
        return weights / weights.sum(1, keepdim=True)
    return weights.new_zeros(outputs, inputs).index_add(1, pixels.clamp(0, inputs - 1), weights)


def _sizes_and_ratios(
    x: Tensor, size: int | Sequence[int] | None, scale_factor: float | Sequence[float] | None
) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Output sizes, and input pixels per output pixel, along H and W."""
    frame = x.shape[-2:]
    if size is not None and scale_factor is None:
        sizes = as_sizes("size", size, 2, minimum=1)
        return sizes, tuple(pixels / out for pixels, out in zip(frame, sizes, strict=True))
    if size is not None or scale_factor is None:
        raise ValueError(f"size: expected either size or scale_factor, got {size} and {scale_factor}")
    scales = tuple(scale_factor) if isinstance(scale_factor, Sequence) else (scale_factor,) * 2
    if len(scales) != 2 or not all(0 < scale < math.inf for scale in scales):
        raise ValueError(f"scale_factor: expected a number > 0 or 2 of them, got {scale_factor!r}")
    sizes = tuple(math.floor(pixels * scale) for pixels, scale in zip(frame, scales, strict=True))
    if min(sizes) < 1:
        raise ValueError(
            f"scale_factor: expected an output of at least one pixel from {tuple(frame)}, got {scale_factor!r}"
        )
    return sizes, tuple(1 / scale for scale in scales)


def resize_bicubic(
    x: Tensor,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
    *,
    a: float = -0.75,
    antialias: bool = False,
    align: Align = "half_pixel",
) -> Tensor:
    """Frames resized by cubic interpolation along each axis: `y = W_h x W_w^T`.

    With r input pixels per output pixel and `k = cubic_kernel`, row i of a weight matrix is::

        W[i, j] = k((j - source(i)) / s)            source(i) = (i + 1/2) r - 1/2  (half_pixel)  or  i r  (corner)

    s is 1, or max(r, 1) with `antialias`. Beyond the border the last pixel is repeated; with `antialias` the weights
    inside are divided by their sum. Rows sum to 1, so a constant frame stays what it is. The backward pass is the
    exact adjoint `dL/dx = W_h^T g W_w`.

    The kernel has negative lobes: event counts may come out below 0, and next to an edge above its brighter side. It
    does not preserve sums either. To shrink counts and keep them, add pixels up: `4 * F.avg_pool2d(x, 2)`. Without
    `antialias` a shrunk frame misses most isolated events; with "corner" and an integer ratio it is `x[::r, ::r]`.

    Equal to `torch.nn.functional.interpolate(mode="bicubic", align_corners=False)` and to OpenCV with a = -0.75, and
    to torch's antialiased version and to Pillow with a = -0.5 and `antialias`. The weights are dense matrices, one way
    for all options, differentiable any number of times. An infinite or NaN pixel therefore spreads over its whole
    frame, and float32 products on a GPU follow `torch.set_float32_matmul_precision`.

    Args:
        x: frames `[..., H, W]`, any leading dimensions or none, floating; half types are computed in float32.
        size: output pixels, an integer for both axes or `(height, width)`; r = input / output pixels.
        scale_factor: in place of `size`, a factor for both axes or `(height, width)`: `floor(factor * pixels)` output
            pixels, r = 1 / factor.
        a: slope of the kernel at 1. Default -0.75, as in torch and OpenCV; -0.5 is exact for parabolas.
        antialias: whether shrinking widens the kernel so that every pixel counts. Default False, as in torch.
        align: `"half_pixel"` (default) aligns the outer borders of both frames, `"corner"` the centres of their
            top left pixels, `source = i r` (some published code does so, with a = -1).

    Returns:
        Frames `[..., height, width]`, dtype and device of x.

    Raises:
        TypeError: x is not a floating-point tensor.
        ValueError: x without pixels or two dimensions, or an option out of its range; the message names it.

    Source: Keys, "Cubic Convolution Interpolation for Digital Image Processing", IEEE TASSP 1981.

    >>> import torch, snnlib
    >>> x = torch.arange(16.0).reshape(4, 4)
    >>> snnlib.functional.resize_bicubic(x, 2).tolist()
    [[2.03125, 4.21875], [10.78125, 12.96875]]
    >>> snnlib.functional.resize_bicubic(x, scale_factor=0.5, align="corner").tolist()
    [[0.0, 2.0], [8.0, 10.0]]
    """
    check_floating("x", x)
    check_rank("x", x, "[..., H, W]", at_least=2)
    if min(x.shape[-2:]) < 1:
        raise ValueError(f"x: expected at least one pixel, got shape {tuple(x.shape)}")
    check_flag("antialias", antialias)
    check_choice("align", align, *get_args(Align))
    sizes, ratios = _sizes_and_ratios(x, size, scale_factor)
    dtype = torch.promote_types(x.dtype, torch.float32)
    rows, columns = (
        _weights(inputs, outputs, ratio, a, antialias, align, x.device).to(dtype)
        for inputs, outputs, ratio in zip(x.shape[-2:], sizes, ratios, strict=True)
    )
    # Autocast would round the frames to half precision.
    with without_autocast(x):
        resized = rows @ x.to(dtype) @ columns.mT
    return resized.to(x.dtype)
