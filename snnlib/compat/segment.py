"""Sums of points that share a voxel, under the published names."""

from __future__ import annotations

import torch
from torch import Tensor

from snnlib import functional


class VoxelsSumming:
    """`VoxelsSumming.apply(x, geometry, ranks)`: sums of the rows of x `[P, C]` that share a rank.

    The library's own: `segment_sum`. Ranks may come in any order; sums come in ascending order of rank.

    >>> import torch, snnlib
    >>> x, ranks = torch.tensor([[1.0], [2], [3]]), torch.tensor([2, 2, 5])
    >>> geometry = torch.tensor([[0, 0, 2], [0, 0, 2], [0, 0, 5]])
    >>> sums, voxels = snnlib.compat.VoxelsSumming.apply(x, geometry, ranks)
    >>> sums.tolist(), voxels.tolist()
    ([[3.0], [3.0]], [[0, 0, 2], [0, 0, 5]])
    """

    @staticmethod
    def apply(x: Tensor, geometry: Tensor, ranks: Tensor) -> tuple[Tensor, Tensor]:
        """Sums `[S, C]` and the geometry `[S, ...]` of each rank's last row, which gets no gradient."""
        if len(geometry) != len(x):
            raise ValueError(f"geometry: expected {len(x)} rows, one per row of x, got {len(geometry)}")
        sums, distinct = functional.segment_sum(x, ranks)
        segments = torch.searchsorted(distinct, ranks.contiguous())
        rows = torch.arange(len(ranks), device=ranks.device)
        last = rows.new_zeros(len(sums)).scatter_reduce(0, segments, rows, "amax")
        return sums, geometry.detach()[last]


QuickCumsum = VoxelsSumming
