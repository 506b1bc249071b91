"""Average pooling over sequences with ordinary gradients, for windows that do not overlap."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from snnlib import ops


class _ApartAvgPool(torch.autograd.Function):
    """Nothing is kept for backward, where torch's pooling keeps its input."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, window: tuple[int, int]) -> Tensor:
        ctx.shape, ctx.window = x.shape, window
        frames: Tensor = ops.pool.spike_avg_pool(x.flatten(0, 1), window, window, (0, 0), False, True, None)
        return frames.view(*x.shape[:2], *frames.shape[1:])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (high, wide), shape = ctx.window, ctx.shape
        rows, columns = grad.shape[3:]
        # Channels last, as the layers before it want their gradient: every share is copied to the cells of its window.
        share = (grad / (high * wide)).permute(0, 1, 3, 4, 2)
        spread = share[:, :, :, None, :, None].expand(-1, -1, -1, high, -1, wide, -1)
        cells = spread.reshape(*shape[:2], rows * high, columns * wide, shape[2])
        below, beside = shape[3] - rows * high, shape[4] - columns * wide
        if below or beside:
            cells = F.pad(cells, (0, 0, 0, beside, 0, below))
        return cells.permute(0, 1, 4, 2, 3), None


def apart_avg_pool2d(x: Tensor, window: tuple[int, int]) -> Tensor:
    """Means of windows of a sequence `[T, N, C, H, W]` without overlap and padding; cells in no window are left out.

    `y[i, j] = mean of x over the window`, `dL/dx = (dL/dy) / (cells of a window)`: torch's `avg_pool2d`.

    >>> import torch
    >>> apart_avg_pool2d(torch.arange(6.0).reshape(1, 1, 1, 2, 3), (2, 2)).tolist()
    [[[[[2.0]]]]]
    """
    out: Tensor = _ApartAvgPool.apply(x, window)  # type: ignore[no-untyped-call]
    return out
