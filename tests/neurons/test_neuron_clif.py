"""Complementary LIF neurons against their equations written out forwards and back."""

import math

import pytest
import torch
from compare import assert_bits, assert_close
from torch import Tensor

from snnlib.neurons import CLIF
from snnlib.surrogate import PiecewiseQuadratic


def sigmoid(z: float) -> float:
    return 1 / (1 + math.exp(-z))


def oracle(x: Tensor, q: Tensor, tau: float, threshold: float, detach: bool) -> dict[str, Tensor]:
    """Spikes, and gradients of `sum(q s)`, of one neuron `[T]`, by the paper's equations in numbers."""
    v = m = 0.0
    steps = []
    for current in x.tolist():
        h = (1 - 1 / tau) * v + current
        kept = sigmoid(h / tau)
        s = float(h >= threshold)
        steps.append((v, m, h, kept, s, m * kept + s))
        m = m * kept + s
        v = h - s * (threshold + sigmoid(m))
    of_x = [0.0] * len(steps)
    of_v = of_m = of_tau = of_threshold = 0.0
    for t in reversed(range(len(steps))):
        v, m, h, kept, s, after = steps[t]
        amount = threshold + sigmoid(after)
        of_m -= of_v * s * sigmoid(after) * (1 - sigmoid(after))
        of_s = float(q[t]) + of_m - (0.0 if detach else of_v * amount)
        slope = max(0.0, 1 - abs(h - threshold))
        of_kept = of_m * m * kept * (1 - kept)
        of_h = of_v + of_s * slope + of_kept / tau
        of_threshold -= of_v * s + of_s * slope
        of_tau -= (of_kept * h - of_h * v) / tau**2
        of_x[t] = of_h
        of_v, of_m = (1 - 1 / tau) * of_h, of_m * kept
    found = {"spikes": [step[4] for step in steps], "x": of_x, "tau": of_tau, "threshold": of_threshold}
    return {name: torch.tensor(value, dtype=torch.float64) for name, value in found.items()}


def drawn(seed: int) -> tuple[Tensor, Tensor]:
    """Currents and gradients of spikes `[40, 1, 5]`."""
    generator = torch.Generator().manual_seed(seed)
    x, q = torch.randn(2, 40, 1, 5, generator=generator, dtype=torch.float64)
    return x + 0.5, q


@pytest.mark.parametrize("detach", [False, True])
@pytest.mark.parametrize(("tau", "threshold"), [(2.0, 1.0), (8.0, 1.25), (1.0, 0.5)])
def test_equals_its_equations(detach: bool, tau: float, threshold: float) -> None:
    x, q = drawn(3)
    neuron = CLIF(
        tau,
        threshold=threshold,
        detach_reset=detach,
        surrogate=PiecewiseQuadratic(1.0),
        learnable=("tau", "threshold"),
    )
    x.requires_grad_()
    spikes = neuron(x)
    spikes.backward(q)
    assert x.grad is not None
    found = [oracle(x[:, 0, i].detach(), q[:, 0, i], tau, threshold, detach) for i in range(5)]
    assert 0 < spikes.detach().mean() < 1
    assert_bits(spikes[:, 0].detach(), torch.stack([of["spikes"] for of in found], 1))
    assert_close(x.grad[:, 0], torch.stack([of["x"] for of in found], 1), 1e-12)
    for name in ("tau", "threshold") if tau > 1 else ("threshold",):
        # Learned constants are float32.
        gradient = neuron.get_parameter(name).grad
        assert gradient is not None
        assert_close(gradient.double(), torch.stack([of[name] for of in found]).sum(), 1e-6, name)


def test_refused() -> None:
    with pytest.raises(ValueError, match=r"^tau: expected numbers of time steps >= 1, got 0.5$"):
        CLIF(0.5)
    with pytest.raises(TypeError, match=r"^reset: expected an option of CLIF, got an unknown one"):
        CLIF(reset="zero")
