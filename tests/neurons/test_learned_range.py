"""Learned constants that training moves out of the range of the constructor: an error at the call, in every place."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import snnlib
from snnlib import neurons
from snnlib.neurons import Neuron

X = torch.rand(6, 2, 5, generator=torch.Generator().manual_seed(0))

# Every model with a learnable threshold.
MODELS = [
    model
    for model in vars(neurons).values()
    if isinstance(model, type)
    and issubclass(model, Neuron)
    and {"threshold", "learnable"} <= model.fields.keys()
    and model is not neurons.SpikingNeuron
]


def _currents(neuron: Neuron) -> Callable[[], object]:
    return lambda: neuron(2.0 * X)


def _layer(neuron: Neuron) -> Callable[[], object]:
    layer = snnlib.SpikingLinear(5, 5, neuron=neuron)
    return lambda: layer((X < 0.5).float())


def _recurrent(neuron: Neuron) -> Callable[[], object]:
    layer = snnlib.SpikingRNN(5, 5, neuron=neuron)
    return lambda: layer((X < 0.5).float())


def _fused(neuron: Neuron) -> Callable[[], object]:
    net = snnlib.fuse_(nn.Sequential(snnlib.PerStep(nn.Linear(5, 5), nn.BatchNorm1d(5)), neuron))
    return lambda: net((X < 0.5).float())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("place", [_currents, _layer, _recurrent, _fused], ids=lambda place: place.__name__)
@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_a_learned_threshold_stays_above_zero(
    model: type[Neuron], place: Callable[..., Callable[[], object]]
) -> None:
    neuron = model(threshold=1.0, learnable=("threshold",))
    if neuron.fixed_point and place is _currents:
        pytest.skip("runs on whole numbers alone")
    run = place(neuron)
    run()
    threshold = neuron.threshold
    assert isinstance(threshold, Tensor)
    start = threshold.detach().clone()
    for value in (0.0, -0.2, torch.nan):
        threshold.data.fill_(value)
        with pytest.raises(
            ValueError, match=rf"threshold: expected numbers > 0 after training.*got {value:g}"
        ):
            run()
    # The first advice of the message.
    threshold.data.copy_(start)
    run()


@pytest.mark.parametrize(
    ("model", "name", "value", "least"),
    [
        (neurons.ALIF, "tau_a", 1.0, 1),
        (neurons.Alpha, "tau_rise", 0.5, 1),
        (neurons.QIF, "curvature", -1.0, 0),
    ],
)
def test_other_learned_constants_stay_in_their_range(
    model: type[Neuron], name: str, value: float, least: int
) -> None:
    neuron = model(learnable=(name,))
    neuron(X)
    getattr(neuron, name).data.fill_(value)
    with pytest.raises(ValueError, match=f"{name}: expected numbers > {least} after training, too"):
        neuron(X)


def test_bounds_keep_a_learned_threshold_in_its_range() -> None:
    neuron = neurons.bound_(neurons.LIF(learnable=("threshold",)), threshold=(0.1, 10.0))
    optimiser = torch.optim.SGD(neuron.parameters(), lr=100.0)
    for _ in range(5):
        optimiser.zero_grad()
        (-neuron(2 * X)).sum().backward()
        optimiser.step()
    assert 0.1 <= float(neuron.threshold.detach()) < 0.5


def test_learned_time_constants_count_as_one_step_at_least() -> None:
    neuron = neurons.LIF(learnable=("tau",))
    neuron.tau.data.fill_(0.25)
    assert torch.equal(neuron(2 * X), neurons.LIF(tau=1.0)(2 * X))
