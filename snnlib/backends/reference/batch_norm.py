"""Batch normalisation over all dimensions of `[T, N, C, ...]` but the channels, in float64."""

from __future__ import annotations

import torch
from torch import Tensor


def _over(x: Tensor) -> tuple[int, ...]:
    return tuple(dim for dim in range(x.dim()) if dim != 2)


def _along(values: Tensor, x: Tensor) -> Tensor:
    return values.reshape(-1, *[1] * (x.dim() - 3))


def moments(x: Tensor) -> Tensor:
    """Mean and variance per channel `[2, C]`; the variance is divided by the number of values."""
    wide = x.double()
    return torch.stack([wide.mean(_over(x)), wide.var(_over(x), unbiased=False)])


def backward_(grad: Tensor, x: Tensor, moments: Tensor, epsilon: float) -> Tensor:
    """`grad - mean(grad) - d mean(grad d) / (variance + epsilon)` with `d = x - mean`, in place; returns the sums."""
    distance = x.double() - _along(moments[0], x)
    sums = torch.stack([grad.double().sum(_over(x)), (grad.double() * distance).sum(_over(x))])
    count = max(x.numel() // max(x.shape[2], 1), 1)
    slope = sums[1] / (count * (moments[1] + epsilon))
    grad.sub_((_along(sums[0] / count, x) + distance * _along(slope, x)).to(grad.dtype))
    return sums
