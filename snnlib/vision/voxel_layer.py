"""Pooling of points over the cells of a grid as a layer; equation and options in `snnlib.functional`."""

from __future__ import annotations

from typing import get_args

from torch import Tensor, nn

from snnlib.checks import check_choice
from snnlib.vision.voxel import Bounds, Reduce, voxel_cells, voxel_pool

__all__ = ["VoxelPool"]


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
