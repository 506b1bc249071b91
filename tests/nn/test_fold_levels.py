"""Thresholds of graded neurons become part of the weights in front of them."""

import copy
from collections.abc import Callable

import pytest
import torch
from torch import nn

import snnlib
from snnlib.neurons import IF, LIF, CubaLIF, bound_
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


def behind(*maps: nn.Module, neurons: tuple[nn.Module, ...] = ()) -> nn.Sequential:
    """Neurons behind linear maps of torch, each with its own unless given."""
    own = neurons or tuple(graded(0.5) for _ in maps)
    return nn.Sequential(
        *(part for pair in zip(map(snnlib.nn.PerStep, maps), own, strict=True) for part in pair)
    )


def sparse(threshold: float | torch.Tensor) -> nn.Module:
    neuron, given = graded(threshold, EveryThreshold(Triangle(0.5, 0.4))), snnlib.Sparse(density=0.5)
    return snnlib.SpikingRNN(6, 4, neuron=neuron, connections=given, recurrent_connections=given)


def tied() -> nn.Sequential:
    net = behind(nn.Linear(6, 6), nn.Linear(6, 6))
    net[2][0].weight = net[0][0].weight
    return net


LINEAR, NEURON = nn.Linear(6, 6), graded(0.5)
WEIGHT_NORM = nn.utils.parametrizations.weight_norm
NETS: dict[str, Callable[[], nn.Module]] = {
    "layers": lambda: nn.Sequential(
        snnlib.SpikingLinear(6, 4, neuron=graded()),
        snnlib.SpikingLinear(4, 5, neuron=CubaLIF(threshold=0.25, levels=2)),
        snnlib.SpikingLinear(5, 2, neuron=LIF(threshold=0.5)),
    ),
    "batch norm": behind_batch_norm,
    "linear": lambda: nn.Sequential(snnlib.nn.PerStep(nn.Linear(6, 4)), graded(0.5)),
    "transposed": lambda: behind(nn.ConvTranspose1d(3, 4, 3)),
    "sparse": lambda: sparse(0.5),
    "a layer twice": lambda: nn.Sequential(*[snnlib.SpikingLinear(6, 6, neuron=graded(0.5))] * 2),
    "both twice": lambda: nn.Sequential(*[*behind(nn.Linear(6, 6))] * 2),
    "recurrent": lambda: snnlib.SpikingRNN(6, 4, neuron=graded(surrogate=EveryThreshold(Triangle(0.5, 0.4)))),
}


@pytest.mark.parametrize("name", NETS)
def test_spikes_stay(name: str) -> None:
    torch.manual_seed(0)
    net = NETS[name]()
    x = 2 * torch.randn(12, 3, *((3, 2) if name == "transposed" else (6,)))
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
        (behind(LINEAR, LINEAR), "expected 1.1 and .* in one place, got some that stand in several"),
        (behind(LINEAR, LINEAR, neurons=(graded(0.5), LIF())), "expected 1.1 and .* in one place"),
        (tied(), "expected 1.1 and .* in one place"),
        (behind(LINEAR, nn.Linear(6, 6), neurons=(NEURON, NEURON)), "expected 1.1 and .* in one place"),
        (
            nn.Sequential(*(snnlib.SpikingLinear(6, 6, neuron=NEURON) for _ in range(2))),
            "expected 1.0.neuron and .* in one place",
        ),
        (
            snnlib.SpikingLinear(6, 6, neuron=bound_(graded(0.5), threshold=(0.1, 0.9))),
            "expected a plain threshold to fold 1.neuron, got one that is computed in every call",
        ),
        (behind(WEIGHT_NORM(nn.Linear(6, 6))), "expected a plain weight to fold 1.1"),
        (
            behind(nn.ConvTranspose1d(4, 4, 3), neurons=(graded(),)),
            "expected one threshold for all channels of 1.1 behind sparse .* got one per channel$",
        ),
        (sparse(POWERS), "expected one threshold for all channels of 1.layers.0.neuron"),
    ],
)
def test_refused_before_anything_changes(net: nn.Module, message: str) -> None:
    whole = nn.Sequential(snnlib.SpikingLinear(4, 2, neuron=IF(threshold=0.5, levels=2)), net)
    before = copy.deepcopy(whole.state_dict())
    with pytest.raises(ValueError, match=f"^net: {message}"):
        fold_levels_(whole)
    for name, value in whole.state_dict().items():
        torch.testing.assert_close(value, before[name], rtol=0, atol=0)
