"""Average pooling over sequences with ordinary gradients, for windows that do not overlap."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from snnlib import ops


class _ApartAvgPool(torch.autograd.Function):
    """Nothing is kept for backward, where torch's pooling keeps its input."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, window: tuple[int, int]) -> Tensor:
        ctx.shape, ctx.window, ctx.planes = x.shape, window, x.is_contiguous()
        frames = x.flatten(0, 1)
        means: Tensor
        means, _ = ops.pool.pool_forward(frames, window, window, (0, 0), False, True, None, False)
        return means.view(*x.shape[:2], *means.shape[1:])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return ops.avg_pool.shares(grad, ctx.shape, ctx.window, ctx.planes), None


def apart_avg_pool2d(x: Tensor, window: tuple[int, int]) -> Tensor:
    """Means of windows of a sequence `[T, N, C, H, W]` without overlap and padding; cells in no window are left out.

    `y[i, j] = mean of x over the window`, `dL/dx = (dL/dy) / (cells of a window)`: torch's `avg_pool2d`.

    >>> import torch
    >>> apart_avg_pool2d(torch.arange(6.0).reshape(1, 1, 1, 2, 3), (2, 2)).tolist()
    [[[[[2.0]]]]]
    """
    out: Tensor = _ApartAvgPool.apply(x, window)  # type: ignore[no-untyped-call]
    return out
