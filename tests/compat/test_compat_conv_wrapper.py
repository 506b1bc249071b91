"""Convolution gradients under the published extension's names, padding before stride."""

import pytest
import torch
import torch.nn.functional as F

from snnlib import compat


@pytest.mark.parametrize(
    ("padding", "stride", "dilation", "groups"),
    [((0, 0), (1, 1), (1, 1), 1), ((1, 2), (2, 1), (1, 2), 2), (1, 2, 1, 4)],
)
def test_both_gradients_equal_autograds(
    padding: tuple[int, int],
    stride: tuple[int, int],
    dilation: tuple[int, int],
    groups: int,
    rng: torch.Generator,
) -> None:
    x = torch.rand(3, 4, 9, 8, generator=rng, dtype=torch.float64, requires_grad=True)
    weight = torch.rand(8, 4 // groups, 3, 3, generator=rng, dtype=torch.float64, requires_grad=True)
    y = F.conv2d(x, weight, None, stride, padding, dilation, groups)
    g = torch.rand(y.shape, generator=rng, dtype=torch.float64)
    options = padding, stride, dilation, groups, False, True, False
    grad_x, grad_weight = torch.autograd.grad(y, (x, weight), g)
    with torch.no_grad():
        ours = compat.conv_wrapper.cudnn_convolution_backward_input(x.shape, g, weight, *options)
        torch.testing.assert_close(ours, grad_x)
        ours = compat.conv_wrapper.cudnn_convolution_backward_weight(weight.shape, g, x, *options)
        torch.testing.assert_close(ours, grad_weight)
