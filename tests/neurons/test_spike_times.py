"""Weight gradients against finite differences of exact spike times.

Units. The layer runs R steps per time unit with time constants R tau. Its dL/dw for a gradient q at the spikes is
`q eps / delta_u` with delta_u per step, and q = dL/ds means "earlier". A spike time in time units moves by
`dt/dw = -eps / u'`, u' per time unit = R delta_u; so `dt/dw = -(dL/dw) / R` for q = 1.
"""

import math
from typing import NamedTuple

import numpy as np
import pytest
import torch
from event_simulator import Neuron, Spike

import snnlib
from snnlib import functional as F
from snnlib.neurons import CubaLIF

NEURON = Neuron(tau_m=5.0, tau_s=3.0)
INPUTS, HORIZON = 6, 12.0
# Flatter crossings are near misses: u curves within a step of the grid as much as it rises.
MIN_SLOPE = 0.3


class Case(NamedTuple):
    steps_per_unit: int
    input_steps: np.ndarray
    weights: np.ndarray
    q: np.ndarray

    @property
    def times(self) -> list[float]:
        return (self.input_steps / self.steps_per_unit).tolist()


def _case(seed: int, steps_per_unit: int) -> Case:
    generator = np.random.default_rng(seed)
    # Inputs on the grid of the coarsest layer, so that every resolution sees the same events.
    units = np.sort(generator.choice(np.arange(1, 8 * 16), INPUTS, replace=False)) / 16
    weights = generator.uniform(-0.6, 2.4, INPUTS)
    return Case(steps_per_unit, (units * steps_per_unit).astype(int), weights, generator.standard_normal(64))


def _layer_gradient(case: Case) -> tuple[int, np.ndarray]:
    """(spikes, d/dw of sum of q_m t_m) from the library."""
    r = case.steps_per_unit
    steps = int(HORIZON * r)
    x = torch.zeros(steps, 1, INPUTS, dtype=torch.float64)
    for k, step in enumerate(case.input_steps):
        x[step, 0, k] = 1
    weight = torch.from_numpy(case.weights)[None].requires_grad_()
    spikes = F.srm_linear(x, weight, tau_m=5.0 * r, tau_s=3.0 * r, grad_clamp=None)
    count = int(spikes.sum())
    q = torch.zeros_like(spikes)
    q[spikes > 0] = torch.from_numpy(case.q[:count])
    spikes.backward(q)
    return count, -weight.grad[0].numpy() / r


def _exact(case: Case, weights: np.ndarray) -> list[Spike]:
    return NEURON.spikes(case.times, weights.tolist(), HORIZON)


def _finite_differences(case: Case, step: float = 1e-6) -> np.ndarray | None:
    """Central differences of sum of q_m t_m; None where the number of spikes changes under the step."""
    out = np.zeros(INPUTS)
    count = len(_exact(case, case.weights))
    for k in range(INPUTS):
        moved = []
        for sign in (1, -1):
            weights = case.weights.copy()
            weights[k] += sign * step
            spikes = _exact(case, weights)
            if len(spikes) != count:
                return None
            moved.append(sum(q * spike.time for q, spike in zip(case.q, spikes, strict=False)))
        out[k] = (moved[0] - moved[1]) / (2 * step)
    return out


def _relative(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.linalg.norm(a - b) / np.linalg.norm(b))


def _steep_cases(count: int, steps_per_unit: int) -> list[tuple[Case, np.ndarray]]:
    """Cases whose finite differences exist, whose spikes are no near misses, and that both simulations agree on."""
    found = []
    for seed in range(10 * count):
        case = _case(seed, steps_per_unit)
        spikes = _exact(case, case.weights)
        if not spikes or min(spike.slope for spike in spikes) < MIN_SLOPE:
            continue
        expected = _finite_differences(case)
        if expected is not None and _layer_gradient(case)[0] == len(spikes):
            found.append((case, expected))
        if len(found) == count:
            return found
    raise AssertionError(f"only {len(found)} of {count} random cases were usable")


@pytest.mark.parametrize("steps_per_unit", [16, 64])
def test_layer_gradients_equal_finite_differences(steps_per_unit: int, path: str) -> None:
    cases = _steep_cases(20 if path == "native" else 3, steps_per_unit)
    errors = [_relative(_layer_gradient(case)[1], expected) for case, expected in cases]
    # The grid's own error: a step of 1/16 against kernels of 3 and 5 units.
    assert max(errors) < 0.05, errors
    spikes = [len(_exact(case, case.weights)) for case, _ in cases]
    assert max(spikes) > 1, "no case with a reset between two spikes"


def test_finer_steps_come_closer() -> None:
    errors = {}
    for resolution in (16, 64, 256):
        cases = _steep_cases(10, resolution)
        errors[resolution] = np.median([_relative(_layer_gradient(c)[1], e) for c, e in cases])
    assert errors[256] < errors[64] < errors[16], errors
    assert errors[256] < 0.005


@pytest.mark.parametrize("name", ["tau_m", "tau_s", "threshold"])
def test_learned_constants_move_the_spike(name: str) -> None:
    """The gradient of a spike's time by a constant is the finite difference of where the potential crosses."""
    constants = {"tau_m": 800.0, "tau_s": 300.0, "threshold": 40.0}
    x = torch.zeros(600, 1, 1, dtype=torch.float64)
    x[0] = 0.4

    def crossing(**changed: float) -> float:
        neuron = CubaLIF(**{**constants, **changed}, decay_input=False, discretisation="exponential")
        u = neuron.free_potential(x.clone()).flatten()
        after = int((u >= 1).nonzero()[0])
        return float(after - (u[after] - 1) / (u[after] - u[after - 1]))

    neuron = CubaLIF(
        **constants,
        decay_input=False,
        discretisation="exponential",
        gradient="event",
        learnable=(name,),
        refractory=math.inf,
        grad_clamp=math.inf,
    )
    snnlib.readout.first_spike_time(neuron(x)).sum().backward()
    h = 1e-3 * constants[name]
    expected = (crossing(**{name: constants[name] + h}) - crossing(**{name: constants[name] - h})) / (2 * h)
    # The rise over the step that crosses is that of half a step earlier, of some hundred steps.
    assert float(getattr(neuron, name).grad) == pytest.approx(expected, rel=0.02)
