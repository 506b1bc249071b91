"""Neurons: options, states and shapes that are refused, and kernels that refuse what they do not compute."""

import inspect
import math
import re
from typing import Any

import op_calls
import pytest
import torch
from compare import assert_bits
from script import script
from torch import Tensor

from snnlib import SpikingLinear, SpikingRNN
from snnlib.neurons import (
    BRF,
    IF,
    KLIF,
    LIF,
    MODELS,
    SRM,
    Alpha,
    CubaLIF,
    Izhikevich,
    Neuron,
    SpikingNeuron,
)
from snnlib.surrogate import Triangle

# Has the values of options without a list of words.
maker = script("tests/stored/make_gradients.py")


@pytest.mark.parametrize(
    "model", [m for m in MODELS.values() if "dialect" in inspect.signature(m).parameters]
)
def test_unknown_dialect(model: type[Neuron]) -> None:
    known = ", ".join(model.dialects)
    with pytest.raises(ValueError, match=rf"^dialect: expected one of {known}, got 'brian'$"):
        model(dialect="brian")


@pytest.mark.parametrize("model", [m for m in MODELS.values() if issubclass(m, SpikingNeuron)])
def test_wrong_options(model: type[Neuron]) -> None:
    with pytest.raises(TypeError, match=r"^surrogate: expected one of snnlib.surrogate .* got 'atan'$"):
        model(surrogate="atan")
    with pytest.raises(TypeError, match=r"an instance"):
        model(surrogate=Triangle)
    with pytest.raises(ValueError, match=r"^threshold: expected numbers > 0, got 0$"):
        model(threshold=0)
    with pytest.raises(ValueError, match=r"^learnable: expected names of constants .* got 'tua'$"):
        model(learnable=("tua",))
    for name, value in (("compare", "=="), ("reset", "soft")):
        if name in inspect.signature(model).parameters:
            with pytest.raises(ValueError, match=rf"^{name}: expected one of .*, got '{value}'$"):
                model(**{name: value})


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LIF(0.5), "^tau: expected numbers of time steps >= 1, got 0.5$"),
        (
            lambda: LIF(discretisation="rk4"),
            "^discretisation: expected one of euler, exponential, got 'rk4'$",
        ),
        (lambda: LIF(levels=0), "^levels: expected a whole number from 1 to 16777216, or infinity, got 0$"),
        (
            lambda: LIF(levels=1.5),
            "^levels: expected a whole number from 1 to 16777216, or infinity, got 1.5$",
        ),
        (lambda: LIF(threshold=torch.ones(3), channels=2), "^threshold: expected 2 values"),
        (lambda: Alpha(3.0, 3.0), "^tau_decay: expected more time steps than tau_rise 3.0, got 3.0$"),
        (
            lambda: Alpha(reset="subtract", reset_time="same"),
            '^reset_time: expected "next" beside reset="subtract", got \'same\'$',
        ),
        (lambda: BRF(omega=200.0), "^dt: expected a number > 0 with dt \\* omega < 1"),
        (lambda: SRM(tau_m=0.5), "^tau_m: expected a finite number of time steps >= 1"),
        (lambda: SRM(reset_states="u"), "^reset_states: expected one of all, membrane, got 'u'$"),
        (lambda: CubaLIF(gradient="spikes"), "^gradient: expected one of surrogate, event, got 'spikes'$"),
        (
            lambda: CubaLIF(gradient="event", reset="subtract"),
            "^reset: expected 'zero' beside gradient='event', got 'subtract'$",
        ),
    ],
)
def test_refused(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def _options(kind: Any) -> list[tuple[type[Neuron], str]]:
    """Options of all models that are of this type."""
    return [
        (model, name)
        for model in MODELS.values()
        for name, option in inspect.signature(model, eval_str=True).parameters.items()
        if option.annotation in (kind, kind | None)
    ]


@pytest.mark.parametrize(("model", "name"), _options(bool))
@pytest.mark.parametrize("value", ["no", 0])
def test_flags(model: type[Neuron], name: str, value: object) -> None:
    with pytest.raises(TypeError, match=rf"^{name}: expected True or False, got {value!r}$"):
        model(**{name: value})


@pytest.mark.parametrize(("model", "name"), [*_options(float), *_options(float | Tensor)])
@pytest.mark.parametrize("value", [math.nan, True])
def test_numbers(model: type[Neuron], name: str, value: float) -> None:
    with pytest.raises((TypeError, ValueError), match=rf"^{name}: expected .*{value}|^{name}: .*got bool"):
        model(**{name: value})


@pytest.mark.parametrize(
    ("model", "name"),
    [
        (model, name)
        for model, name in [*_options(float), *_options(float | Tensor)]
        if name in ("rest", "reset_value", "floor", "threshold", "gain", "v_start", "w_start", "critical")
    ],
)
@pytest.mark.parametrize("value", [math.inf, 1e39])
def test_numbers_that_mean_nothing(model: type[Neuron], name: str, value: float) -> None:
    if name == "floor" and value < math.inf:
        return
    with pytest.raises(ValueError, match=rf"^{name}: expected .*, got {re.escape(str(value))}"):
        model(**{name: value})


@pytest.mark.parametrize(("model", "name"), _options(int))
@pytest.mark.parametrize("value", [-100, 2.5, True])
def test_integers(model: type[Neuron], name: str, value: object) -> None:
    expected = "an integer (>= [02]|from -12 to 2, or None)"
    with pytest.raises(ValueError, match=rf"^{name}: expected {expected}, got {value}$"):
        model(**{name: value})


def _but(model: type[Neuron], name: str, value: object) -> object:
    """A value of an option other than this one."""
    choices = getattr(model.fields[name].check, "choices", None)
    if choices is not None:
        return next(choice for choice in choices if choice != value)
    assert name in maker.VALUES, f"{name}: expected a value in VALUES of tests/stored/make_gradients.py"
    return maker.VALUES[name]


@pytest.mark.parametrize(
    ("model", "name", "other"),
    [
        (model, name, other)
        for model in MODELS.values()
        for name, field in model.fields.items()
        for other in field.beside
        if field.init and model.fields[other].init
    ],
)
def test_options_that_exclude_each_other(model: type[Neuron], name: str, other: str) -> None:
    field = model.fields[name]
    options: dict[str, Any] = {name: _but(model, name, field.default), **field.beside}
    options = {key: value for key, value in options.items() if model.fields[key].init}
    model(**options)
    options[other] = _but(model, other, field.beside[other])
    with pytest.raises(ValueError, match=rf"^{other}: expected .* beside {name}=.*, got {options[other]!r}"):
        model(**options)


@pytest.mark.parametrize(
    ("options", "dtype"),
    [
        ({"threshold": 3e38}, torch.float32),
        ({"tau": 1e39}, torch.float32),
        ({"tau": 1e7}, torch.float16),
    ],
)
@pytest.mark.parametrize("layer", [SpikingLinear, SpikingRNN])
def test_weights_that_no_dtype_holds(
    layer: type[SpikingLinear], options: dict[str, float], dtype: torch.dtype
) -> None:
    with pytest.raises(
        ValueError, match=rf"^neuron: expected one that weights of {dtype} up to .* make fire"
    ):
        layer(3, 4, neuron=LIF(**options), dtype=dtype)


@pytest.mark.parametrize("model", [LIF, IF])
def test_neurons_that_jump_have_no_event_gradient(model: type[Neuron]) -> None:
    with pytest.raises(TypeError, match=r"gradient"):
        model(gradient="event")


class Broken(Neuron):
    state_names = ("v", "w")

    def __init__(self, answer: object) -> None:
        super().__init__()
        self.answer = answer

    def step(self, state: Any, current: Tensor, params: Any) -> Any:
        return self.answer


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ((torch.zeros(2, 4), ()), "Broken.step: expected spikes of the current's shape .2, 3., got .2, 4."),
        ((torch.zeros(2, 3), (torch.zeros(2, 3),)), "expected a tuple of states .v, w., got 1 of them"),
        (
            (torch.zeros(2, 3), (torch.zeros(2, 3), torch.zeros(3))),
            "expected w of shape .2, 3., got .3,.",
        ),
    ],
)
def test_step_of_wrong_shapes(answer: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Broken(answer)(torch.zeros(4, 2, 3))


def test_wrong_state() -> None:
    neuron = LIF()
    with pytest.raises(TypeError, match=r"^state: expected the tuple that run returned, got Tensor$"):
        neuron.run(torch.zeros(4, 2, 3), torch.zeros(1, 2, 3))
    with pytest.raises(ValueError, match=r"^state: expected shape \(1, 2, 3\) for v, got \(1, 3, 2\)$"):
        neuron.run(torch.zeros(4, 2, 3), (torch.zeros(1, 3, 2),))
    with pytest.raises(ValueError, match=r"^threshold: expected 3 values, one per channel, got 2$"):
        LIF(threshold=torch.ones(2))(torch.zeros(4, 2, 3))


X, FRAMES = torch.zeros(3, 2, 4), torch.zeros(3, 2, 4, 4, 6)
LOW, LOWER = FRAMES[:, :, :, :3], FRAMES[:, :, :, :1]
ONE, TWO = torch.zeros(13, 1), torch.zeros(24, 1)
RECTIFIED, RECTIFIED_NEXT = [0, 0, 1, 1, 0, 0, 1, 1, 0], [0, 0, 1, 1, 1, 0, 1, 1, 0]
PRODUCTS, PRODUCTS_NEXT = [0, 0, 1, 1, 0, 0, 1, 0, 1], [0, 0, 1, 1, 1, 0, 1, 0, 1]
PLAIN, MEMBRANE = [0, 0, 1, 1, 0, 0, 1, 0, 0], [0, 0, 1, 1, 0, 1, 1, 0, 0]
OF_SCAN, OF_SRM = (ONE, None, PLAIN, 0), (torch.ones(()), 5.0, 3.0, 3.0, 0)


@pytest.mark.parametrize(
    ("op", "arguments", "message"),
    [
        ("scan", (X, TWO, None, RECTIFIED, 0), "flags: expected a rectified membrane with one state .* and 2 states"),
        ("scan", (X, ONE, None, RECTIFIED_NEXT, 0), "flags: expected a rectified membrane .* reset in the same step"),
        ("scan", (X, ONE, None, PRODUCTS, 0), "flags: expected products of states with two or three .* and 1 states"),
        ("scan", (X, TWO, None, PRODUCTS_NEXT, 0), "flags: expected products .* reset in the same step"),
        ("scan_pool", (LOW, *OF_SCAN), r"current: expected rows and columns in multiples of \(2, 2\), got \(3, 6\)"),
        ("scan_pool", (FRAMES, ONE, None, PLAIN, 0, 0, 2), "window: expected 2 integers >= 1"),
        ("scan_pool", (FRAMES[..., 0], ONE, None, PLAIN, 0), r"current: expected \[T, N, C, H, W\]"),
        ("scan_pool", (FRAMES, TWO, None, PLAIN, 0), "flags: expected one state, .* and 2 states"),
        ("scan_pool", (FRAMES, ONE, None, MEMBRANE, 0), "flags: expected one state, .* spikes as values"),
        ("srm_pool", (LOWER, *OF_SRM), r"current: expected at least \(2, 2\) rows and columns, got \(1, 6\)"),
    ],
)  # fmt: skip
def test_what_kernels_do_not_compute(op: str, arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        getattr(op_calls, f"{op}_forward")(*arguments)


def test_neurons_without_linear_dynamics() -> None:
    for neuron in (KLIF(), BRF(), Izhikevich()):
        assert neuron.dynamics(neuron.constants()) is not None
        with pytest.raises(ValueError, match=r"neuron: expected a model with linear dynamics"):
            neuron.free_potential(X)
    assert KLIF(scale_reset=True).dynamics(KLIF().constants()) is None
    assert BRF(gamma=0.0).dynamics(BRF().constants()) is None
    assert BRF(gamma=0.0)(torch.full((4, 1, 1), 300.0)).any()


def test_pooled_srm_neurons_give_no_state() -> None:
    arguments = (
        torch.zeros(3, 2, 4, 2, 6),
        SRM().kernel(torch.ones(1)).constants,
        None,
        [],
        [5.0, 3.0, 3.0, 4.0],
        [2, 2],
    )
    for device in ("cpu", "meta"):
        on = [part.to(device) if isinstance(part, torch.Tensor) else part for part in arguments]
        with pytest.raises(ValueError, match=r"return_state: expected False beside a window, got True"):
            torch.ops.snnlib.scan_forward(*on, True)
        assert torch.ops.snnlib.scan_forward(*on, False)[0].shape == (3, 2, 4, 1, 3)


@pytest.mark.parametrize(
    "neuron", [LIF(), SRM(), SRM(reset_states="membrane"), IF(surrogate=torch.ones_like)]
)
def test_a_step_of_a_loop_is_refused(neuron: Neuron) -> None:
    """`[N, C]` in a loop over time is no sequence `[T, N]`."""
    x = torch.full((5, 2, 3), 0.75)
    for call in (neuron, neuron.run, neuron.reference):
        with pytest.raises(
            ValueError,
            match=r"^x: expected \[T, N, C, \.\.\.\], got shape \(2, 3\); .* x\[None\] into snnlib.Stream\(net\)",
        ):
            call(x[0])
    state, steps = None, []
    for now in x:
        value, state = neuron.run(now[None], state)
        steps.append(value)
    assert_bits(torch.cat(steps), neuron(x))


def test_a_call_with_a_state_names_run() -> None:
    x = torch.zeros(5, 2, 3)
    for state in (torch.zeros(2, 3), (torch.zeros(1, 2, 3),)):
        with pytest.raises(
            TypeError, match=r"^state: .*LIF\.run\(x, state\) takes one and gives \(output, state\)$"
        ):
            LIF()(x, state)


@pytest.mark.parametrize("learnable", [(), ("tau",)])
def test_a_number_for_a_constant_names_the_change_in_place(learnable: tuple[str, ...]) -> None:
    neuron = LIF(learnable=learnable)
    with pytest.raises(TypeError, match=r"^tau: .*torch\.nn\.init\.constant_\(neuron\.tau, 20\.0\)"):
        neuron.tau = 20.0
    x = torch.rand(9, 2, 3)
    torch.nn.init.constant_(neuron.tau, 20.0)
    assert_bits(neuron(x).detach(), LIF(20.0)(x))
