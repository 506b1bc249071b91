"""Quadratic integrate-and-fire neurons against their equations written out."""

from typing import Any

import pytest
import torch
from compare import assert_bits, assert_close
from torch import Tensor

from snnlib.neurons import QIF, Izhikevich
from snnlib.surrogate import PiecewiseQuadratic

TRIANGLE = PiecewiseQuadratic(1.0)


def oracle(
    x: Tensor, q: Tensor, tau: float, curvature: float, threshold: float, reset: str, detach: bool
) -> dict[str, Tensor]:
    """Spikes, and gradients of `sum(q s)`, of one step after another and back, for `[T]` with rest 0, critical 0.8."""
    rest, critical, reset_value = 0.0, 0.8, -0.1
    v = reset_value if reset == "zero" else 0.0
    before, potentials, spikes = [], [], []
    for current in x.tolist():
        before.append(v)
        h = v + (current + curvature * (v - rest) * (v - critical)) / tau
        s = float(h >= threshold)
        v = (reset_value if s else h) if reset == "zero" else h - s * threshold
        potentials.append(h)
        spikes.append(s)
    grads = dict.fromkeys(("tau", "curvature", "threshold"), 0.0)
    of_x = [0.0] * len(spikes)
    g = 0.0
    for t in reversed(range(len(spikes))):
        v, h, s = before[t], potentials[t], spikes[t]
        slope = max(0.0, 1 - abs(h - threshold))
        of_spike = float(q[t])
        if reset == "zero":
            of_spike += 0.0 if detach else g * (reset_value - h)
            g = g * (1 - s)
        else:
            of_spike -= 0.0 if detach else g * threshold
            grads["threshold"] -= g * s
        of_h = g + of_spike * slope
        grads["threshold"] -= of_spike * slope
        parabola = (v - rest) * (v - critical)
        grads["curvature"] += of_h * parabola / tau
        grads["tau"] -= of_h * (float(x[t]) + curvature * parabola) / tau**2
        of_x[t] = of_h / tau
        g = of_h * (1 + curvature * (2 * v - rest - critical) / tau)
    found = {"spikes": spikes, "x": of_x, **grads}
    return {name: torch.tensor(value, dtype=torch.float64) for name, value in found.items()}


@pytest.mark.parametrize("reset", ["zero", "subtract"])
@pytest.mark.parametrize("detach", [False, True])
@pytest.mark.parametrize("constants", [(2.0, 1.0, 1.0), (4.0, 1.5, 1.25)])
def test_equals_its_equations(reset: str, detach: bool, constants: tuple[float, float, float]) -> None:
    tau, curvature, threshold = constants
    generator = torch.Generator().manual_seed(3)
    x = 2 * torch.rand(40, 1, 5, generator=generator, dtype=torch.float64)
    q = torch.randn(40, 1, 5, generator=generator, dtype=torch.float64)
    neuron = QIF(
        tau,
        curvature=curvature,
        threshold=threshold,
        reset=reset,
        detach_reset=detach,
        surrogate=TRIANGLE,
        learnable=("tau", "curvature", "threshold"),
    )
    x.requires_grad_()
    spikes = neuron(x)
    spikes.backward(q)
    assert x.grad is not None
    found = [oracle(x[:, 0, i].detach(), q[:, 0, i], *constants, reset, detach) for i in range(5)]
    assert 0 < spikes.mean() < 1
    assert_bits(spikes[:, 0].detach(), torch.stack([of["spikes"] for of in found], 1))
    assert_close(x.grad[:, 0], torch.stack([of["x"] for of in found], 1), 1e-12)
    for name in ("tau", "curvature", "threshold"):
        # Learned constants are float32.
        gradient = neuron.get_parameter(name).grad
        assert gradient is not None
        assert_close(gradient.double(), torch.stack([of[name] for of in found]).sum(), 1e-6, name)


def test_is_izhikevich_without_adaptation() -> None:
    x = 2 * torch.rand(30, 2, 4, dtype=torch.float64)
    other = Izhikevich(2.0, rest=0.0, critical=0.8, reset_value=-0.1)
    assert_bits(QIF(2.0)(x), other.reference(x).value)
    assert QIF(dialect="spikingjelly").detach_reset is False


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"critical": 0.0}, "^critical: expected a potential above rest 0, got 0$"),
        ({"critical": 1.0}, "^critical: expected a potential below threshold 1.0, got 1$"),
        ({"curvature": 0.0}, "^curvature: expected numbers > 0, got 0.0$"),
        ({"tau": 0.5}, "^tau: expected numbers of time steps >= 1, got 0.5$"),
        ({"reset": "none"}, "^reset: expected one of zero, subtract, got 'none'$"),
    ],
)
def test_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        QIF(**options)
