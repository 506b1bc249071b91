"""Neurons as plain data: every model and dialect is made again with the same spikes; what is not plain is refused."""

import json
import re
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

import snnlib
from snnlib.neurons import ALIF, LIF, MODELS, PLIF, Neuron, bound_, config, from_config
from snnlib.neurons.firing import SpikingNeuron

MADE = [
    (name, dialect) for name, model in MODELS.items() for dialect in (None, *getattr(model, "dialects", ()))
]


def again(neuron: Neuron, **options: Any) -> Neuron:
    return from_config(json.loads(json.dumps(config(neuron))), **options)


def same(neuron: Neuron, other: Neuron) -> bool:
    """Returns whether both print the same and give the same values and gradients."""
    x = 2 * torch.rand(20, 2, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    results = []
    for each in (neuron, other):
        leaf = x.clone().requires_grad_()
        value = each(leaf)
        value.mul(torch.arange(20.0).reshape(20, 1, 1)).sum().backward()
        results.append((value, leaf.grad))
    return repr(neuron) == repr(other) and all(torch.equal(a, b) for a, b in zip(*results, strict=True))


@pytest.mark.parametrize(("name", "dialect"), MADE)
def test_every_model_and_dialect_is_made_again(name: str, dialect: str | None) -> None:
    neuron = MODELS[name]() if dialect is None else MODELS[name](dialect=dialect)
    assert same(neuron, again(neuron))


def test_values_per_channel_and_learned_ones_are_kept() -> None:
    neuron = ALIF(tau_s=3.0, threshold=torch.tensor([0.5, 1.0, 2.0]), learnable=("tau_m",), channels=3)
    assert isinstance(neuron.tau_m, Tensor)
    with torch.no_grad():
        neuron.tau_m.copy_(torch.tensor([2.0, 3.25, 7.5]))
    made = again(neuron)
    assert same(neuron, made)
    assert [name for name, _ in made.named_parameters()] == ["tau_m"]


def test_options_that_differ_from_the_defaults_are_kept() -> None:
    neuron = LIF(torch.inf, rest=0.25, reset="none", detach_reset=False, compare=">", floor=-1.0)
    assert same(neuron, again(neuron))
    narrow = LIF(surrogate=snnlib.surrogate.Triangle(width=0.3, height=0.4))
    assert again(narrow).surrogate == narrow.surrogate


def test_a_model_of_a_user_is_found_by_name() -> None:
    class Slow(LIF):
        """A model of a user."""

    assert isinstance(again(Slow(4.0), models={"Slow": Slow}), Slow)


class Leaky(Neuron):
    """As in docs/neurons.md: what it does not know itself goes to its base."""

    state_names = ("v",)

    def __init__(self, beta: float = 0.9, **options: Any) -> None:
        super().__init__({"beta": beta, "threshold": 1.0}, **options)

    def step(self, state: Any, current: Tensor, params: Any) -> Any:
        v = params["beta"] * state[0] + current
        spikes = snnlib.surrogate.spike(v - params["threshold"], params["threshold"], snnlib.surrogate.ATan())
        return spikes, (v * (1 - spikes.detach()),)


class Slow(LIF):
    """A model of the library with another default, and an argument of its own."""

    def __init__(self, tau: float = 50.0, *, note: str = "", **options: Any) -> None:
        super().__init__(tau, **options)
        self.note = note


def test_options_of_ones_own_model_are_plain_data() -> None:
    neuron = Leaky(0.5, learnable=("beta",), batch_first=True)
    plain = config(neuron)
    assert plain == {"model": "Leaky", "beta": 0.5, "learnable": ["beta"], "batch_first": True}
    made = again(neuron, models={"Leaky": Leaky})
    assert (
        same(neuron, made) and made.batch_first and [name for name, _ in made.named_parameters()] == ["beta"]
    )
    slow = Slow(note="x", reset="none", surrogate=snnlib.surrogate.Triangle())
    made = again(slow, models={"Slow": Slow})
    assert same(slow, made) and isinstance(made, Slow) and made.note == "x"
    # Models of the library are known beside a user's own.
    assert isinstance(again(LIF(), models={"Leaky": Leaky}), LIF)
    with pytest.raises(ValueError, match=r"got 'Leaky'; models= takes those of your own"):
        from_config(plain)


def test_learned_membrane_of_plif_is_kept_to_rounding() -> None:
    neuron = PLIF(torch.tensor([2.0, 5.0]))
    torch.testing.assert_close(again(neuron).w, neuron.w)


@pytest.mark.parametrize(
    ("made", "message"),
    [
        ({"model": "Lif"}, "config: expected a model of IF, LIF,"),
        ({"tau": 2.0}, "config: expected a model of IF, LIF,"),
        ({"model": "LIF", "surrogate": {"name": "Tent"}}, "config: expected a surrogate of snnlib.surrogate"),
        (
            {"model": "LIF", "surrogate": {"name": "Tensor"}},
            "config: expected a surrogate of snnlib.surrogate",
        ),
        ({"model": "LIF", "tau": 0.5}, "tau: expected numbers of time steps >= 1"),
    ],
)
def test_unknown_names_are_refused(made: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        from_config(made)


def test_functions_and_other_modules_are_refused() -> None:
    with pytest.raises(ValueError, match=r"surrogate: expected one of snnlib\.surrogate"):
        config(LIF(surrogate=torch.ones_like))
    with pytest.raises(
        TypeError, match=r"neuron: expected an instance of snnlib\.neurons\.Neuron, got Linear"
    ):
        config(torch.nn.Linear(2, 2))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="alpha: expected an option of LIF"):
        from_config({"model": "LIF", "alpha": 2.0})


def test_bounds_are_left_out() -> None:
    neuron = bound_(ALIF(torch.tensor([3.0, 30.0]), learnable=("tau_m",)), tau_m=(2.0, 40.0))
    made = config(neuron)
    assert made["model"] == "ALIF" and made["tau_m"] == pytest.approx([3.0, 30.0])
    assert type(from_config(made)) is ALIF


class Former(LIF):
    """Model that had options in earlier versions."""

    former: ClassVar[dict[str, Any]] = {"gamma": 0.9, "tau_mem": lambda tau: {"tau": tau}}


def test_files_with_options_of_earlier_versions_load() -> None:
    plain = config(Former(tau=3.0))
    before = {**plain, "gamma": 0.9, "tau_mem": plain["tau"], "max_spikes": 2}
    del before["tau"], before["levels"], before["level_rounding"]
    loaded = from_config(json.loads(json.dumps(before)), models={"Former": Former})
    assert (float(loaded.tau), loaded.levels, loaded.level_rounding) == (3.0, 2, "floor")
    assert not hasattr(loaded, "gamma")
    unpickled = Former()
    unpickled.__setstate__({**vars(Former()), "gamma": 0.9})
    assert not hasattr(unpickled, "gamma")


@pytest.mark.parametrize("model", [model for model in MODELS.values() if issubclass(model, SpikingNeuron)])
def test_models_behind_a_mixin_have_the_options_of_earlier_versions(model: type[SpikingNeuron]) -> None:
    assert {"max_spikes", "single_spike"} <= model.former.keys()


@pytest.mark.parametrize(
    ("name", "value", "hint"),
    [
        ("gamma", 0.9, "it was removed, and is always 0.9"),
        ("tau_mem", 3.0, "it is tau=3.0 now"),
        ("max_spikes", 2, "it is levels=2, level_rounding='floor' now"),
        ("single_spike", True, "it is refractory=inf now"),
        ("single_spike", False, "it was removed"),
    ],
)
def test_an_option_of_earlier_versions_is_named(name: str, value: object, hint: str) -> None:
    with pytest.raises(TypeError, match=rf"^{name}: expected an option of Former, .*; {re.escape(hint)}$"):
        Former(**{name: value})
    # A model that never had the option has no such hint.
    with pytest.raises(TypeError, match=r"did you mean|it has"):
        snnlib.neurons.SRM(gamma=0.9)  # type: ignore[call-arg]


def test_a_value_that_no_model_has_now_is_refused() -> None:
    old = {**config(Former()), "gamma": 0.5}
    with pytest.raises(ValueError, match=r"^gamma: expected 0\.9, which Former always has now, got 0\.5$"):
        from_config(old, models={"Former": Former})
    with pytest.raises(ValueError, match=r"^gamma: expected 0\.9"):
        Former().__setstate__({**vars(Former()), "gamma": 0.5})
