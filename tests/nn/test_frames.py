"""Fully connected layers take the frames of convolutional layers as `torch.nn.Flatten(2)` would give them."""

import pytest
import torch
from compare import assert_bits, assert_gradient
from runs import results
from torch import Tensor, nn

import snnlib

SHAPES = [(3, 4, 5), (40, 3, 3), (2, 1, 1), (4, 6), (2, 3, 2, 2)]
LAYERS = {"spiking": snnlib.SRMLinear, "readout": snnlib.SRMReadout}

each_layer = pytest.mark.parametrize("make", LAYERS.values(), ids=LAYERS)
each_shape = pytest.mark.parametrize("shape", SHAPES, ids=str)
each_layout = pytest.mark.parametrize("channels_last", [False, True])


def _frames(shape: tuple[int, ...], channels_last: bool) -> Tensor:
    """Weights and events are multiples of powers of two: sums are exact in any order."""
    x = (torch.rand(9, 3, *shape, generator=torch.Generator().manual_seed(1)) < 0.3).float()
    return x.movedim(2, -1).contiguous().movedim(-1, 2) if channels_last else x


def _layer(make: type[nn.Module], shape: tuple[int, ...]) -> nn.Module:
    layer = make(torch.Size(shape).numel(), 5)
    weight = torch.randn(layer.weight.shape, generator=torch.Generator().manual_seed(2))
    layer.weight.data.copy_((weight * 64).round() / 64)
    return layer


@each_layout
@each_shape
@each_layer
def test_frames_mean_what_flatten_makes_of_them(
    make: type[nn.Module], shape: tuple[int, ...], channels_last: bool, path: str
) -> None:
    layer, x = _layer(make, shape), _frames(shape, channels_last)
    expected = results(nn.Sequential(nn.Flatten(2), layer), x)
    assert expected[0].any()
    out, *gradients = results(layer, x)
    assert_bits(out, expected[0])
    for gradient, wanted in zip(gradients, expected[1:], strict=True):
        assert_gradient(gradient, wanted, 1e-5)


@pytest.mark.parametrize("density", [0.02, 0.9])
@pytest.mark.parametrize("choice", ["events", "dense"])
def test_large_layers_by_each_path(choice: str, density: float) -> None:
    """Large enough for the backward pass to choose as well."""
    layer = _layer(snnlib.SRMLinear, (64, 6, 6))
    x = (
        (torch.rand(40, 8, 6, 6, 64, generator=torch.Generator().manual_seed(4)) < density)
        .float()
        .movedim(-1, 2)
    )
    expected = results(nn.Sequential(nn.Flatten(2), layer), x)
    with snnlib.use_convolution(choice):  # type: ignore[arg-type]
        out, *gradients = results(layer, x)
    assert_bits(out, expected[0])
    for gradient, wanted in zip(gradients, expected[1:], strict=True):
        assert_gradient(gradient, wanted, 1e-5)


@each_layer
def test_streams_and_batch_first(make: type[nn.Module]) -> None:
    layer, x = _layer(make, (4, 3, 3)), _frames((4, 3, 3), channels_last=True)
    expected = layer(x)
    stream = snnlib.Stream(layer)
    torch.testing.assert_close(torch.cat([stream(chunk) for chunk in x.split(4)]), expected)
    layer.batch_first = True
    torch.testing.assert_close(layer(x.transpose(0, 1)).transpose(0, 1), expected)


@each_layer
def test_no_copy_of_channels_last_frames(make: type[nn.Module]) -> None:
    """Autograd keeps the sequence itself."""
    layer, x = _layer(make, (4, 3, 3)), _frames((4, 3, 3), channels_last=True)
    kept: list[Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        layer(x)
    assert x.data_ptr() in [tensor.data_ptr() for tensor in kept]
