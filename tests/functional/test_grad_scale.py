"""Gradient scaling: a bitwise identity forward; backward against autograd of `scale x + (1 - scale) x.detach()`."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from snnlib import GradScale
from snnlib.functional import grad_scale

DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


def oracle(x: Tensor, scale: float | Tensor) -> Tensor:
    return scale * x + (1 - scale) * x.detach()


def gradient(x: Tensor, scale: float | Tensor, g: Tensor) -> Tensor:
    x = x.detach().requires_grad_()
    return torch.autograd.grad(grad_scale(x, scale), x, g)[0]


# --- forward ---


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("scale", [0.0, 0.85, -1.0, 3e38])
def test_forward_is_the_same_bits(scale: float, dtype: torch.dtype) -> None:
    bits = {2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize]
    info = torch.iinfo(bits)
    # Random bits: also -0, infinities, NaN with a payload and denormals.
    words = torch.randint(info.min, info.max, (1000,), dtype=bits, generator=torch.Generator().manual_seed(0))
    special = torch.tensor([0.0, -0.0, math.inf, -math.inf, math.nan], dtype=dtype).view(bits)
    x = torch.cat([words, special]).view(dtype)
    y = grad_scale(x, scale)
    assert y.dtype == dtype
    assert torch.equal(y.view(bits), x.view(bits))


def test_output_may_be_changed_in_place() -> None:
    x = torch.tensor([1.0, -2.0], requires_grad=True)
    y = grad_scale(x, 0.5)
    y.mul_(3).relu_()
    y.sum().backward()
    assert x.tolist() == [1.0, -2.0]
    assert y.tolist() == [3.0, 0.0]
    assert x.grad.tolist() == [1.5, 0.0]


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (2, 3)])
def test_any_shape(shape: tuple[int, ...]) -> None:
    x = torch.randn(shape, requires_grad=True)
    y = grad_scale(x, 0.5)
    y.sum().backward()
    assert y.shape == shape
    assert torch.equal(x.grad, torch.full(shape, 0.5))


def test_layouts() -> None:
    x = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    g = torch.randn(4, 2, 5, 3).permute(1, 3, 0, 2)
    assert torch.equal(grad_scale(x, 0.85), x)
    assert torch.equal(gradient(x, 0.85, g), 0.85 * g)
    # A broadcast gradient, as from a sum.
    one = torch.ones(()).expand(2, 3, 4, 5)
    assert torch.equal(gradient(x, torch.tensor(-1.0), one), -one)


# --- first order ---


@given(st.floats(-4, 4), st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=5))
def test_gradient_equals_the_oracle(scale: float, values: list[float]) -> None:
    x = torch.tensor(values, dtype=torch.float64, requires_grad=True)
    g = torch.tensor(values[::-1], dtype=torch.float64)
    (expected,) = torch.autograd.grad(oracle(x, scale), x, g)
    assert torch.equal(gradient(x, scale, g), expected)


@pytest.mark.parametrize(
    "scale", [0, 0.0, -0.0, torch.zeros(()), torch.zeros(4), torch.zeros(1, dtype=torch.int64)]
)
def test_zero_stops_infinite_and_nan_gradients(scale: float | Tensor) -> None:
    g = torch.tensor([math.inf, -math.inf, math.nan, 1.0])
    assert gradient(torch.randn(4), scale, g).tolist() == [0.0] * 4


def test_values_that_are_not_finite_keep_their_gradient() -> None:
    x = torch.tensor([math.inf, math.nan])
    assert gradient(x, 0.5, torch.tensor([2.0, 4.0])).tolist() == [1.0, 2.0]


def test_one_scale_per_channel() -> None:
    x = torch.randn(2, 3, 4, 5, 6)
    g = torch.full_like(x, math.inf)
    g[:, :, :, 0] = 2.0
    scale = torch.tensor([0.0, 0.5, -1.0, 1.0]).reshape(4, 1, 1)
    out = gradient(x, scale, g)
    for channel, factor in enumerate([0.0, 0.5, -1.0, 1.0]):
        assert out[:, :, channel, 0].eq(2 * factor).all()
        assert out[:, :, channel, 1:].eq(0.0 if factor == 0 else math.copysign(math.inf, factor)).all()


@pytest.mark.parametrize(
    "scale", [0.85, torch.tensor(0.85), torch.full((3, 1), 0.85)], ids=["number", "[]", "[3, 1]"]
)
@pytest.mark.parametrize("dtype", DTYPES)
def test_gradient_keeps_its_dtype(dtype: torch.dtype, scale: float | Tensor) -> None:
    x, g = (torch.randn(2, 3, 4).to(dtype) for _ in range(2))
    out = gradient(x, scale, g)
    assert out.dtype == dtype
    torch.testing.assert_close(
        out.double(), 0.85 * g.double(), rtol=max(torch.finfo(dtype).eps, 1e-7), atol=0
    )


def test_scale_gets_no_gradient() -> None:
    x = torch.randn(3, requires_grad=True)
    scale = torch.tensor(0.5, requires_grad=True)
    grad_scale(x, scale).sum().backward()
    assert scale.grad is None
    assert x.grad.tolist() == [0.5] * 3
    assert not grad_scale(x.detach(), scale).requires_grad


# --- higher orders, transforms, compilation ---


@pytest.mark.parametrize("scale", [0.5, -2.0, 0.0, torch.tensor(0.5), torch.tensor([0.5, 0.0, 3.0])])
def test_each_derivative_scales_once_more(scale: float | Tensor) -> None:
    x = torch.tensor([1.0, 2.0, -3.0], dtype=torch.float64, requires_grad=True)

    def derivatives(y: Tensor) -> list[Tensor]:
        out = [(y**4).sum()]
        for _ in range(3):
            out.append(torch.autograd.grad(out[-1].sum(), x, create_graph=True)[0])
        return out[1:]

    factor = scale if isinstance(scale, float) else scale.double()
    got, expected = derivatives(grad_scale(x, scale)), derivatives(oracle(x, factor))
    powers = [factor * 4 * x**3, factor**2 * 12 * x**2, factor**3 * 24 * x]
    for value, other, power in zip(got, expected, powers, strict=True):
        torch.testing.assert_close(value, other, rtol=1e-14, atol=0)
        torch.testing.assert_close(value, power, rtol=1e-14, atol=0)


def test_vmap_over_values_and_scales() -> None:
    x = torch.randn(4, 3, dtype=torch.float64)
    scales = torch.tensor([0.0, 0.5, -1.0, 2.0], dtype=torch.float64)
    assert torch.equal(torch.func.vmap(lambda row: grad_scale(row, 0.5))(x), x)

    def loss(row: Tensor, scale: Tensor) -> Tensor:
        return grad_scale(row, scale).pow(2).sum()

    per_sample = torch.func.vmap(torch.func.grad(loss))(x, scales)
    torch.testing.assert_close(per_sample, scales[:, None] * 2 * x)
    torch.testing.assert_close(
        torch.func.jacrev(lambda row: grad_scale(row, 0.5))(x[0]), 0.5 * torch.eye(3, dtype=torch.float64)
    )
    nested = torch.func.grad(torch.func.grad(lambda u: grad_scale(u, 0.5) ** 3))
    assert nested(torch.tensor(2.0)).item() == pytest.approx(0.25 * 6 * 2)


# torch's compiler calls functions that torch deprecates.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("per_channel", [False, True])
def test_compiles_and_follows_a_schedule_without_recompiling(per_channel: bool) -> None:
    torch._dynamo.reset()
    layer = GradScale(torch.full((3, 1), 0.5) if per_channel else 0.5)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    x = torch.randn(2, 3, 4, requires_grad=True)
    g = torch.randn(2, 3, 4)
    assert torch.equal(compiled(x), x)
    with torch.compiler.set_stance("fail_on_recompile"):
        for scale in (0.5, 0.25, 0.0):
            layer.scale.fill_(scale)
            (out,) = torch.autograd.grad(compiled(x), x, g)
            assert torch.equal(out, scale * g)


# --- the module ---


def test_module_options() -> None:
    source = torch.tensor([0.5, 1.0])
    layer = GradScale(source)
    source.zero_()
    assert layer.scale.tolist() == [0.5, 1.0]
    assert GradScale(0.85, dtype=torch.float64).scale.item() == 0.85
    assert repr(layer) == "GradScale(scale=[2])"
    assert repr(GradScale(0.85)) == "GradScale(scale=0.85)"
    # A float buffer even from an integer: a schedule writes fractions into it.
    assert GradScale(1).scale.dtype == torch.float32
    assert not list(layer.parameters())


# --- errors ---


@pytest.mark.parametrize("scale", [math.nan, math.inf, -math.inf])
def test_scale_must_be_finite(scale: float) -> None:
    with pytest.raises(ValueError, match=rf"^scale: expected a finite number, got {scale}$"):
        grad_scale(torch.zeros(2), scale)
    with pytest.raises(ValueError, match=r"^scale: expected finite numbers, got "):
        GradScale(scale)
    with pytest.raises(ValueError, match=r"^scale: expected finite numbers, got "):
        GradScale(torch.tensor([1.0, scale]))


@pytest.mark.parametrize("shape", [(2,), (2, 1), (1, 1, 1), (3, 0)])
def test_scale_must_broadcast(shape: tuple[int, ...]) -> None:
    with pytest.raises(
        ValueError, match=r"^scale: expected a number or a tensor that broadcasts to \(4, 3\), got shape"
    ):
        grad_scale(torch.zeros(4, 3), torch.ones(shape))


def test_scale_must_be_on_the_device_of_x() -> None:
    with pytest.raises(ValueError, match=r"^scale: expected a tensor on cpu, got one on meta"):
        grad_scale(torch.zeros(2), torch.ones((), device="meta"))


def test_x_must_be_floating() -> None:
    with pytest.raises(TypeError, match=r"^x: expected a floating dtype, got torch.int64"):
        grad_scale(torch.zeros(2, dtype=torch.int64), 0.5)
    with pytest.raises(TypeError, match=r"^x: expected a torch.Tensor, got list"):
        grad_scale([1.0], 0.5)
