"""Max pooling of frames with torch's values and gradients, on the kernels where they can run."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor

from snnlib import ops
from snnlib.backends import native
from snnlib.backends.arguments import Windows


def max_pool2d(frames: Tensor, windows: Windows, dilation: tuple[int, ...] = (1, 1)) -> Tensor:
    """`torch.nn.functional.max_pool2d` of frames `[B, C, H, W]`, with the same bits of value and gradient.

    The kernels keep a byte per window for the backward pass, where torch keeps the frames and 8 bytes per window. A
    GPU, dilated windows, those above 256 cells and dtypes without kernels take torch's.

    >>> import torch
    >>> x = torch.tensor([[0.0, 2, 1], [2, 1, 3]])[None, None].requires_grad_()
    >>> y = max_pool2d(x, Windows((2, 2), (1, 1), (0, 0)))
    >>> y.flatten().tolist()
    [2.0, 3.0]
    >>> y.sum().backward()
    >>> x.grad.flatten().tolist()                       # the first of equals
    [0.0, 1.0, 0.0, 0.0, 0.0, 1.0]
    """
    if not frames.shape[1]:
        # torch takes an empty batch, but no frames without channels.
        none = max_pool2d(frames.reshape(0, 1, *frames.shape[2:]), windows, dilation)
        return none.reshape(*frames.shape[:2], *none.shape[2:])
    space = frames.shape[2:]
    kernel, stride, padding = (tuple(sizes) for sizes in windows[:3])
    if (
        native.has_kernel("max_pool_forward", frames)
        and 0 not in frames.shape
        and set(dilation) == {1}
        and math.prod(kernel) <= ops.max_pool.LARGEST_WINDOW
        # torch says what does not fit.
        and all(2 * zeros <= size for zeros, size in zip(padding, kernel, strict=True))
        and min(windows.counts(space)) >= 1
    ):
        out: Tensor = ops.pool.pool_forward(frames, *windows, True)[0]
        return out
    if max(dilation) > 1:
        _check_dilated(space, windows, dilation)
    return F.max_pool2d(frames, kernel, stride, padding, dilation, windows.ceil_mode)


def _check_dilated(space: Sequence[int], windows: Windows, dilation: Sequence[int]) -> None:
    """Raise ValueError for a window all of whose cells lie in the padding, where torch's gradient corrupts memory."""
    extents = [gap * (taps - 1) + 1 for gap, taps in zip(dilation, windows.kernel, strict=True)]
    counts = Windows(extents, *windows[1:]).counts(space)
    axes = zip(space, counts, extents, windows.stride, windows.padding, dilation, strict=True)
    for size, count, extent, step, zeros, gap in axes:
        for first in range(-zeros, count * step - zeros, step):
            if not any(0 <= cell < size for cell in range(first, first + extent, gap)):
                raise ValueError(
                    f"padding: expected a cell of the input in every window of {tuple(windows.kernel)} with dilation "
                    f"{tuple(dilation)}, got padding {tuple(windows.padding)} around {tuple(space)}"
                )
