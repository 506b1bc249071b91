"""Superpixel pooling under the published names."""

import torch

from snnlib import compat


def _labels(rows: list[list[int]]) -> torch.Tensor:
    return torch.tensor(rows)[None]


def test_means_counts_and_gradients() -> None:
    img = torch.arange(16.0).reshape(1, 1, 4, 4).requires_grad_()
    spx = _labels([[0, 0, 1, 1], [0, 0, 1, 1], [3, 3, 3, 1], [3, 3, 3, 1]])
    out = compat.AveSupPixPool()(img, spx)
    # Superpixel 2 has no pixel.
    torch.testing.assert_close(out, torch.tensor([[[2.5, 22 / 3, 0, 11]]]))
    out.backward(torch.tensor([[[1.0, 2, 3, 4]]]))
    share = torch.tensor([1 / 4, 2 / 6, 0, 4 / 6])
    torch.testing.assert_close(img.grad[0, 0], share[spx[0]])


def test_images_of_a_batch_may_have_fewer_superpixels() -> None:
    img = torch.ones(2, 1, 1, 4)
    spx = torch.tensor([[[0, 1, 0, 1]], [[0, 1, 2, 3]]]).float()
    assert compat.AveSupPixPoolFunction.apply(img, spx).tolist() == [[[1, 1, 0, 0]], [[1, 1, 1, 1]]]


def test_unpool_is_the_library_s() -> None:
    pooled, labels = torch.tensor([[[5.0, 7, 9]]]), _labels([[0, 1], [1, 1]])
    assert compat.SupPixUnpool()(pooled, labels.float()).tolist() == [[[[5, 7], [7, 7]]]]
