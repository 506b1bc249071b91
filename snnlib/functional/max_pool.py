"""Max pooling of frames with torch's values and gradients, on the kernels where they can run."""

from __future__ import annotations

import math

import torch.nn.functional as F
from torch import Tensor

from snnlib import ops
from snnlib.backends import native
from snnlib.backends.reference.pool import output_size


def max_pool2d(
    frames: Tensor,
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    ceil_mode: bool,
) -> Tensor:
    """`torch.nn.functional.max_pool2d` of frames `[B, C, H, W]`, with the same bits of value and gradient.

    The kernels keep a byte per window for the backward pass, where torch keeps the frames and 8 bytes per window. A
    GPU, dilated windows, those above 256 cells and dtypes without kernels take torch's.

    >>> import torch
    >>> x = torch.tensor([[0.0, 2, 1], [2, 1, 3]])[None, None].requires_grad_()
    >>> y = max_pool2d(x, (2, 2), (1, 1), (0, 0), (1, 1), False)
    >>> y.flatten().tolist()
    [2.0, 3.0]
    >>> y.sum().backward()
    >>> x.grad.flatten().tolist()                       # the first of equals
    [0.0, 1.0, 0.0, 0.0, 0.0, 1.0]
    """
    fits = (
        frames.dim() == 4
        and native.has_kernel("max_pool_forward", frames)
        and set(dilation) == {1}
        and math.prod(kernel) <= ops.max_pool.LARGEST_WINDOW
        and all(2 * zeros <= size for zeros, size in zip(padding, kernel, strict=True))
        # torch says what does not fit.
        and all(
            output_size(*axis, ceil_mode) >= 1
            for axis in zip(frames.shape[2:], kernel, stride, padding, strict=True)
        )
    )
    if frames.dim() == 4 and not frames.shape[1]:
        # torch takes an empty batch, but no frames without channels.
        none = max_pool2d(
            frames.reshape(0, 1, *frames.shape[2:]), kernel, stride, padding, dilation, ceil_mode
        )
        return none.reshape(*frames.shape[:2], *none.shape[2:])
    if not fits or 0 in frames.shape:
        if max(dilation) > 1 and frames.dim() == 4:
            _check_windows(frames, kernel, stride, padding, dilation, ceil_mode)
        return F.max_pool2d(frames, kernel, stride, padding, dilation, ceil_mode)
    out: Tensor = ops.pool.pool_forward(frames, kernel, stride, padding, ceil_mode, True, None, True)[0]
    return out


def _check_windows(
    frames: Tensor,
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    ceil_mode: bool,
) -> None:
    """Raise ValueError for a window all of whose taps lie in the padding, where torch's gradient corrupts memory."""
    for size, taps, step, zeros, gap in zip(frames.shape[2:], kernel, stride, padding, dilation, strict=True):
        for window in range(output_size(size, gap * (taps - 1) + 1, step, zeros, ceil_mode)):
            first = window * step - zeros
            if not any(0 <= cell < size for cell in range(first, first + gap * taps, gap)):
                raise ValueError(
                    f"padding: expected a cell of the input in every window of {tuple(kernel)} with dilation "
                    f"{tuple(dilation)}, got padding {tuple(padding)} around {tuple(frames.shape[2:])}"
                )
