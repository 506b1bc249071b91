"""Thresholds of graded neurons become part of the weights in front of them."""

import copy
from collections.abc import Callable

import pytest
import torch
from torch import nn

import snnlib
from snnlib.neurons import IF, LIF, CubaLIF
from snnlib.nn import fold_levels_
from snnlib.surrogate import EveryThreshold, Surrogate, Triangle

POWERS = torch.tensor([0.5, 1.0, 2.0, 4.0])


def graded(threshold: float | torch.Tensor = POWERS, surrogate: Surrogate | None = None) -> LIF:
    return LIF(tau=2.0, threshold=threshold, levels=3, surrogate=surrogate, learnable="threshold")


def behind_batch_norm() -> nn.Sequential:
    norm = nn.BatchNorm1d(4)
    nn.init.uniform_(norm.weight, 0.5, 2.0)
    nn.init.uniform_(norm.bias, -1.0, 1.0)
    return nn.Sequential(snnlib.nn.PerStep(nn.Linear(6, 4), norm), graded()).eval()


NETS: dict[str, Callable[[], nn.Module]] = {
    "layers": lambda: nn.Sequential(
        snnlib.SpikingLinear(6, 4, neuron=graded()),
        snnlib.SpikingLinear(4, 5, neuron=CubaLIF(threshold=0.25, levels=2)),
        snnlib.SpikingLinear(5, 2, neuron=LIF(threshold=0.5)),
    ),
    "batch norm": behind_batch_norm,
    "linear": lambda: nn.Sequential(snnlib.nn.PerStep(nn.Linear(6, 4)), graded(0.5)),
    "recurrent": lambda: snnlib.SpikingRNN(6, 4, neuron=graded(surrogate=EveryThreshold(Triangle(0.5, 0.4)))),
}


@pytest.mark.parametrize("name", NETS)
def test_spikes_stay(name: str) -> None:
    torch.manual_seed(0)
    net = NETS[name]()
    x = 2 * torch.randn(12, 3, 6)
    expected = net(x)
    assert float(expected.detach().max()) > 1 or name == "layers"
    assert fold_levels_(net) is net
    torch.testing.assert_close(net(x), expected, rtol=0, atol=0)
    folded = [module for module in net.modules() if getattr(module, "levels", 1) > 1]
    assert folded and all(bool((neuron.threshold == 1).all()) for neuron in folded)


def test_neurons_of_one_level_keep_their_threshold() -> None:
    net = fold_levels_(nn.Sequential(snnlib.SpikingLinear(6, 4, neuron=LIF(threshold=0.5))))
    assert float(net[0].neuron.threshold) == 0.5


@pytest.mark.parametrize(
    ("net", "message"),
    [
        (nn.Sequential(IF(levels=2)), "expected 1.0 in a spiking layer, or behind .* got nothing$"),
        (
            nn.Sequential(nn.Flatten(2), IF(levels=2)),
            "expected 1.1 in a spiking layer, or behind .* got Flatten$",
        ),
        (
            nn.Sequential(snnlib.SpikingLinear(2, 2, neuron=LIF()), IF(levels=2, threshold=0.5)),
            "expected 1.1 in a spiking layer, or behind .* got SpikingLinear$",
        ),
        (
            snnlib.SpikingLinear(2, 2, neuron=LIF(levels=2, floor=-1.0)),
            "expected no floor of 1.neuron, whose threshold goes, got -1.0$",
        ),
    ],
)
def test_refused_before_anything_changes(net: nn.Module, message: str) -> None:
    whole = nn.Sequential(snnlib.SpikingLinear(4, 2, neuron=IF(threshold=0.5, levels=2)), net)
    before = copy.deepcopy(whole.state_dict())
    with pytest.raises(ValueError, match=f"^net: {message}"):
        fold_levels_(whole)
    for name, value in whole.state_dict().items():
        torch.testing.assert_close(value, before[name], rtol=0, atol=0)
