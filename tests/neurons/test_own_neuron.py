"""Neurons of one's own: where they begin, and the membrane that they hand over."""

import warnings

import pytest
import torch
from torch import Tensor

import snnlib
from snnlib.neurons import MODELS, Neuron
from snnlib.neurons.base import Params, State

REST, THRESHOLD = -65.0, -50.0


class Millivolts(Neuron):
    """Fires at -50 mV and rests at -65, and says nothing of where it begins."""

    state_names = ("v",)

    def membrane(self, state: State, current: Tensor) -> Tensor:
        return state[0] + (REST - state[0] + current) / 10

    def step(self, state: State, current: Tensor, params: Params) -> tuple[Tensor, State]:
        v = self.membrane(state, current)
        spike = snnlib.surrogate.spike(v - THRESHOLD, torch.ones(()), snnlib.surrogate.ATan())
        return spike, (torch.where(spike.detach() > 0, REST, v),)


class AtRest(Millivolts):
    def initial_state(self, current: Tensor, params: Params) -> State:
        return (torch.full_like(current, REST),)


class HandsOver(AtRest):
    def fire(self, membrane: Tensor, params: Params) -> Tensor:
        return snnlib.surrogate.spike(membrane - THRESHOLD, torch.ones(()), snnlib.surrogate.ATan())

    def step(self, state: State, current: Tensor, params: Params) -> tuple[Tensor, State]:
        v = self.membrane(state, current)
        spike = self.fire(v, params)
        return spike, (torch.where(spike.detach() > 0, REST, v),)


class Coin(Millivolts):
    """Fires by chance, with and without input."""

    def step(self, state: State, current: Tensor, params: Params) -> tuple[Tensor, State]:
        return (torch.rand_like(current) < 0.5).float(), state


X = torch.full((8, 2, 3), 30.0)


def test_a_neuron_that_fires_from_zero_without_input_is_named_once() -> None:
    neuron = Millivolts()
    with pytest.warns(UserWarning, match=r"^Millivolts: every neuron fires .* define initial_state") as said:
        assert bool((neuron(X)[0] == 1).all())
        neuron(X)
    assert len(said) == 1 and said[0].filename == __file__
    with pytest.warns(UserWarning, match="initial_state"):
        snnlib.SpikingLinear(4, 3, neuron=Millivolts())(torch.ones(5, 2, 4))


def test_the_advice_is_right() -> None:
    """pytest turns warnings into errors."""
    assert not AtRest()(X)[0].any() and bool(AtRest()(X).any())
    assert not HandsOver().potential(X).isnan().any()
    assert HandsOver().potential(X)[0, 0, 0] == REST + 3


def test_the_look_takes_no_random_numbers() -> None:
    torch.manual_seed(0)
    expected = torch.stack([torch.rand(2, 3) < 0.5 for _ in range(8)])
    torch.manual_seed(0)
    assert torch.equal(Coin()(X).bool(), expected)


def test_potential_is_known_before_the_first_call() -> None:
    class FromZero(HandsOver):
        initial_state = Neuron.initial_state

    assert FromZero().potential(X)[0, 0, 0] == (REST + 30) / 10


def test_potential_names_the_remedy() -> None:
    with pytest.raises(
        ValueError, match=r"hand the membrane to fire once .* spike = self\.fire\(membrane, par"
    ):
        AtRest().potential(X)


@pytest.mark.parametrize("name", MODELS)
def test_models_of_the_library_begin_at_rest(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        MODELS[name]().reference(torch.zeros(3, 2, 4))


def test_layers_take_a_threshold_below_zero() -> None:
    class Constant(HandsOver):
        def __init__(self) -> None:
            super().__init__({"threshold": THRESHOLD})

    for layer in (
        snnlib.SpikingLinear(400, 30, neuron=Constant()),
        snnlib.SpikingRNN(400, 30, neuron=Constant()),
    ):
        weight = next(layer.parameters())
        assert weight.min() < 0 < weight.max()
        assert layer(torch.ones(5, 2, 400)).shape == (5, 2, 30)
