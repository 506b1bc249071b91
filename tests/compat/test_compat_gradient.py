"""Gradient decoupling and the channel-wise affine layer under the published names."""

import pytest
import torch

from snnlib import compat


@pytest.mark.parametrize("function", [compat.decouple_layer, compat.GradientDecoupleLayer.apply])
@pytest.mark.parametrize(
    ("factor", "expected"), [(0.85, [0.85, 1.7, -3.4]), (0, [0, 0, 0]), (-1, [-1, -2, 4]), (1, [1, 2, -4])]
)
def test_gradient_is_scaled(function: object, factor: float, expected: list[float]) -> None:
    x = torch.tensor([1.0, -2, 3], requires_grad=True)
    y = function(x, factor)
    assert torch.equal(y, x)
    y.backward(torch.tensor([1.0, 2, -4]))
    torch.testing.assert_close(x.grad, torch.tensor(expected, dtype=torch.float32))


def test_affine_vector() -> None:
    layer = compat.AffineLayer(3, bias=True)
    assert sorted(layer.state_dict()) == ["bias", "weight"]
    layer.load_state_dict(
        {
            "weight": torch.tensor([1.0, 2, 3]).reshape(1, 3, 1, 1),
            "bias": torch.tensor([0, 0.5, -1]).reshape(1, 3, 1, 1),
        }
    )
    x = torch.arange(1.0, 7).reshape(1, 3, 1, 2).requires_grad_()
    y = layer(x)
    assert y.flatten().tolist() == [1, 2, 6.5, 8.5, 14, 17]
    y.sum().backward()
    assert x.grad.flatten().tolist() == [1, 1, 2, 2, 3, 3]
    assert layer.weight.grad.flatten().tolist() == [3, 7, 11]
    assert layer.bias.grad.flatten().tolist() == [2, 2, 2]


def test_affine_takes_trains_and_names_a_wrong_channel_count() -> None:
    assert compat.AffineLayer(3)(torch.ones(2, 5, 3, 4, 4)).shape == (2, 5, 3, 4, 4)
    with pytest.raises(ValueError, match=r"X: expected \[..., 3, H, W\]"):
        compat.AffineLayer(3)(torch.ones(2, 4, 5, 5))
