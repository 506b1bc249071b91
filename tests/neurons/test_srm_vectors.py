"""Worked sequences of the SRM neuron on both paths."""

import pytest
import torch
from oracles import gradient_table, kernel_table
from srm_vectors import NAN, V3, VECTORS, Vector
from torch import Tensor

from snnlib import functional as F

# float32 takes the kernels of this processor, float64 the portable ones.
every_dtype = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
each_vector = pytest.mark.parametrize("vector", VECTORS.values(), ids=list(VECTORS))


def _train(values: list[float], dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.tensor(values, dtype=dtype).reshape(-1, 1, 1)


def _options(taus: tuple[float, float, float]) -> dict[str, float]:
    return dict(zip(("tau_m", "tau_s", "tau_grad"), taus, strict=True))


def _assert_six_digits(actual: Tensor, expected: list[float]) -> None:
    """The vectors are written with six decimals; float32 rounds numbers of about 1 some ten times."""
    wide, precision = (
        torch.tensor(expected, dtype=torch.float64),
        1e-6 if actual.dtype == torch.float64 else 3e-6,
    )
    torch.testing.assert_close(actual.double().flatten(), wide, rtol=0, atol=precision)


@every_dtype
@each_vector
def test_forward(vector: Vector, dtype: torch.dtype, path: str) -> None:
    trace = F.srm_trace(_train(vector.current, dtype), **_options(vector.taus))
    assert trace.spikes.flatten().nonzero().flatten().tolist() == vector.spike_steps
    _assert_six_digits(trace.potential, vector.potential)
    _assert_six_digits(trace.delta_ut, vector.delta_ut)


@every_dtype
@each_vector
def test_backward(vector: Vector, dtype: torch.dtype, path: str) -> None:
    current = _train(vector.current, dtype)
    a, b = F.srm_backward(_train(vector.gradient, dtype), current, **_options(vector.taus))
    _assert_six_digits(a, vector.a)
    _assert_six_digits(b, vector.b)


@each_vector
def test_autograd_gives_the_weight_signal(vector: Vector, path: str) -> None:
    current = _train(vector.current).requires_grad_()
    F.srm_neuron(current, **_options(vector.taus)).backward(_train(vector.gradient))
    _assert_six_digits(current.grad, vector.a)


def test_dyadic_vector_is_exact_in_float32(path: str) -> None:
    trace = F.srm_trace(_train(V3.current).float(), **_options(V3.taus))
    assert trace.potential.flatten().tolist() == V3.potential
    assert trace.delta_ut.flatten().tolist() == V3.delta_ut


def test_firing_at_the_threshold_itself(path: str) -> None:
    """u is exactly 1 at step 0: `>=` fires there, `>` would fire one step later."""
    spikes = F.srm_neuron(_train([2.0, 0.0, 0.0]), tau_m=4.0, tau_s=2.0, tau_grad=2.0)
    assert spikes.flatten().tolist() == [1.0, 0.0, 0.0]


def _impulse_response(tau_m: float, tau_s: float, tau_grad: float, steps: int) -> tuple[Tensor, Tensor]:
    impulse = torch.zeros(steps, 1, 1, dtype=torch.float64)
    impulse[0] = 1
    trace = F.srm_trace(impulse, tau_m=tau_m, tau_s=tau_s, tau_grad=tau_grad, threshold=10.0)
    return trace.potential.flatten(), trace.delta_ut.flatten()


@pytest.mark.parametrize("gap", [1e-2, 1e-3, 1e-4, 1e-5, 0.0])
def test_nearly_equal_time_constants_lose_no_digits(gap: float, path: str) -> None:
    """A difference of two exponentials would be off by up to 5 % in float32 here."""
    impulse = torch.zeros(12, 1, 1)
    impulse[0] = 1
    trace = F.srm_trace(impulse, tau_m=4 + gap, tau_s=4.0, threshold=10.0)
    expected = torch.from_numpy(kernel_table(4 + gap, 4.0, 12))
    # A dozen roundings of 2^-24.
    torch.testing.assert_close(trace.potential.flatten().double(), expected, rtol=1e-6, atol=0)


@pytest.mark.parametrize(
    "taus", [(5.0, 3.0, 2.5), (8.0, 4.0, 3.0), (10.0, 6.0, 5.5), (3.0, 6.0, 6.0), (1.0, 1.0, 2.0)]
)
def test_impulse_responses(taus: tuple[float, float, float], path: str) -> None:
    potential, exponential = _impulse_response(*taus, 30)
    torch.testing.assert_close(
        potential, torch.from_numpy(kernel_table(taus[0], taus[1], 30)), rtol=1e-10, atol=1e-15
    )
    torch.testing.assert_close(
        exponential, torch.from_numpy(gradient_table(taus[2], 30)), rtol=1e-10, atol=1e-15
    )


@pytest.mark.parametrize(("clamp", "slope"), [(4.0, 4.0), (0.5, 0.5), (100.0, 1 / 0.11), (None, 1 / 0.11)])
def test_clamp_bounds_the_slope_of_the_weight_signal(clamp: float | None, slope: float, path: str) -> None:
    """u goes from 0.99 to 1.1; the traces are 1.98 before the second input and (1.98 - 1.056) 2/3 after it."""
    a, b = F.srm_backward(_train([NAN, 1.0]), _train([2.97, -1.056]), grad_clamp=clamp)
    # eps[0] = 1/3 and e_g = 2/3.
    assert a[1].item() == pytest.approx(slope / 3, rel=1e-12)
    assert b[1].item() == pytest.approx(1 / 0.616 * 2 / 3, rel=1e-12)


def test_nan_potential_is_not_a_silent_zero(path: str) -> None:
    spikes = F.srm_neuron(_train([0.1, NAN, 0.1]))
    assert spikes.flatten()[0] == 0
    assert spikes.flatten()[1:].isnan().all()


@pytest.mark.parametrize("value", [float("inf"), 3e38])
def test_huge_currents_fire_without_nan(value: float, path: str) -> None:
    current = torch.tensor([value, 0.0, 3.5]).reshape(3, 1, 1)
    assert F.srm_neuron(current).flatten().tolist() == [1, 0, 1]
    a, b = F.srm_backward(torch.ones(3, 1, 1), current)
    assert a.isfinite().all()
    assert b.isfinite().all()
