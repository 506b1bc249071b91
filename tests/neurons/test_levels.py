"""Neurons that give whole numbers of spikes in a step."""

import itertools
import json
import math
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import snnlib
from snnlib.backends.arguments import row_names
from snnlib.backends.reference import linear
from snnlib.functional.paths import Path
from snnlib.neurons import IF, LIF, MODELS, PLIF, CubaLIF, Neuron, config, from_config
from snnlib.surrogate import ATan, EveryThreshold, Exponential, Rectangle, StraightThrough, Triangle

GRADED = (IF, LIF, PLIF, CubaLIF)


def spikes(neuron: Neuron, *h: float) -> list[float]:
    """Spikes of neurons at rest for currents of one step."""
    return neuron.reference(torch.tensor(h).reshape(1, 1, -1)).value.flatten().tolist()


def test_levels_round_or_floor() -> None:
    h = (-1.0, 0.0, 0.25, 0.5, 1.0, 1.5, 2.5, 9.0)
    assert spikes(IF(levels=2), *h) == [0, 0, 0, 1, 1, 2, 2, 2]
    assert spikes(IF(levels=2, compare=">"), *h) == [0, 0, 0, 0, 1, 1, 2, 2]
    assert spikes(IF(levels=2, level_rounding="floor"), *h) == [0, 0, 0, 0, 1, 1, 2, 2]
    assert spikes(IF(levels=2, level_rounding="floor", compare=">"), *h) == [0, 0, 0, 0, 0, 1, 2, 2]
    assert spikes(IF(levels=math.inf, threshold=0.5), *h) == [0, 0, 1, 1, 2, 3, 5, 18]
    assert math.isnan(spikes(IF(levels=2), math.nan)[0])


def test_each_spike_takes_a_threshold_off() -> None:
    x = torch.tensor([2.75, 0.0, -1.0, 3.0]).reshape(4, 1, 1)
    value, (state,) = IF(levels=2).reference(x)
    assert value.flatten().tolist() == [2, 1, 0, 2] and state.item() == -0.25
    assert IF(levels=4, reset="zero").reference(x).value.flatten().tolist() == [3, 0, 0, 2]


def test_one_level_is_the_neuron_without_levels() -> None:
    for rounding in ("round", "floor"):
        assert spikes(IF(levels=1, level_rounding=rounding), 0.5, 0.75, 1.0, 2.0) == [0, 0, 1, 1]
    assert IF().reset == "zero" and IF().surrogate == ATan(2.0)
    assert IF(levels=4).reset == "subtract" and IF(levels=4).surrogate == StraightThrough()
    assert IF(levels=4, reset="zero").reset == "zero" and IF(levels=4, surrogate=ATan()).surrogate == ATan()


def test_models_have_levels_or_refuse_them_by_name() -> None:
    for name, model in MODELS.items():
        if model in GRADED:
            assert model(levels=4).levels == 4
            continue
        with pytest.raises(TypeError, match=f"^levels: expected an option of {name}, got an unknown one"):
            model(levels=4)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LIF(levels=2, refractory=3), "^levels: expected 1 beside refractory=3, got 2$"),
        (lambda: CubaLIF(levels=2, gradient="event"), "^levels: expected 1 beside gradient='event', got 2$"),
        (lambda: LIF(levels=2, level_rounding="up"), "^level_rounding: expected one of"),
    ],
)
def test_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_the_name_until_0_2_is_told_and_its_files_load() -> None:
    with pytest.raises(TypeError, match=r"^max_spikes: .* it is levels=3, level_rounding='floor' now$"):
        IF(max_spikes=3)  # type: ignore[call-arg]
    old = config(IF(reset="subtract", surrogate=ATan()))
    del old["levels"], old["level_rounding"]
    neuron = from_config(json.loads(json.dumps({**old, "max_spikes": "inf"})))
    assert (neuron.levels, neuron.level_rounding) == (math.inf, "floor")
    state = {**vars(IF()), "max_spikes": 3}
    del state["levels"], state["level_rounding"]
    pickled = IF()
    pickled.__setstate__(state)
    assert (pickled.levels, pickled.level_rounding) == (3, "floor")


@pytest.mark.parametrize("surrogate", [None, EveryThreshold(Triangle()), StraightThrough(Exponential(0.25))])
def test_settings_hold_levels(surrogate: Any) -> None:
    neuron = LIF(levels=4, level_rounding="floor", surrogate=surrogate)
    again = from_config(json.loads(json.dumps(config(neuron))))
    assert str(again) == str(neuron) and again.surrogate == neuron.surrogate
    assert str(pickle.loads(pickle.dumps(neuron))) == str(neuron)


def test_levels_are_stored_as_whole_numbers() -> None:
    assert json.loads(json.dumps(config(LIF(levels=np.int64(4)))))["levels"] == 4
    assert str(IF(levels=4.0)) == str(IF(levels=4))


def test_more_spikes_than_float32_counts_reset_once() -> None:
    neuron = IF(levels=math.inf, reset="zero", reset_value=-0.25)
    assert neuron(torch.tensor([3e7, 0, 0.5, 0]).reshape(4, 1, 1)).flatten().tolist() == [3e7, 0, 0, 0]


def test_a_bump_is_one() -> None:
    for wrong in (StraightThrough(), snnlib.surrogate.MultiGaussian(), torch.sigmoid):
        with pytest.raises(TypeError, match=r"^bump: expected a single bump of snnlib.surrogate"):
            EveryThreshold(wrong)  # type: ignore[arg-type]


class Jumping(LIF):
    """A model of a user's own, whose spikes raise a second state."""

    state_names = ("v", "a")

    def dynamics(self, params: Any) -> Any:
        return self.with_reset(params, a=[[0.5, 0.0], [0.0, 0.5]], b=[1.0, 0.0], j=[0.0, 1.0])


