"""Declared fields of neurons: the signature that they give, what a dialect changes, and what is refused."""

import inspect
import typing
from typing import Any

import pytest
import torch

from snnlib.neurons import (
    FIXED_LENGTH_MODELS,
    IF,
    LIF,
    MODELS,
    PLIF,
    SRM,
    CubaLIF,
    Izhikevich,
    Neuron,
    SpikingNeuron,
)
from snnlib.neurons.fields import Constant, constant, fixed, option
from snnlib.surrogate import ATan, Sigmoid

every_model = pytest.mark.parametrize("model", MODELS.values())


def arguments(model: type[Neuron]) -> dict[str, inspect.Parameter]:
    return dict(inspect.signature(model).parameters)


@every_model
def test_the_signature_shows_what_a_neuron_has_by_default(model: type[Neuron]) -> None:
    """A default that is None is what the neuron keeps, or what it derives from other options."""
    neuron = model()
    derived = {"rho", "w_rest", "tau_grad"}
    for name, argument in arguments(model).items():
        if name in ("dialect", "channels") or name in derived:
            continue
        kept = getattr(neuron, name, None)
        if isinstance(kept, torch.Tensor):
            kept = kept.item()
        assert kept == argument.default, name


@every_model
def test_defaults_given_are_defaults_left_out(model: type[Neuron]) -> None:
    shown = {name: argument.default for name, argument in arguments(model).items()}
    assert repr(model(**shown)) == repr(model())
    # The clamp of SRM neurons may be None: no clamp.
    assert repr(model(**dict.fromkeys(shown.keys() - ({"grad_clamp"} if model is SRM else set())))) == repr(
        model()
    )


@every_model
def test_types_resolve(model: type[Neuron]) -> None:
    for argument in arguments(model).values():
        assert not isinstance(argument.annotation, str)
        given = type(argument.default)
        allowed = typing.get_args(argument.annotation) or (argument.annotation,)
        # Functions and literals are checked by the argument itself.
        if given in (bool, float, type(None)):
            assert given in allowed


def test_dialects_are_beaten_by_what_is_given_and_no_more() -> None:
    """Also by a value that is the default without a dialect."""
    assert float(LIF(dialect="norse").tau) == 10
    assert float(LIF(2.0, dialect="norse").tau) == 2
    assert LIF(dialect="sinabs").levels == torch.inf
    assert LIF(levels=1, dialect="sinabs").levels == 1
    assert LIF(surrogate=ATan(2.0), dialect="spikingjelly").surrogate == ATan(2.0)
    assert LIF(surrogate=None, dialect="spikingjelly").surrogate == Sigmoid(4.0)
    assert LIF(reset="zero", reset_time="next", dialect="snntorch").reset_time == "next"
    assert IF(reset="subtract", reset_time="same", dialect="snntorch").reset_time == "same"


@every_model
def test_dialects_set_arguments(model: type[Neuron]) -> None:
    for dialect in model.dialects.values():
        assert set(dialect) <= set(arguments(model))


def test_help_shows_the_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    help(LIF)
    text = capsys.readouterr().out
    assert "tau: 'float | Tensor' = 2.0" in text or "tau: float | torch.Tensor = 2.0" in text
    assert "= None, *" not in text


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LIF(2.0, 1.0), r"^LIF: too many positional arguments, expected \(self, tau: .* = 2.0, \*, "),
        (lambda: LIF(2.0, tau=3.0), r"^LIF: multiple values for argument 'tau'"),
        (lambda: LIF(taus=3.0), "^taus: expected an option of LIF, got an unknown one; did you mean tau?"),
        (lambda: LIF(reset_states="all"), "^reset_states: expected an option of LIF, got an unknown one"),
        (lambda: PLIF(w=0.0), "^w: expected an option of PLIF, got an unknown one"),
    ],
)
def test_refused(make: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        make()


class Leakless(LIF):
    """A model of a user's own, with one field more, one less and another default."""

    bias: Constant = constant(default=0.25)
    reset_value: float = option(default=-0.5)
    levels: float = fixed(1)

    def step(self, state: Any, current: Any, params: Any) -> Any:
        return super().step(state, current + params["bias"], params)


class Old(LIF):
    """Neuron with a constructor of its own."""

    def __init__(self, beta: float) -> None:
        super().__init__(1 / (1 - beta), decay_input=False)
        self.beta = beta


def test_models_build_on_models() -> None:
    neuron = Leakless(4.0, learnable="bias")
    assert [*arguments(Leakless)][:4] == ["tau", "bias", "threshold", "decay_input"]
    assert "levels" not in arguments(Leakless)
    assert neuron.constant_names == ("bias", "tau", "threshold")
    assert neuron.bias.requires_grad and neuron.reset_value == -0.5
    neuron.reference(torch.ones(3, 1, 1)).value.sum().backward()
    assert "reset_value" in str(Leakless(reset_value=0.0)) and "reset_value" not in str(Leakless())
    assert Old(0.75).tau == 4 and not Old(0.75).decay_input
    assert LIF().reset_value == 0


def test_a_model_without_an_option_has_its_value() -> None:
    """Code that asks any spiking neuron finds the attributes."""
    assert Izhikevich().floor is None and Izhikevich().levels == 1
    assert SpikingNeuron.reset == "zero" and CubaLIF.start_value is None
    assert not hasattr(LIF, "tau")


@pytest.mark.parametrize(
    "model", [*MODELS.values(), *FIXED_LENGTH_MODELS.values()], ids=lambda model: model.__name__
)
def test_four_classes_above_a_model(model: type[Neuron]) -> None:
    """A reader of a model meets at most four classes of this library above it."""
    above = [kind.__name__ for kind in model.__mro__[1:] if kind.__module__.startswith("snnlib")]
    assert len(above) <= 4, above
