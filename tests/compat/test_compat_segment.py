"""Voxel sums under the published names."""

import pytest
import torch

from snnlib import compat


def test_sums_geometry_and_gradient() -> None:
    assert compat.QuickCumsum is compat.VoxelsSumming
    x = torch.tensor([[1.0, 10], [2, 20], [3, 30], [4, 40], [5, 50]], requires_grad=True)
    geometry = torch.arange(20.0).reshape(5, 4)
    sums, voxels = compat.VoxelsSumming.apply(x, geometry, torch.tensor([2, 2, 5, 7, 7]))
    assert sums.tolist() == [[3, 30], [3, 30], [9, 90]]
    # The last point of each voxel stands for it.
    assert torch.equal(voxels, geometry[[1, 2, 4]])
    sums.backward(torch.tensor([[1.0, 1], [2, 2], [3, 3]]))
    assert x.grad[:, 0].tolist() == [1, 1, 2, 3, 3]


def test_ranks_in_any_order() -> None:
    x = torch.tensor([[1.0], [2], [3], [4], [5]])
    sums, voxels = compat.VoxelsSumming.apply(x, torch.arange(5)[:, None], torch.tensor([2, 5, 2, 7, 7]))
    assert sums.flatten().tolist() == [4, 2, 9]
    assert voxels.flatten().tolist() == [2, 1, 4]


def test_no_points() -> None:
    sums, voxels = compat.VoxelsSumming.apply(
        torch.zeros(0, 3), torch.zeros(0, 4), torch.zeros(0, dtype=torch.long)
    )
    assert sums.shape == (0, 3)
    assert voxels.shape == (0, 4)


def test_geometry_of_another_length() -> None:
    with pytest.raises(ValueError, match="geometry: expected 4 rows"):
        compat.VoxelsSumming.apply(torch.zeros(4, 3), torch.zeros(5, 4), torch.zeros(4, dtype=torch.long))
