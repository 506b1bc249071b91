"""A factor and an offset per channel against numpy, and against torch's batch normalisation in eval mode."""

import copy
import pickle

import numpy as np
import pytest
import torch
from torch import Tensor

from snnlib import ChannelAffine

DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


def drawn(
    channels: int, dim: int = 2, bias: bool = True, dtype: torch.dtype = torch.float64
) -> ChannelAffine:
    affine = ChannelAffine(channels, dim, bias, dtype=dtype)
    generator = torch.Generator().manual_seed(channels)
    with torch.no_grad():
        for parameter in affine.parameters():
            parameter.copy_(torch.randn(channels, generator=generator))
    return affine


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(
    ("shape", "dim"),
    [
        ((5,), 0),
        ((4, 5), 1),
        ((4, 7, 5), -1),
        ((4, 5, 7), 1),
        ((2, 5, 3, 4), 1),
        ((2, 3, 5, 4), 2),
        ((2, 3, 5, 4, 6), 2),
        ((2, 3, 5, 4, 6), -3),
        ((5, 5, 5, 5), -2),
        ((2, 3, 5, 1, 2, 3), 2),
        ((0, 3, 5, 2), 2),
    ],
)
def test_any_layout_equals_numpy(shape: tuple[int, ...], dim: int, bias: bool) -> None:
    affine = drawn(5, dim, bias)
    x = torch.randn(shape, dtype=torch.float64)
    columns = np.moveaxis(x.numpy(), dim, -1) * affine.weight.detach().numpy()
    if affine.bias is not None:
        columns = columns + affine.bias.detach().numpy()
    y = affine(x)
    assert np.array_equal(y.detach().numpy(), np.moveaxis(columns, -1, dim))
    assert torch.autograd.gradcheck(affine, x.requires_grad_())


@pytest.mark.parametrize("bias", [False, True])
def test_a_new_layer_changes_nothing(bias: bool) -> None:
    affine = ChannelAffine(4, bias=bias)
    x = torch.randn(3, 2, 4, 5, 5)
    assert torch.equal(affine(x), x)
    with torch.no_grad():
        for parameter in affine.parameters():
            parameter.fill_(7)
    affine.reset_parameters()
    assert torch.equal(affine(x), x)


@pytest.mark.parametrize("parameters", DTYPES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_output_and_gradients_keep_their_dtypes(dtype: torch.dtype, parameters: torch.dtype) -> None:
    affine = drawn(3, dtype=parameters)
    x = torch.randn(2, 4, 3, 5).to(dtype).requires_grad_()
    y = affine(x)
    y.sum().backward()
    assert y.dtype == x.grad.dtype == dtype
    assert affine.weight.grad.dtype == parameters
    weight, bias = (p.detach().double().reshape(3, 1) for p in (affine.weight, affine.bias))
    eps = max(torch.finfo(d).eps for d in (dtype, parameters))
    torch.testing.assert_close(y.double(), x.double() * weight + bias, rtol=2 * eps, atol=4 * eps)


def test_layouts_in_memory() -> None:
    affine = drawn(4, dim=1)
    x = torch.randn(2, 4, 6, 5, dtype=torch.float64)
    expected = affine(x)
    assert torch.equal(affine(x.to(memory_format=torch.channels_last)), expected)
    wide = torch.randn(2, 4, 12, 5, dtype=torch.float64)
    wide[:, :, ::2] = x
    assert torch.equal(affine(wide[:, :, ::2]), expected)


def test_vmap() -> None:
    affine = drawn(4, dim=0)
    x = torch.randn(3, 4, 5, dtype=torch.float64)
    expected = torch.stack([affine(row) for row in x])
    assert torch.equal(torch.func.vmap(affine)(x), expected)


def test_state_survives_copies() -> None:
    affine = drawn(4)
    x = torch.randn(1, 1, 4, dtype=torch.float64)
    for twin in (copy.deepcopy(affine), pickle.loads(pickle.dumps(affine))):
        assert torch.equal(twin(x), affine(x))
    assert list(ChannelAffine(4).state_dict()) == ["weight"]
    assert repr(affine) == "ChannelAffine(4, dim=2, bias=True)"
    assert ChannelAffine(4, device="meta").weight.device.type == "meta"


@pytest.mark.parametrize(
    ("x", "dim", "message"),
    [
        (torch.zeros(2, 3, 5), 2, r"^x: expected 4 channels in dimension 2, got shape \(2, 3, 5\)$"),
        (torch.zeros(2, 4), 2, r"^x: expected 4 channels in dimension 2, got shape \(2, 4\)$"),
        (torch.zeros(4), -2, r"^x: expected 4 channels in dimension -2, got shape \(4,\)$"),
        (torch.zeros(()), 0, r"^x: expected 4 channels in dimension 0, got shape \(\)$"),
    ],
)
def test_x_must_hold_the_channels(x: Tensor, dim: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ChannelAffine(4, dim)(x)


def test_other_errors() -> None:
    with pytest.raises(TypeError, match=r"^x: expected a floating dtype, got torch.bool"):
        ChannelAffine(4)(torch.zeros(1, 1, 4, dtype=torch.bool))
    with pytest.raises(ValueError, match=r"^channels: expected an integer >= 1, got 0$"):
        ChannelAffine(0)
