"""Plans: the path that each kind of call takes, what they follow from, and that a call runs as its plan says."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import snnlib
from snnlib import neurons
from snnlib.backends import native
from snnlib.functional import Convolution, FullyConnected, SparselyConnected
from snnlib.functional.currents import Delayed
from snnlib.functional.paths import RULES, Path, choose, entries_only
from snnlib.functional.plan import LayerPlan, plan_layer
from snnlib.functional.recurrent import Recurrence

X, WEIGHT = torch.ones(4, 2, 3), torch.ones(5, 3)
FULL = FullyConnected()
SPARSE = SparselyConnected(torch.tensor([0, 1, 2, 3]), torch.tensor([0, 1, 2], dtype=torch.int32), 5)
TRIANGLE = snnlib.surrogate.Triangle()


class Own:
    """A full matrix that no kernel knows."""

    def check(self, x: Tensor, weight: Tensor) -> None:
        """Accept all."""

    def forward(self, x: Tensor, weight: Tensor) -> Tensor:
        """Currents."""
        return x @ weight.t()

    def input_backward(self, signal: Tensor, x: Tensor, weight: Tensor) -> Tensor:
        """Adjoint in x."""
        return signal @ weight

    def weight_backward(self, signal: Tensor, x: Tensor, weight: Tensor) -> Tensor:
        """Adjoint in the weight."""
        return signal.t() @ x


class Adder(neurons.Neuron):
    """A model without dynamics."""

    state_names = ("v",)

    def step(self, state: Any, current: Tensor, params: Any) -> Any:
        """Runs a step."""
        v = state[0] + current
        spike = snnlib.surrogate.spike(v - 1, torch.ones(()), TRIANGLE)
        return spike, (v * (1 - spike.detach()),)


class Inhibited(Adder):
    """A model whose neurons hear each other, so that no program computes them one by one."""

    def step(self, state: Any, current: Tensor, params: Any) -> Any:
        """Runs a step."""
        return super().step(state, current - current.mean(1, keepdim=True), params)


def _plan(operator: Any, neuron: neurons.Neuron, weight: Tensor = WEIGHT, **call: Any) -> LayerPlan:
    x = X.to(weight.dtype)
    return plan_layer(x, weight, operator, neuron, **{"return_state": False, **call})


LEARNS = WEIGHT.clone().requires_grad_()
SQUARE = torch.ones(5, 5)
DELAY = Delayed(FULL, torch.tensor([0.0, 1.0, 2.0]))
EXACT: dict[str, Any] = {"gradient": "event"}
# The plan, its path, and a part of what kept it from the first path.
CASES: dict[str, tuple[Callable[[], LayerPlan], Path, str]] = {
    "one state": (lambda: _plan(FULL, neurons.LIF()), Path.LAYER, ""),
    "that trains": (lambda: _plan(FULL, neurons.LIF(surrogate=TRIANGLE), LEARNS), Path.LAYER, ""),
    "SRM": (lambda: _plan(FULL, neurons.SRM(), LEARNS), Path.LAYER, ""),
    "SRM in chunks": (lambda: _plan(FULL, neurons.SRM(), LEARNS, return_state=True), Path.LAYER, ""),
    "exact times": (lambda: _plan(FULL, neurons.CubaLIF(**EXACT), LEARNS), Path.LAYER, ""),
    "float64": (lambda: _plan(FULL, neurons.LIF(), WEIGHT.double()), Path.TORCH_SCAN, "compute in float32"),
    "an operator": (lambda: _plan(Own(), neurons.LIF()), Path.TORCH_SCAN, "a linear map, got Own"),
    "a program": (lambda: _plan(FULL, Adder()), Path.CURRENTS_SCAN, "need one or two linear states"),
    "both": (lambda: _plan(Own(), Inhibited()), Path.TORCH_STEPS, "a linear map, got Own"),
    "a model": (
        lambda: _plan(FULL, Inhibited()),
        Path.CURRENTS_STEPS,
        "Inhibited with its options runs by its step, which calls mean",
    ),
    "two states": (lambda: _plan(FULL, neurons.CubaLIF()), Path.LAYER, ""),
    "two states that train": (lambda: _plan(FULL, neurons.ALIF(surrogate=TRIANGLE), LEARNS), Path.LAYER, ""),
    "an attached adaptation": (
        lambda: _plan(FULL, neurons.ALIF(detach_reset=False, surrogate=TRIANGLE), LEARNS),
        Path.CURRENTS_SCAN,
        "a reset that is detached or of the compared membrane alone",
    ),
    "three states": (lambda: _plan(FULL, neurons.ALIF(tau_s=4.0)), Path.CURRENTS_SCAN, "one or two linear"),
    "a floor": (lambda: _plan(FULL, neurons.LIF(floor=-1.0)), Path.CURRENTS_SCAN, "no floor"),
    "learnable": (
        lambda: _plan(FULL, neurons.LIF(learnable=("tau",))),
        Path.CURRENTS_SCAN,
        "learned constants",
    ),
    "channels": (
        lambda: _plan(FULL, neurons.LIF(tau=torch.linspace(2, 3, 5)), LEARNS),
        Path.CURRENTS_SCAN,
        "one decay for all channels",
    ),
    "a rest": (
        lambda: _plan(FULL, neurons.LIF(refractory=2), LEARNS),
        Path.CURRENTS_SCAN,
        "no finite refractory time",
    ),
    "chunks": (
        lambda: _plan(FULL, neurons.LIF(), LEARNS, return_state=True),
        Path.CURRENTS_SCAN,
        "gradients through a state",
    ),
    "exact chunks": (
        lambda: _plan(FULL, neurons.CubaLIF(**EXACT), LEARNS, return_state=True),
        Path.CURRENTS_SCAN,
        "gradients through a state",
    ),
    "sparse": (
        lambda: _plan(SPARSE, neurons.LIF(), torch.ones(3)),
        Path.CURRENTS_SCAN,
        "SparselyConnected gives currents",
    ),
    "recurrent": (
        lambda: _plan(Recurrence(FULL, SQUARE), neurons.LIF()),
        Path.CURRENTS_SCAN,
        "no recurrence",
    ),
    "recurrent SRM": (
        lambda: _plan(Recurrence(FULL, SQUARE), neurons.SRM()),
        Path.CURRENTS_STEPS,
        "no recurrence",
    ),
    "recurrent through an operator": (
        lambda: _plan(Recurrence(FULL, SQUARE, FULL), neurons.LIF()),
        Path.CURRENTS_STEPS,
        "no recurrence",
    ),
    "recurrent currents": (
        lambda: plan_layer(X, SQUARE, Recurrence(None, torch.ones(3, 3)), neurons.LIF()),
        Path.TORCH_SCAN,
        "got sequence of currents",
    ),
    "delays": (lambda: _plan(DELAY, neurons.LIF()), Path.CURRENTS_SCAN, "Delayed gives currents"),
}


@pytest.mark.skipif(native.explain_path()[0] != "native", reason="the reference path has no kernels")
@pytest.mark.parametrize("name", CASES)
def test_each_kind_of_call_takes_its_path(name: str) -> None:
    make, path, reason = CASES[name]
    plan = make()
    assert plan.path is path
    assert reason in (plan.refusals or ("",))[0]
    assert len(plan.refusals) == [row[0] for row in RULES].index(path)
    assert str(plan).startswith(path.value) and "{" not in str(plan)


def test_every_need_is_missed_by_a_case() -> None:
    """Each row of the table refuses a call: on the reference path the last need of the map."""
    with snnlib.use_path("reference"):
        plans = [_plan(FULL, neurons.LIF())]
        assert "native path" in plans[0].refusals[0]
    with snnlib.use_path("auto"):
        plans += [make() for make, *_ in CASES.values()]
        delays = Recurrence(FULL, SQUARE, delay=torch.zeros(5), max_delay=1)
        recurrent = [_plan(Recurrence(FULL, SQUARE), neurons.LIF()), _plan(delays, neurons.LIF())]
    lacking = [plan.lacking for plan in plans]
    # Refusals of devices alone.
    for facts in (plan.facts._replace(device="cuda", native=False) for plan in recurrent):
        lacking += [
            choose(facts._replace(**change))[1]
            for change in ({}, {"back": "SparselyConnected"}, {"crowded": "full"})
        ]
    missed = {sentence for sentences in lacking for sentence in sentences}
    assert missed == {sentence for _, needs in RULES for _, sentence in needs}


def test_equal_facts_are_equal_keys() -> None:
    first, again = (_plan(FULL, neurons.LIF(), torch.full((5, 3), value)) for value in (1.0, 2.0))
    other = _plan(FULL, neurons.LIF(), LEARNS)
    assert first.facts == again.facts != other.facts
    assert len({first.facts: 0, again.facts: 0, other.facts: 0}) == 2
    assert choose(first.facts) == (first.path, first.lacking)


def test_chunks_may_save_entries_alone() -> None:
    with entries_only():
        assert _plan(FULL, neurons.LIF(), LEARNS, return_state=True).path in (Path.LAYER, Path.TORCH_SCAN)
        event = _plan(FULL, neurons.CubaLIF(**EXACT), LEARNS, return_state=True)
        assert event.path in (Path.LAYER, Path.TORCH_SCAN)
        once = neurons.CubaLIF(**EXACT, refractory=math.inf)
        assert _plan(FULL, once, LEARNS, return_state=True).path is not Path.LAYER


@pytest.mark.parametrize(
    "neuron", [neurons.LIF(), neurons.SRM(), neurons.CubaLIF(**EXACT), Adder()], ids=repr
)
@pytest.mark.parametrize("operator", [FULL, Own(), DELAY], ids=lambda operator: type(operator).__name__)
def test_all_paths_are_neurons_on_currents(operator: Any, neuron: neurons.Neuron) -> None:
    x = (torch.arange(36).reshape(6, 2, 3) % 4 > 0).float()
    arriving = x
    if operator is DELAY:
        late = (torch.cat((x.new_zeros(int(d), 2), x[: 6 - int(d), :, i])) for i, d in enumerate(DELAY.delay))
        arriving = torch.stack(tuple(late), 2)
    weight = torch.full((5, 3), 3.0)
    found = plan_layer(x, weight, operator, neuron, return_state=False).run(x, weight).value
    assert torch.equal(found, neuron(arriving @ weight.t())) and found.any()


def test_explain_dispatch_prints_the_plan_of_the_layer() -> None:
    layer = snnlib.SpikingConv2d(2, 4, 3, neuron=neurons.CubaLIF())
    x = torch.zeros(3, 1, 2, 8, 8)
    plan = layer.plan(x, layer.effective_weight, return_state=False)
    found = snnlib.explain_dispatch(layer, x)
    assert found.plan == str(plan) and f"path: {plan}" in str(found)
    assert isinstance(layer.operator, Convolution)