def test_kernels_leave_jumps_of_several_spikes_to_step() -> None:
    assert Jumping().kernel(torch.zeros(1)) is not None
    assert Jumping(levels=2).kernel(torch.zeros(1)) is None


OPTIONS = {
    "levels": (2, 5, math.inf),
    "level_rounding": ("round", "floor"),
    "compare": (">=", ">"),
    "reset_time": ("same", "next"),
    "reset": ("subtract", "zero", "none"),
    "detach_reset": (True, False),
    "surrogate": (None, EveryThreshold(Triangle()), Triangle(), StraightThrough(Exponential(0.5))),
}


@pytest.mark.parametrize("model", GRADED)
def test_the_reference_has_the_gradients_of_step(model: type[Neuron]) -> None:
    """The equations of the kernels agree with autograd through `step`."""
    generator, compared = torch.Generator().manual_seed(0), 0
    for i, values in enumerate(itertools.product(*OPTIONS.values())):
        neuron = model(
            **dict(zip(OPTIONS, values, strict=True)), threshold=0.7, learnable="threshold"
        ).double()
        kernel = neuron._forward_dynamics(neuron.constants())
        if i % 4:
            continue
        assert kernel is not None
        compared += 1
        x = 4 * torch.randn(6, 2, 3, dtype=torch.float64, generator=generator).requires_grad_()
        value, (state,) = neuron.reference(x)
        signals = torch.randn(value.shape, generator=generator).double(), torch.randn(state.shape).double()
        wanted = torch.autograd.grad((value, state), (x, neuron.threshold), signals)
        of_kernel = kernel.kernel(torch.float64, x.device)
        found, final = linear.forward(x.detach(), of_kernel)
        torch.testing.assert_close((found, final), (value.detach(), state.detach()))
        grad, grads, _ = linear.backward(*signals, x.detach(), of_kernel)
        rows = dict(zip(row_names(of_kernel.variables), grads.flatten(1).sum(1), strict=True))
        by_threshold = rows["threshold"] - (rows["offset0"] if neuron.reset == "subtract" else 0)
        torch.testing.assert_close((grad, by_threshold), wanted, msg=lambda text, of=neuron: f"{of}: {text}")
    assert compared > 50


# Bumps narrower and wider than half a threshold, where the first level of a rounding neuron is.
BUMPS = (
    StraightThrough(Rectangle(0.2)),
    StraightThrough(Triangle(0.05)),
    StraightThrough(),
    StraightThrough(Exponential(0.5)),
    EveryThreshold(Triangle(0.1)),
    EveryThreshold(Triangle()),
    Rectangle(0.1),
    Triangle(0.25),
    ATan(2.0),
)


def _quiet_events(kind: str, generator: torch.Generator) -> torch.Tensor:
    """Steps of silence, of single events, and of many events, `[30, 2, 16]`."""
    x = (torch.rand(30, 2, 16, generator=generator) < (0.03 if kind == "quiet" else 0.3)).float()
    x[::5] = 0
    x[12] = 1
    return x


@pytest.mark.parametrize("kind", ["quiet", "busy"])
@pytest.mark.parametrize("rounding", ["round", "floor"])
@pytest.mark.parametrize("bump", BUMPS, ids=str)
@pytest.mark.parametrize("model", GRADED)
def test_native_passes_are_those_of_the_reference(
    model: type[Neuron], bump: Any, rounding: Any, kind: str
) -> None:
    """Both passes of layers, and of neurons alone, with weights whose sums are exact."""
    generator = torch.Generator().manual_seed(0)
    options = {"levels": 3, "level_rounding": rounding, "surrogate": bump, "reset": "subtract"}
    fixed, learned = (
        snnlib.SpikingLinear(16, 400, neuron=model(threshold=1.0, learnable=names, **options))
        for names in ((), ("threshold",))
    )
    # A single event puts no neuron of many above 3/4 of the threshold, and some above half, their first level.
    weight = torch.randint(-2, 13, (400, 16), generator=generator) / (16 if model is IF else 8)
    with torch.no_grad():
        fixed.weight.copy_(weight)
        learned.weight.copy_(weight)
    x = _quiet_events(kind, generator)
    # The kernels of layers, whose passes skip quiet steps, take two states with compact bumps alone; else currents, and
    # neurons on them.
    plans = (
        layer.plan(x.clone().requires_grad_(), layer.effective_weight, return_state=False)
        for layer in (fixed, learned)
    )
    dense = bump in (StraightThrough(Exponential(0.5)), ATan(2.0))
    assert [plan.path is Path.LAYER for plan in plans] == [model is not CubaLIF or not dense, False]
    signal = torch.randn(30, 2, 400, generator=generator)
    current = torch.nn.functional.linear(x, weight)
    for module, given in ((fixed, x), (learned, x), (learned.neuron, current)):
        results = []
        for path in ("native", "reference"):
            module.zero_grad()
            own = given.clone().requires_grad_()
            with snnlib.use_path(path):  # type: ignore[arg-type]
                value = module(own)
                (value * signal).sum().backward()
            gradients = [parameter.grad for parameter in module.parameters()]
            assert own.grad is not None and all(grad is not None for grad in gradients)
            results.append((value.detach(), own.grad, *gradients))
        (value, *grads), (expected, *wanted) = results
        assert expected.any() and any(grad.any() for grad in wanted)
        assert torch.equal(value, expected)
        for grad, reference in zip(grads, wanted, strict=True):
            torch.testing.assert_close(grad, reference, rtol=1e-4, atol=1e-4 * float(reference.abs().max()))
