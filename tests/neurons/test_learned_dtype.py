"""Learned constants and delays are float64 in nets of float64, whatever made them so, and else float32."""

from collections.abc import Iterator

import pytest
import torch
from torch import nn

import snnlib
from snnlib.neurons import LIF, MODELS, PSN, Neuron

NAMES = [name for name, model in MODELS.items() if model().constant_names and name != "SRM"]
# A number that neither float32 nor a half type holds, within the range of every constant.
VALUE = 1.3


def _learning(name: str) -> Neuron:
    return MODELS[name](learnable=MODELS[name]().constant_names, channels=3)


def _dtypes(net: nn.Module) -> set[torch.dtype]:
    return {parameter.dtype for parameter in net.parameters()}


@pytest.fixture
def default_is_float64() -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


@pytest.mark.parametrize("name", NAMES)
def test_learned_constants_follow_to_float64_and_back(name: str) -> None:
    neuron = _learning(name)
    before = dict(neuron.named_parameters())
    assert before and _dtypes(neuron) == {torch.float32}
    for half in (torch.float16, torch.bfloat16):
        values = [parameter.detach().clone() for parameter in before.values()]
        neuron.to(half)
        assert all(torch.equal(*pair) for pair in zip(before.values(), values, strict=True))
    neuron.double()
    assert _dtypes(neuron) == {torch.float64}
    # An optimiser goes on with the objects that it knows.
    assert all(now is before[key] for key, now in neuron.named_parameters())
    with torch.no_grad():
        for parameter in neuron.parameters():
            parameter.fill_(VALUE)
    neuron.to(torch.float16)
    assert all(torch.equal(p, torch.full((3,), VALUE)) for p in neuron.parameters())
    assert _dtypes(neuron.double().float()) == {torch.float32}


@pytest.mark.parametrize("name", [name for name in NAMES if MODELS[name]().gives_spikes])
def test_they_compute_as_constants_that_do_not_learn(name: str) -> None:
    """Constants of a float64 net are float64; in float32 they were 1e-8 off."""
    learned, fixed = _learning(name).double(), MODELS[name]().double()
    with torch.no_grad():
        for key, parameter in learned.named_parameters():
            parameter.copy_(getattr(fixed, key))
            parameter.add_(0.01 / 3)
            getattr(fixed, key).add_(0.01 / 3)
    x = torch.rand(8, 2, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) * 3
    assert torch.equal(learned.run(x).state[0], fixed.run(x).state[0])


def test_gradients_are_those_of_finite_differences() -> None:
    """Gradient of a potential whose constant an optimiser would move by less than float32 holds."""
    neuron = snnlib.neurons.Integrator(3.0, learnable=("tau",)).double()
    x = torch.rand(20, 1, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(2))

    def run(_: torch.Tensor) -> torch.Tensor:
        return neuron(x).square().sum()

    assert torch.autograd.gradcheck(run, (neuron.tau,), eps=1e-7, atol=1e-7, rtol=1e-7)


@pytest.mark.parametrize("way", ["default dtype", "layer", "double", "moved"])
def test_whatever_makes_the_net_float64(way: str, request: pytest.FixtureRequest) -> None:
    if way == "default dtype":
        request.getfixturevalue("default_is_float64")
    given = {"dtype": torch.float64} if way == "layer" else {}
    delays = {"delays": snnlib.Delays(3), "recurrent_delays": snnlib.Delays(3, per="connection")}
    low = snnlib.surrogate.Triangle(width=0.5, height=0.4)
    nets = [
        snnlib.SpikingLinear(4, 3, neuron=LIF(learnable=("tau",)), delays=snnlib.Delays(3), **given),
        snnlib.SpikingConv2d(4, 3, 3, neuron=LIF(learnable=("tau",), channels=3), **given),
        snnlib.SpikingRNN(4, 3, neuron=LIF(learnable=("tau", "threshold"), surrogate=low), **delays, **given),
        nn.Sequential(nn.Linear(4, 3, **given), PSN(5)) if way != "layer" else nn.Sequential(),
    ]
    for net in nets:
        if way == "double":
            net.double()
        if way == "moved":
            net.to("cpu", torch.float64)
        assert _dtypes(net) <= {torch.float64}


def test_half_precision_does_not_round_delays() -> None:
    layer = snnlib.SpikingLinear(4, 3, delays=snnlib.Delays(3, initial=VALUE))
    layer.bfloat16()
    assert layer.delays is not None and torch.equal(layer.delays.steps, torch.full((4,), VALUE))
    assert layer.double().delays.steps.dtype == torch.float64  # type: ignore[union-attr]
    layer.half()
    assert layer.delays.steps.dtype == torch.float32
