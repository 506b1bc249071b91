"""Kernel elements that see nothing but padding are left out: equal currents, gradients and states."""

import itertools

import pytest
import torch

import snnlib
from snnlib.backends.geometry import ConvOptions
from snnlib.functional import Convolution
from snnlib.functional.operators import SequenceConvolution


def _pair(size: int | tuple[int, int]) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else size


def test_currents_are_those_of_the_whole_kernel() -> None:
    torch.manual_seed(0)
    fewer = 0
    images, strides = [(1, 1), (1, 4), (2, 2), (3, 2), (5, 1)], [1, 2, 3, (2, 1)]
    for image, kernel, stride, padding, gap in itertools.product(
        images, map(_pair, [1, 2, 3, (3, 1), 5]), map(_pair, strides), map(_pair, [0, 1, (1, 2), 3]), [1, 2]
    ):
        if any(n + 2 * p <= gap * (k - 1) for n, p, k in zip(image, padding, kernel, strict=True)):
            continue
        x, weight = torch.randn(1, 2, 3, *image).double(), torch.randn(4, 3, *kernel).double()
        whole = SequenceConvolution(x, weight, ConvOptions(stride, padding, (gap, gap), 1), 2)
        part = whole.reached()
        fewer += part.weight.numel() < weight.numel()
        results = [torch.nn.functional.conv2d(c.x[0], c.weight, None, *c.options) for c in (whole, part)]
        torch.testing.assert_close(*results)
    assert fewer > 100


@pytest.mark.parametrize(("size", "stride", "left"), [(1, 1, (1, 1)), (2, 2, (2, 2)), (2, 1, (3, 3))])
def test_layers_on_small_images_have_torchs_gradients(size: int, stride: int, left: tuple[int, int]) -> None:
    torch.manual_seed(0)
    operator = Convolution(2, stride=stride, padding=1)
    x = (torch.rand(4, 3, 16, size, size) < 0.3).float().requires_grad_()
    # On a grid, so that sums are exact in any order.
    weight = (torch.randint(-8, 12, (24, 16, 3, 3)) / 8).requires_grad_()
    assert operator.unfolded(x, weight).reached().weight.shape[2:] == left
    neuron = snnlib.neurons.LIF(2.0, surrogate=snnlib.surrogate.ATan())
    found = snnlib.functional.spiking_layer(x, weight, operator, neuron).value
    signal = torch.randn(found.shape)
    gradients = torch.autograd.grad(found, (x, weight), signal)
    current = torch.nn.functional.conv2d(x.flatten(0, 1), weight, stride=stride, padding=1)
    expected = neuron(current.unflatten(0, (4, 3)))
    assert float(found.detach().mean()) > 0.01 and torch.equal(found, expected)
    for one, other in zip(gradients, torch.autograd.grad(expected, (x, weight), signal), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
