"""Wrong arguments of convolution backward: the message names the argument."""

from typing import Any

import pytest
import torch

from snnlib import functional as F

X = torch.zeros(2, 4, 9, 8)
WEIGHT = torch.zeros(6, 4, 3, 2)
G = torch.zeros(2, 6, 7, 7)


def _to_input(g: Any = G, weight: Any = WEIGHT, size: Any = X.shape, **options: Any) -> None:
    F.conv2d_input_backward(size, g, weight, **options)


def _to_weight(g: Any = G, x: Any = X, size: Any = WEIGHT.shape, **options: Any) -> None:
    F.conv2d_weight_backward(size, g, x, **options)


def test_the_arguments_fit() -> None:
    _to_input()
    _to_weight()


@pytest.mark.parametrize("call", [_to_input, _to_weight])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"stride": 0}, r"stride: expected an integer >= 1 or 2 of them, got 0"),
        ({"stride": (1, 1, 1)}, r"stride: .*got \(1, 1, 1\)"),
        ({"padding": -1}, r"padding: expected an integer >= 0 or 2 of them, got -1"),
        ({"padding": "same"}, r"padding: .*got 'same'"),
        ({"padding": 0.5}, r"padding: .*got 0\.5"),
        ({"dilation": (1, 0)}, r"dilation: .*got \(1, 0\)"),
        ({"groups": 0}, r"groups: expected an integer >= 1, got 0"),
        ({"groups": 2}, r"input(_size)?: expected 8 channels in dimension 1 for weight.* and 2 groups"),
        (
            {"stride": 2},
            r"grad_output: expected shape \(2, 6, 4, 4\), the convolution of input.*got \(2, 6, 7, 7\)",
        ),
        ({"padding": 1}, r"grad_output: expected shape \(2, 6, 9, 9\)"),
        ({"dilation": 2}, r"grad_output: expected shape \(2, 6, 5, 6\)"),
        ({"dilation": 5}, r"input(_size)?: expected at least 11 cells on space axis 0 for the kernel, got 9"),
        (
            {"dilation": (1, 8)},
            r"input(_size)?: expected at least 9 cells on space axis 1 .* got 8 with padding",
        ),
    ],
    ids=str,
)
def test_options(call: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(**options)


@pytest.mark.parametrize("size", [5, (2, 4, 9), (2, 4, 9, -8), (2, 4, 9, 8.0), (2, 4, 9, 8, 1)], ids=str)
def test_sizes(size: Any) -> None:
    with pytest.raises(ValueError, match=r"input_size: expected"):
        _to_input(size=size)
    with pytest.raises(ValueError, match=r"weight_size: expected"):
        _to_weight(size=size)


def test_sizes_that_do_not_belong_together() -> None:
    with pytest.raises(ValueError, match=r"grad_output: expected shape \(3, 6, 7, 7\)"):
        _to_input(size=(3, 4, 9, 8))
    with pytest.raises(ValueError, match=r"grad_output: expected shape \(2, 5, 7, 7\)"):
        _to_weight(size=(5, 4, 3, 2))
    with pytest.raises(ValueError, match=r"input: expected 3 channels in dimension 1 for weight_size"):
        _to_weight(size=(6, 3, 3, 2))
    with pytest.raises(ValueError, match=r"groups: expected a divisor of the 6 output channels, got 4"):
        _to_weight(size=(6, 1, 3, 2), groups=4)
    with pytest.raises(
        ValueError, match=r"weight_size: expected a kernel of at least 1 x 1, got \(6, 4, 0, 2\)"
    ):
        _to_weight(size=(6, 4, 0, 2))


@pytest.mark.parametrize(
    ("call", "name", "layout"),
    [
        (lambda t: _to_input(g=t), "grad_output", r"\[B, C_out, H_out, W_out\]"),
        (lambda t: _to_input(weight=t), "weight", r"\[C_out, C / groups, kh, kw\]"),
        (lambda t: _to_weight(g=t), "grad_output", r"\[B, C_out, H_out, W_out\]"),
        (lambda t: _to_weight(x=t), "input", r"\[B, C, H, W\]"),
    ],
)
def test_tensors(call: Any, name: str, layout: str) -> None:
    with pytest.raises(ValueError, match=rf"{name}: expected {layout}, got shape \(2, 3, 4\)"):
        call(torch.zeros(2, 3, 4))
    with pytest.raises(TypeError, match=rf"{name}: expected a floating dtype, got torch.int64"):
        call(torch.zeros(2, 6, 7, 7, dtype=torch.int64))
    with pytest.raises(TypeError, match=rf"{name}: expected a torch.Tensor, got list"):
        call([1.0])


def test_mixed_dtypes_and_devices() -> None:
    with pytest.raises(TypeError, match=r"weight: expected torch.float32, got torch.float64"):
        _to_input(weight=WEIGHT.double())
    with pytest.raises(TypeError, match=r"input: expected torch.float32, got torch.bfloat16"):
        _to_weight(x=X.bfloat16())
    with pytest.raises(ValueError, match=r"weight: expected a tensor on cpu, got one on meta"):
        _to_input(weight=WEIGHT.to("meta"))
    with pytest.raises(ValueError, match=r"input: expected a tensor on cpu, got one on meta"):
        _to_weight(x=X.to("meta"))
