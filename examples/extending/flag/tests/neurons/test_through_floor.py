"""The gradient past a membrane that was cut at its floor: kernels, reference and `step` agree."""

import pytest
import torch
from compare import assert_bits, assert_close

import snnlib
from snnlib.neurons import LIF


@pytest.mark.parametrize("through", [False, True])
def test_gradients_agree(through: bool) -> None:
    neuron = LIF(2.0, floor=-0.25, reset="subtract", through_floor=through)
    x = 3 * torch.randn(20, 2, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = []
    for path in ("native", "reference"):
        with snnlib.use_path(path):
            current = x.clone().requires_grad_()
            neuron(current)[-1].sum().backward()
            assert current.grad is not None
            found.append(current.grad)
    current = x.clone().requires_grad_()
    neuron.reference(current).value[-1].sum().backward()
    assert current.grad is not None
    assert_bits(*found)
    assert_close(found[0], current.grad, 1e-12)


def test_gradients_pass_the_floor() -> None:
    """A large negative current cuts the membrane: nothing before it matters unless the floor is passed."""
    for through in (False, True):
        neuron = LIF(2.0, floor=-0.25, through_floor=through)
        x = torch.tensor([0.5, -4.0, 1.0, 1.0]).reshape(4, 1, 1).requires_grad_()
        neuron(x)[-1].sum().backward()
        assert x.grad is not None
        assert bool(x.grad[0].any()) is through
