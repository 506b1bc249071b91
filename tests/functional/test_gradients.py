"""Layer gradients by independent routes: autograd of a surrogate, and torch's convolution gradients."""

from typing import Any

import pytest
import torch
import torch.nn.functional as torch_f
from compare import assert_gradient
from torch import Tensor
from torch.nn import grad as torch_grad

from snnlib import functional as F

# Sums of some hundred products in another order.
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5}


def _current(rng: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(shape, generator=rng, dtype=torch.float64) + 0.6


CONVOLUTIONS: dict[str, tuple[int, dict[str, Any]]] = {
    "plain": (3, {}),
    "stride": (3, {"stride": 2}),
    "padding": (3, {"padding": 2}),
    "stride and padding leave a rest": (4, {"stride": 3, "padding": 1}),
    "dilation": (2, {"dilation": 2, "padding": 1}),
    "groups": (3, {"groups": 2, "padding": 1}),
    "valid": (3, {"padding": "valid"}),
    "same, odd": (3, {"padding": "same"}),
    "same, even": (4, {"padding": "same"}),
    "same, even, dilated, grouped": (2, {"padding": "same", "dilation": 3, "groups": 2}),
    "all": (2, {"stride": 2, "padding": 2, "dilation": 2, "groups": 2}),
}


def _pad_same(x: Tensor, kernel: int, options: dict[str, Any], dims: int) -> tuple[Tensor, list[int]]:
    """x with torch's 'same' zeros written out: the odd one goes to the end."""
    total = options.get("dilation", 1) * (kernel - 1)
    before, after = total // 2, total - total // 2
    return torch_f.pad(x, [before, after] * dims), [before, after]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolution_layers(name: str, dims: int, dtype: torch.dtype, rng: torch.Generator) -> None:
    """dW and dx are torch's convolution gradients of the two signals."""
    kernel, options = CONVOLUTIONS[name]
    groups = options.get("groups", 1)
    size = {1: 13, 2: 7, 3: 5}[dims]
    x = (torch.rand((4, 1 if dims == 3 else 2, 4, *[size] * dims), generator=rng) < 0.4).to(dtype)
    x *= torch.rand(x.shape, generator=rng).to(dtype)
    weight = torch.randn((6, 4 // groups, *[kernel] * dims), generator=rng).to(dtype)
    x.requires_grad_()
    weight.requires_grad_()

    spikes = getattr(F, f"srm_conv{dims}d")(x, weight, **options, input_grad_scale=0.5)
    q = torch.randn(spikes.shape, generator=rng).to(dtype)
    spikes.backward(q)

    frames, wide = x.detach().flatten(0, 1), dict(options)
    crop = [0, 0]
    if options.get("padding") == "same":
        frames, crop = _pad_same(frames, kernel, options, dims)
    if isinstance(options.get("padding"), str):
        wide["padding"] = 0
    current = getattr(torch_f, f"conv{dims}d")(frames, weight.detach(), **wide)
    a, b = F.srm_backward(q, current.reshape(q.shape))
    expected_weight = getattr(torch_grad, f"conv{dims}d_weight")(
        frames, weight.shape, a.flatten(0, 1), **wide
    )
    expected_x = getattr(torch_grad, f"conv{dims}d_input")(
        frames.shape, weight.detach(), b.flatten(0, 1), **wide
    )
    inside = slice(crop[0], crop[0] + size)
    expected_x = expected_x[(..., *[inside] * dims)].reshape(x.shape) * x.detach() * 0.5

    assert_gradient(weight.grad, expected_weight, TOLERANCE[dtype], "dL/dW")
    assert_gradient(x.grad, expected_x, TOLERANCE[dtype], "dL/dx")


@pytest.mark.parametrize("wanted", ["x", "weight"])
def test_a_gradient_that_nobody_wants_is_not_made(wanted: str, rng: torch.Generator, path: str) -> None:
    x = (torch.rand((9, 3, 11), generator=rng) < 0.4).double()
    weight = torch.randn((5, 11), generator=rng, dtype=torch.float64)
    both = [x.clone().requires_grad_(), weight.clone().requires_grad_()]
    F.srm_linear(*both).sum().backward()
    only = x.requires_grad_() if wanted == "x" else weight.requires_grad_()
    F.srm_linear(x, weight).sum().backward()
    expected = both[0] if wanted == "x" else both[1]
    assert torch.equal(only.grad, expected.grad)
    assert (weight if wanted == "x" else x).grad is None


@pytest.mark.parametrize("batch_first", [False, True])
def test_half_precision_inputs_have_the_gradients_of_their_values(
    batch_first: bool, rng: torch.Generator
) -> None:
    current = _current(rng, 3, 12, 40).to(torch.bfloat16).requires_grad_()
    wide = current.detach().float().requires_grad_()
    q = torch.randn(current.shape, generator=rng).to(torch.bfloat16)
    F.srm_neuron(current, batch_first=batch_first).backward(q)
    F.srm_neuron(wide, batch_first=batch_first).backward(q.float())
    assert current.grad.dtype == torch.bfloat16
    assert torch.equal(current.grad, wide.grad.to(torch.bfloat16))
