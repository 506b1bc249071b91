"""Products per kernel element are torch's convolution with its two gradients, for any sizes and options."""

import itertools
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from snnlib.backends import dense
from snnlib.backends.geometry import ConvOptions, geometry
from snnlib.ops import element_products, torch_conv

PLAIN = ConvOptions((1, 1), (1, 1), (1, 1), 1)


def _pair(size: int | tuple[int, int]) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else size


def _cases() -> Iterator[tuple[tuple[int, int], tuple[int, int], ConvOptions]]:
    """Yields images, kernels and options that have outputs; images smaller than the kernel's reach among them."""
    images, kernels, strides = [(1, 1), (1, 4), (2, 2), (5, 3)], [1, 2, 3, (3, 1)], [1, 2, (2, 1), 3]
    for image, kernel, stride, padding, gap in itertools.product(
        images, map(_pair, kernels), map(_pair, strides), map(_pair, [0, 1, (1, 2), 3]), [1, 2]
    ):
        reach = [gap * (size - 1) for size in kernel]
        if all(n + 2 * p > r for n, p, r in zip(image, padding, reach, strict=True)):
            yield image, kernel, ConvOptions(stride, padding, (gap, gap), 1)


def test_passes_are_those_of_torch() -> None:
    generator = torch.Generator().manual_seed(0)
    cases = list(_cases())
    assert len(cases) > 300
    for image, kernel, options in cases:
        x = torch.randn(2, 3, *image, generator=generator).requires_grad_()
        weight = torch.randn(4, 3, *kernel, generator=generator).requires_grad_()
        expected = torch.nn.functional.conv2d(x, weight, None, *options)
        signal = torch.randn(expected.shape, generator=generator)
        gradients = torch.autograd.grad(expected, (x, weight), signal)
        with torch.no_grad():
            found = element_products.currents(x, weight, expected.shape[2:], options)
            grad_x = element_products.input_gradient(signal, weight, image, options)
            grad_weight = element_products.weight_gradient(signal, x, weight, options)
        for one, other in zip((found, grad_x, grad_weight), (expected, *gradients), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)
        assert grad_weight.is_contiguous()
        if image == (5, 3):
            assert grad_x.is_contiguous(memory_format=torch.channels_last)


def _passes(x: Tensor, weight: Tensor, signal: Tensor) -> list[Tensor]:
    return [
        torch_conv.currents(x, weight, PLAIN),
        torch_conv.field(signal, x, weight, PLAIN),
        torch_conv.weight_gradient(signal, x, weight, PLAIN),
    ]


@pytest.mark.parametrize("autocast", [False, True])
def test_small_images_with_many_channels_take_them(autocast: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    x, weight = torch.randn(4, 4, 256, 2, 2), torch.randn(256, 256, 3, 3)
    signal = torch.randn(4, 4, 256, 2, 2)
    calls = []
    for name in ("currents", "input_gradient", "weight_gradient"):
        run = getattr(element_products, name)
        monkeypatch.setattr(element_products, name, lambda *given, run=run: calls.append(run) or run(*given))
    with torch.autocast("cpu", enabled=autocast):
        found = _passes(x, weight, signal)
    assert len(calls) == 3
    plan_pass = torch_conv.plan_pass
    monkeypatch.setattr(torch_conv, "plan_pass", lambda *given: plan_pass(*given)._replace(algorithm="torch"))
    for one, other in zip(found, _passes(x, weight, signal), strict=True):
        torch.testing.assert_close(one.flatten(), other.flatten(), rtol=0, atol=1e-3)


# The fastest for 32 frames on an AMD EPYC of Zen 4, by docs/measurements/speed.md.
@pytest.mark.parametrize(
    ("of", "channels", "size", "algorithm"),
    [
        ("currents", 512, 2, "elements"),
        ("input", 512, 2, "elements"),
        ("weight", 512, 2, "elements"),
        ("weight", 256, 4, "elements"),
        ("currents", 128, 8, "winograd"),
        ("input", 256, 4, "winograd"),
        ("weight", 64, 16, "torch"),
        ("currents", 16, 16, "torch"),
    ],
)
def test_algorithm_follows_the_size(of: dense.Pass, channels: int, size: int, algorithm: str) -> None:
    x = torch.empty(4, 8, channels, size, size, device="meta")
    weight = torch.empty(channels, channels, 3, 3, device="meta")
    assert dense.cheapest(geometry(x, weight, PLAIN), of).algorithm == algorithm


def test_a_fully_connected_layer_is_one_product() -> None:
    x, weight = torch.empty(4, 8, 64, 3, 3, device="meta"), torch.empty(128, 64, 3, 3, device="meta")
    options = PLAIN._replace(padding=(0, 0))
    product, convolution = geometry(x, weight, options), geometry(x, weight, PLAIN)
    for of in ("currents", "input", "weight"):
        assert dense.cheapest(product, of).cost < dense.cheapest(convolution, of).cost
