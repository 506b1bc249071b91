"""Superpixel and voxel pooling and bicubic resizing as layers; equations and options in `snnlib.functional`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

from torch import Tensor, nn

from snnlib.checks import check_choice
from snnlib.vision.resize import Align, resize_bicubic
from snnlib.vision.superpixel import superpixel_avg_pool2d
from snnlib.vision.voxel import Bounds, Reduce, voxel_cells, voxel_pool

__all__ = ["BicubicResize2d", "SuperpixelAvgPool2d", "VoxelPool"]


class SuperpixelAvgPool2d(nn.Module):
    """Mean of each superpixel: `[N, C, H, W]` or `[T, N, C, H, W]` and labels to `[..., C, K]`.

    See `snnlib.functional.superpixel_avg_pool2d`, which lists equation, shapes and errors. Superpixels without pixels
    give 0.

    Args:
        num_segments: number of superpixels K. Default `labels.max() + 1` of each batch.
        ignore_index: label of pixels that belong to no superpixel.

    >>> import torch, snnlib
    >>> pool = snnlib.SuperpixelAvgPool2d(num_segments=4)
    >>> pool(torch.rand(10, 2, 3, 6, 6), torch.randint(0, 4, (2, 6, 6))).shape
    torch.Size([10, 2, 3, 4])
    """

    def __init__(self, num_segments: int | None = None, ignore_index: int | None = None) -> None:
        super().__init__()
        self.num_segments = num_segments
        self.ignore_index = ignore_index

    def forward(self, image: Tensor, labels: Tensor) -> Tensor:
        """Means of the superpixels."""
        return superpixel_avg_pool2d(image, labels, self.num_segments, ignore_index=self.ignore_index)

    def extra_repr(self) -> str:
        """Segments."""
        return f"num_segments={self.num_segments}, ignore_index={self.ignore_index}"


class VoxelPool(nn.Module):
    """Features of points `[P, C]` to a grid `[B, C, *cells]`: see `snnlib.functional.voxel_pool`.

    Args:
        bounds: `(low, high, step)` of each axis, half-open cells, a whole number of them.
        reduce: `"sum"` (default), `"mean"` or `"max"` over the points of a cell.

    Raises:
        ValueError: bounds or reduction; the message says which.

    >>> import torch, snnlib
    >>> pool = snnlib.VoxelPool([(0, 34, 1), (0, 34, 1)])
    >>> pool
    VoxelPool(bounds=((0, 34, 1), (0, 34, 1)), cells=(34, 34), reduce=sum)
    >>> events, item = torch.randint(0, 34, (500, 2)), torch.randint(0, 8, (500,))
    >>> pool(torch.rand(500, 16), events, item, batch_size=8).shape
    torch.Size([8, 16, 34, 34])
    """

    def __init__(self, bounds: Bounds, reduce: Reduce = "sum") -> None:
        super().__init__()
        self.cells = voxel_cells(bounds)
        check_choice("reduce", reduce, *get_args(Reduce))
        self.bounds = tuple((low, high, step) for low, high, step in bounds)
        self.reduce: Reduce = reduce

    def forward(
        self, features: Tensor, points: Tensor, batch: Tensor | None = None, batch_size: int | None = None
    ) -> Tensor:
        """Grid of pooled features."""
        return voxel_pool(features, points, self.bounds, batch, batch_size, reduce=self.reduce)

    def extra_repr(self) -> str:
        """Grid."""
        return f"bounds={self.bounds}, cells={self.cells}, reduce={self.reduce}"


class BicubicResize2d(nn.Module):
    """Frames `[..., H, W]` resized by cubic interpolation: see `snnlib.functional.resize_bicubic`.

    >>> import torch, snnlib
    >>> shrink = snnlib.BicubicResize2d(scale_factor=0.5, a=-0.5, antialias=True)
    >>> shrink(torch.ones(3, 1, 2, 34, 34)).shape
    torch.Size([3, 1, 2, 17, 17])
    """

    def __init__(
        self,
        size: int | Sequence[int] | None = None,
        scale_factor: float | Sequence[float] | None = None,
        *,
        a: float = -0.75,
        antialias: bool = False,
        align: Align = "half_pixel",
    ) -> None:
        super().__init__()
        self.size, self.scale_factor = size, scale_factor
        self.a, self.antialias, self.align = a, antialias, align

    def forward(self, x: Tensor) -> Tensor:
        """Resized frames."""
        return resize_bicubic(
            x, self.size, self.scale_factor, a=self.a, antialias=self.antialias, align=self.align
        )

    def extra_repr(self) -> str:
        """Options, for `print(net)`."""
        target = f"size={self.size}" if self.size is not None else f"scale_factor={self.scale_factor}"
        return f"{target}, a={self.a:g}, antialias={self.antialias}, align={self.align!r}"
