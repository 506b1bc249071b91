"""Superpixel pooling under the published names."""

from __future__ import annotations

from torch import Tensor, nn

from snnlib import functional


class AveSupPixPoolFunction:
    """`AveSupPixPoolFunction.apply(img, spx)`: means of img `[N, C, H, W]` over superpixels spx `[N, H, W]`.

    The library's own: `functional.superpixel_avg_pool2d`. K is the largest label of the batch plus 1; superpixels
    without a pixel give 0.

    >>> import torch, snnlib
    >>> img, spx = torch.tensor([[[[1.0, 2], [3, 4]]]]), torch.tensor([[[0, 1], [1, 1]]])
    >>> snnlib.compat.AveSupPixPoolFunction.apply(img, spx).tolist()
    [[[1.0, 3.0]]]
    """

    @staticmethod
    def apply(img: Tensor, spx: Tensor) -> Tensor:
        """Means `[N, C, K]`."""
        return functional.superpixel_avg_pool2d(img, spx.long())


class AveSupPixPool(nn.Module):
    """`AveSupPixPoolFunction` as a module; the library's own is `SuperpixelAvgPool2d`."""

    def forward(self, img: Tensor, spx: Tensor) -> Tensor:
        """Means `[N, C, K]`."""
        return AveSupPixPoolFunction.apply(img, spx)


class SupPixUnpool(nn.Module):
    """Every pixel gets its superpixel's value: pooled `[N, C, K]`, spx `[N, H, W]` to `[N, C, H, W]`.

    The library's own: `superpixel_unpool`.

    >>> import torch, snnlib
    >>> spx = torch.tensor([[[0, 1], [1, 2]]])
    >>> snnlib.compat.SupPixUnpool()(torch.tensor([[[5.0, 7.0, 9.0]]]), spx).tolist()
    [[[[5.0, 7.0], [7.0, 9.0]]]]
    """

    def forward(self, pooled: Tensor, spx: Tensor) -> Tensor:
        """Image of the pooled values."""
        return functional.superpixel_unpool(pooled, spx.long())
