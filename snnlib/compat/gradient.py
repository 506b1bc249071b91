"""Gradient decoupling under the published names."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from snnlib import functional


class GradientDecoupleLayer:
    """`GradientDecoupleLayer.apply(x, _lambda)`: `functional.grad_scale`.

    >>> import torch, snnlib
    >>> x = torch.tensor([1.0, -2.0, 3.0], requires_grad=True)
    >>> snnlib.compat.GradientDecoupleLayer.apply(x, 0.85).backward(torch.tensor([1.0, 2.0, -4.0]))
    >>> [round(g, 6) for g in x.grad.tolist()]
    [0.85, 1.7, -3.4]
    """

    @staticmethod
    def apply(x: Tensor, _lambda: float) -> Tensor:
        """x, with gradient `_lambda g`."""
        return functional.grad_scale(x, _lambda)


def decouple_layer(x: Tensor, _lambda: float) -> Tensor:
    """x, with gradient `_lambda g`: 1 passes it, 0 stops it, -1 reverses it.

    >>> import torch, snnlib
    >>> snnlib.compat.decouple_layer(torch.tensor([1.0, -2.0]), 0.01).tolist()
    [1.0, -2.0]
    """
    return functional.grad_scale(x, _lambda)


class AffineLayer(nn.Module):
    """`X * weight + bias` per channel of X `[N, C, H, W]` (or `[N, T, C, H, W]`), 1 and 0 at the start.

    The library's own: `ChannelAffine`, for any layout. This one keeps the published parameter shapes `[1, C, 1, 1]`,
    so that saved models load.

    >>> import torch, snnlib
    >>> snnlib.compat.AffineLayer(3, bias=True)(torch.ones(2, 3, 4, 4)).shape
    torch.Size([2, 3, 4, 4])
    """

    def __init__(self, num_channels: int, bias: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1, num_channels, 1, 1))
        self.bias = nn.Parameter(torch.zeros(1, num_channels, 1, 1)) if bias else None

    def forward(self, X: Tensor) -> Tensor:
        """Scaled and shifted channels."""
        channels = self.weight.shape[1]
        if X.dim() < 4 or X.shape[-3] != channels:
            raise ValueError(f"X: expected [..., {channels}, H, W], got shape {tuple(X.shape)}")
        out = X * self.weight
        return out if self.bias is None else out + self.bias
