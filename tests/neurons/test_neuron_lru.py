"""Linear recurrent units: complex numbers step by step, finite differences, the ring, nets with and without spikes."""

import cmath
import math
from typing import Any

import pytest
import torch
from compare import assert_bits, assert_close
from torch import Tensor, nn

import snnlib
from snnlib.neurons import LRU


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def potentials(x: list[float], nu: float, theta: float, phase: float) -> list[float]:
    """The equation in Python's complex numbers."""
    factor = cmath.exp(complex(-math.exp(nu), math.exp(theta)))
    gain = math.sqrt(1 - abs(factor) ** 2) * cmath.exp(1j * phase)
    z, out = 0j, []
    for value in x:
        z = factor * z + gain * value
        out.append(z.real)
    return out


def test_steps_in_complex_numbers(path: str) -> None:
    nu, theta, phase = randn(3, 4)
    neuron = LRU(nu, theta, phase=phase)
    x = randn(30, 2, 4, seed=1)
    y = neuron(x)
    for n in range(2):
        for c in range(4):
            expected = potentials(x[:, n, c].tolist(), *(float(part[c]) for part in (nu, theta, phase)))
            # Learned constants are float32.
            assert_close(y[:, n, c].detach(), torch.tensor(expected, dtype=torch.float64), 1e-5)
    spikes = LRU(nu, theta, phase=phase, threshold=0.25)(x)
    assert 0.1 < float(spikes.detach().mean()) < 0.9
    assert_bits(spikes, (y >= 0.25).double())


def test_finite_differences(path: str) -> None:
    """Gradients of the potentials by currents, state and all constants."""
    neuron = LRU.ring(3, 0.5, 0.9, 1.0, generator=torch.Generator().manual_seed(0))
    names = list(neuron.learnable)
    constants = [getattr(neuron, name).detach().double().requires_grad_() for name in names]

    def run(x: Tensor, state: Tensor, *values: Tensor) -> Any:
        own = dict(zip(names, values, strict=True))
        value, (after,) = torch.func.functional_call(neuron, own, (x, (state,)))
        return value, after

    neuron.forward = neuron.run  # type: ignore[assignment,method-assign]
    x, state = randn(9, 2, 3).requires_grad_(), randn(2, 2, 3, seed=1).requires_grad_()
    assert torch.autograd.gradcheck(run, (x, state, *constants))


def test_surrogate_gradient_is_that_of_the_potentials() -> None:
    """With the surrogate's slopes as the loss's gradient."""
    x = randn(12, 2, 3)
    made = [LRU.ring(3, generator=torch.Generator().manual_seed(1), **o) for o in ({}, {"threshold": 0.5})]
    slopes = made[1].surrogate.derivative(made[0](x).detach() - 0.5, torch.tensor(0.5))  # type: ignore[union-attr]
    weights = randn(12, 2, 3, seed=2)
    gradients = []
    for neuron, out in zip(made, (slopes * weights, weights), strict=True):
        leaf = x.clone().requires_grad_()
        neuron(leaf).backward(out)
        gradients.append([leaf.grad, *(getattr(neuron, name).grad for name in ("nu", "theta", "phase"))])
    for a, b in zip(*gradients, strict=True):
        assert a.any()
        assert_close(a, b, 1e-6)


def test_ring() -> None:
    generator = torch.Generator().manual_seed(0)
    neuron = LRU.ring(4000, 0.5, 0.9, 1.0, generator=generator)
    size = torch.exp(-torch.exp(neuron.nu.detach()))
    assert neuron.learnable == ("nu", "theta", "phase")
    assert float(size.min()) >= 0.5 and float(size.max()) <= 0.9
    # Uniform in area.
    assert float((size**2).mean()) == pytest.approx((0.25 + 0.81) / 2, abs=0.01)
    angle = neuron.theta.detach().exp()
    assert float(angle.min()) > 0 and float(angle.max()) <= 1 + 1e-6
    assert float(angle.mean()) == pytest.approx(0.5, abs=0.02)
    assert float(neuron.phase.detach().mean()) == pytest.approx(math.pi, abs=0.1)
    fixed = LRU.ring(3, learnable=())
    assert not list(fixed.parameters()) and fixed.nu.shape == (3,)
    for given, message in (
        ({"low": 0.9, "high": 0.5}, "^low, high: expected 0 <= low < high < 1, got 0.9 and 0.5$"),
        ({"most": 0.0}, "^most: expected an angle > 0, got 0.0$"),
    ):
        with pytest.raises(ValueError, match=message):
            LRU.ring(3, **given)
    with pytest.raises(ValueError, match=r"^channels: expected an integer >= 1, got 0$"):
        LRU.ring(0)


def test_white_noise_keeps_its_size() -> None:
    y = LRU.ring(1000, 0.5, 0.9, generator=torch.Generator().manual_seed(0))(randn(100, 4, 1000))
    # The real part of a complex number of variance 1 has half of it.
    assert float(y[50:].detach().square().mean()) == pytest.approx(0.5, abs=0.05)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("threshold", [None, 0.5])
def test_in_a_net(threshold: float | None) -> None:
    """Streams, lengths, `prepare_`, `profile`, compilation, a file, and refusals by name."""
    torch.manual_seed(0)
    made = [
        nn.Sequential(
            snnlib.PerStep(nn.Linear(6, 16)),
            LRU.ring(16, 0.3, 0.8, threshold=threshold),
            snnlib.PerStep(nn.Linear(16, 3)),
            snnlib.neurons.Integrator(),
        )
        for _ in range(2)
    ]
    net, other = made
    x = torch.randn(20, 4, 6)
    snnlib.prepare_(net, x)
    neuron: Any = net[1]
    hidden = net[0](x)
    stream = snnlib.Stream(neuron)
    assert_bits(torch.cat([stream(chunk) for chunk in hidden.split(7)]), neuron(hidden))
    lengths = torch.tensor([20, 3, 11, 1])
    values = neuron.run(hidden, lengths=lengths).value
    assert_bits(values[:3, 1], neuron(hidden)[:3, 1])
    assert not values[3:, 1].any()
    compiled = torch.compile(net, backend="aot_eager", fullgraph=True)
    assert_close(compiled(x), net(x), 1e-6)
    compiled(x).square().mean().backward()
    assert all(p.grad is not None and p.grad.any() for p in neuron.parameters())
    other.load_state_dict(net.state_dict())
    assert_bits(other(x), net(x))
    (layer,) = (row for row in snnlib.profile(net, x).layers if row.name == "1")
    assert layer.states == 2 and (layer.outputs > 0) == (threshold is not None)
