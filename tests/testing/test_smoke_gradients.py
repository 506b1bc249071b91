"""The stored gradients of the smoke suite: all neurons and options, and a bound that loses its gradient is seen."""

import importlib.util
import inspect
import json
from pathlib import Path
from types import ModuleType

import pytest
import torch
from released import UNRELEASED
from torch import Tensor

import snnlib.testing.smoke.test_installed as smoke
from snnlib.neurons import Neuron, dynamics, firing
from snnlib.neurons.models import izhikevich, qif

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "tests" / "stored" / "make_gradients.py"


@pytest.fixture(scope="module")
def maker() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_gradients", SCRIPT)
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


@pytest.fixture(scope="module")
def models(maker: ModuleType) -> dict[str, type[Neuron]]:
    """Models whose gradients are stored; one that is new since the last release is stored with the next.

    Gradients of an installation are compared, which has the models of its release.
    """
    stored = {line[0] for line in smoke.STORED}
    return {name: model for name, model in maker.MODELS.items() if name in stored or not UNRELEASED}


def test_every_option_is_asked(maker: ModuleType, models: dict[str, type[Neuron]]) -> None:
    """An option without a value in `VALUES`, words or a flag would have no gradients stored."""
    for name, model in models.items():
        asked = {option for variant in maker.variants(model) for option in variant}
        silent = set(inspect.signature(model).parameters) - asked - maker.ELSEWHERE
        assert not silent, f"{name}: expected a value in VALUES of tests/stored/{SCRIPT.name} for {silent}"


def test_every_neuron_and_option_is_stored(maker: ModuleType, models: dict[str, type[Neuron]]) -> None:
    wanted = [[name, options] for name, model in models.items() for options in maker.variants(model)]
    wanted = json.loads(json.dumps(wanted))
    stored = [line[:2] for line in smoke.STORED]
    # Options that are new since the last release are stored with the next, as models are.
    kept = [line for line in wanted if line in stored] if UNRELEASED else wanted
    assert stored == kept, f"run `python tests/stored/{SCRIPT.name}`, and say why in the commit"


def test_the_refractory_time_is_the_last_state(maker: ModuleType) -> None:
    """It is taken off the end of the state, so an option of one model adds its state in front of it."""
    found = set()
    for name, model in maker.MODELS.items():
        if "refractory" not in inspect.signature(model).parameters:
            continue
        beside = {"refractory": 2, **maker.BESIDE.get((name, "refractory"), {})}
        for options in maker.variants(model):
            # Several spikes in a step have no refractory time, and a dialect may ask for them.
            if not {"levels", "level_rounding", "dialect"} & options.keys():
                *own, last = model(**options | beside).state_names
                assert last == "refractory" and last not in own, f"{name} {options}"
                found.add(tuple(own))
    assert {("v", "a"), ("v", "a", "i"), ("v", "spike")} <= found


def without_gradient(x: Tensor, low: float) -> Tensor:
    """`clamp` of torch 2.15: no gradient at the bound itself."""
    return torch.where(x <= low, torch.full_like(x, low), x)


@pytest.mark.parametrize(
    ("module", "name", "option"),
    [
        (firing, "IF", "floor"),
        (dynamics, "LIF", "tau"),
        (qif, "QIF", "tau"),
        (izhikevich, "Izhikevich", "tau_m"),
    ],
)
def test_a_lost_gradient_fails(
    module: object, name: str, option: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (line,) = (line for line in smoke.STORED if line[0] == name and option in line[1])
    smoke.test_gradients(line)
    monkeypatch.setattr(module, "at_least", without_gradient)
    with pytest.raises(AssertionError):
        smoke.test_gradients(line)
