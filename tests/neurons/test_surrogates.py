"""Surrogate gradients against their formulas with torch's functions, and their errors."""

import math
from collections.abc import Callable

import pytest
import torch
from compare import assert_bits
from peer_standins import spike
from torch import Tensor

from snnlib import surrogate as sg
from snnlib.backends.surrogate import COMPACT, SHAPES
from snnlib.neurons import LIF


def normal(u: Tensor, center: float, sigma: float) -> Tensor:
    return torch.exp(-((u - center) ** 2) / (2 * sigma**2)) / (sigma * math.sqrt(2 * math.pi))


# For a threshold of 2.
FORMULAS: list[tuple[Callable[[Tensor], Tensor], object]] = [
    (lambda u: (1 - u.abs() / 0.5).clamp(min=0) * 0.4, sg.Triangle(width=0.25, height=0.4)),
    (lambda u: (u.abs() < 1).double(), sg.Rectangle()),
    (lambda u: (1.5 - 2.25 * u.abs()).clamp(min=0), sg.PiecewiseQuadratic(1.5)),
    (lambda u: 2.0 * (u.abs() < 0.25), sg.Rect(2.0)),
    (lambda u: 1.5 / (1 + (math.pi * 1.5 * u) ** 2), sg.ATan(3.0)),
    (lambda u: (1 + 25 * u.abs()) ** -2, sg.FastSigmoid()),
    (lambda u: (1 + 2 * u.abs()) ** -2, sg.SoftSign()),
    (lambda u: 3 / (1 + u.abs()) ** 2, sg.SuperSpike(3.0)),
    (lambda u: 4 * torch.sigmoid(4 * u) * torch.sigmoid(-4 * u), sg.Sigmoid()),
    (lambda u: torch.exp(-u.abs()), sg.Exponential(0.5)),
    (lambda u: 0.75 * torch.exp(-u.abs() / 0.4), sg.Exponential(0.2, height=0.75)),
    (lambda u: 2 / math.sqrt(math.pi) * torch.exp(-((2 * u) ** 2)), sg.Erf()),
    (lambda u: normal(u, 0, 0.5), sg.Gaussian()),
    (
        lambda u: 0.5 * (1.15 * normal(u, 0, 0.5) - 0.15 * normal(u, 0.5, 3) - 0.15 * normal(u, -0.5, 3)),
        sg.MultiGaussian(),
    ),
    (lambda u: 0.5 * (1.15 * normal(u, 0, 0.5) - 0.3 * normal(u, 0, 3)), sg.MultiGaussian(shift=0.0)),
]
every_surrogate = pytest.mark.parametrize(("formula", "surrogate"), FORMULAS, ids=lambda x: type(x).__name__)


@every_surrogate
def test_formula(formula: Callable[[Tensor], Tensor], surrogate: object) -> None:
    """Values, and through `spike` as the gradient; exp is a rational function with a relative error of 1e-7."""
    u = torch.linspace(-4, 4, 2001, dtype=torch.float64).requires_grad_()
    threshold = torch.tensor(2.0, dtype=torch.float64)
    spikes = sg.spike(u, threshold, surrogate)
    spikes.sum().backward()
    expected = formula(u.detach())
    # Sums of bumps are near zero where they cancel.
    torch.testing.assert_close(u.grad, expected.double(), rtol=1e-6, atol=1e-8)
    assert_bits(spikes.detach(), (u >= 0).double())


@every_surrogate
def test_neuron_takes_it(formula: object, surrogate: object) -> None:
    """With the kernels where they have its shape, else by `step`."""
    gradients = []
    neuron = LIF(surrogate=surrogate, threshold=0.75)
    for run in (neuron.run, neuron.reference):
        x = torch.linspace(0, 2, 60, dtype=torch.float64).reshape(10, 2, 3).requires_grad_()
        run(x).value.sum().backward()
        gradients.append(x.grad)
    assert gradients[0].any()
    torch.testing.assert_close(*gradients, rtol=1e-12, atol=1e-14)


def test_kernels_and_torch_have_the_same_shapes() -> None:
    """Also of those that are zero beyond 1, where the kernels of a layer look at no further steps."""
    beyond = {name: not bool(shape(torch.tensor([1.0, 1.5])).any()) for name, shape in SHAPES.items()}
    assert beyond == COMPACT


def test_strict_and_nan() -> None:
    u = torch.tensor([0.0, -0.0, torch.nan, 1e-30])
    threshold = torch.ones(())
    assert sg.spike(u, threshold, sg.ATan()).tolist()[:2] == [1, 1]
    assert sg.spike(u, threshold, sg.ATan(), strict=True).tolist()[:2] == [0, 0]
    # A NaN potential is no silent 0.
    assert sg.spike(u, threshold, sg.ATan())[2].isnan()


def test_function_of_the_user() -> None:
    x = torch.full((4, 1, 2), 0.75, requires_grad=True)
    LIF(surrogate=lambda u: torch.ones_like(u) * 3)(x).sum().backward()
    assert x.grad.any()
    with pytest.raises(
        ValueError, match=r"^surrogate: expected one slope per neuron, shape \(1, 2\), got \(2,\)$"
    ):
        LIF(surrogate=lambda u: torch.ones(2))(x)


@pytest.mark.parametrize(
    ("foreign", "answer"),
    [
        (spike, r"take snnlib\.surrogate\.ATan\(alpha=2\.0\), which has its slope$"),
        (lambda u: torch.heaviside(u, torch.ones(())), r"take one of snnlib\.surrogate$"),
        (lambda u: torch.sigmoid(4 * u), r"take snnlib\.surrogate\.Sigmoid\(alpha=4\.0\), which"),
        (lambda u: (u > 0).to(u), r"take one of snnlib\.surrogate$"),
        (lambda u, threshold: u, r"^surrogate: expected a function of u alone, got <function.*: .*threshold"),
    ],
)
def test_spikes_are_no_slope(foreign: Callable[..., Tensor], answer: str) -> None:
    """Surrogates of other libraries return the spikes, and keep their slope in the backward pass."""
    with pytest.raises(TypeError, match=answer):
        LIF(surrogate=foreign)


def test_a_function_that_wants_the_neurons_shape_or_device_is_taken() -> None:
    width = torch.tensor([0.5, 1.0, 2.0])
    x = torch.full((4, 1, 3), 0.75, requires_grad=True)
    LIF(surrogate=lambda u: (1 - u.abs() / width).clamp(min=0))(x).sum().backward()
    assert x.grad.any()


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: sg.Triangle(width=0.0), "width"),
        (lambda: sg.Triangle(height=-1.0), "height"),
        (lambda: sg.Rectangle(width=math.inf), "width"),
        (lambda: sg.ATan(0.0), "alpha"),
        (lambda: sg.FastSigmoid(-25.0), "slope"),
        (lambda: sg.Exponential(height=math.nan), "height"),
        (lambda: sg.Gaussian(0.0), "sigma"),
        (lambda: sg.MultiGaussian(gain=0.0), "gain"),
    ],
)
def test_wrong_shape(make: Callable[[], object], name: str) -> None:
    with pytest.raises(ValueError, match=rf"^{name}: expected a finite number > 0, got"):
        make()
