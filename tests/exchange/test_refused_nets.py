"""Exports refuse, by name, what their format cannot say."""

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

import snnlib
from snnlib import exchange, neurons
from snnlib.neurons import LIF, LRU, PSN, MaskedPSN, SlidingPSN

INPUT = torch.zeros(4, 1, 4)
NETS: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "state space": (lambda: snnlib.nn.StateSpaceBlock(4), r"StateSpaceBlock|0\.norm"),
    "attention": (lambda: snnlib.nn.Residual(snnlib.nn.SpikingSelfAttention(4, 2)), "Attention|Residual"),
    "LRU": (lambda: LRU(4), "LRU"),
    "PSN": (lambda: snnlib.SpikingLinear(4, 3, neuron=PSN(4)), "PSN"),
    "MaskedPSN": (lambda: snnlib.SpikingLinear(4, 3, neuron=MaskedPSN(2, 4)), "MaskedPSN"),
    "SlidingPSN": (lambda: snnlib.SpikingLinear(4, 3, neuron=SlidingPSN(2)), "SlidingPSN"),
    "single spikes": (lambda: snnlib.SpikingLinear(4, 3, neuron=LIF(refractory=math.inf)), "refractory"),
    "sparse": (
        lambda: snnlib.SpikingLinear(4, 3, connections=snnlib.Sparse(fan_out=2)),
        "sparse connections have no counterpart",
    ),
}
CHANGES: dict[str, Callable[[nn.Module], object]] = {
    "to_nir": lambda net: snnlib.to_nir(net, dt=1e-4),
    "to_integers": lambda net: snnlib.to_integers(net, INPUT),
}


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("export", CHANGES)
def test_refused_by_name(name: str, export: str) -> None:
    pytest.importorskip("nir")
    make, message = NETS[name]
    with pytest.raises(ValueError, match=message):
        CHANGES[export](nn.Sequential(make()).eval())


def test_convolutional_recurrence_is_refused_by_nir() -> None:
    pytest.importorskip("nir")
    layer = snnlib.SpikingConvRNN2d(2, 4, 3, padding=1)
    with pytest.raises(ValueError, match="convolutional recurrence"):
        snnlib.to_nir(layer, x=torch.zeros(4, 1, 2, 5, 5))


def test_quantised_weights_are_refused_before_the_first_change() -> None:
    net = nn.Sequential(snnlib.SpikingLinear(4, 3), NETS["sparse"][0]())
    values = [parameter.clone() for parameter in net.parameters()]
    with pytest.raises(ValueError, match="sparse connections have no counterpart"):
        exchange.quantise_weights_(net)
    assert all(torch.equal(a, b) for a, b in zip(net.parameters(), values, strict=True))


def test_delay_lines_become_integers_where_a_channel_arrives_once() -> None:
    torch.manual_seed(0)
    x = torch.randint(0, 4, (12, 5, 8)).float()
    net = nn.Sequential(
        snnlib.nn.DelayLine(8, 2), snnlib.SpikingLinear(8, 6, neuron=LIF(2.0)), nn.Linear(6, 3)
    ).eval()
    snnlib.prepare_(net, x, 0.3)
    late = net[0](x)
    without = snnlib.to_integers(net[1:], late).integers(late)
    assert without.any() and torch.equal(snnlib.to_integers(net, x).integers(x), without)
    several = nn.Sequential(snnlib.nn.DelayLine(8, 2, every=True), snnlib.SpikingLinear(24, 3))
    with pytest.raises(ValueError, match=r"0 .*: channels that arrive several times have no counterpart"):
        snnlib.to_integers(several, x)


@pytest.mark.parametrize("exponent", [None, 0])
def test_files_of_recurrent_nets_name_the_option_that_gives_weights_one_grid(
    exponent: int | None, tmp_path: Path
) -> None:
    pytest.importorskip("h5py")
    slope = snnlib.surrogate.Triangle(0.5, 0.4)
    neuron = neurons.LoihiCubaLIF(50.0, 20.0, weight_exponent=exponent, surrogate=slope)
    net = nn.Sequential(snnlib.SpikingRNN(8, 4, neuron=neuron))
    nn.init.constant_(net[0].layers[0].weight, 90.0)
    nn.init.constant_(net[0].layers[0].recurrent_weight, 0.3)
    if exponent is None:
        with pytest.raises(ValueError, match=r"no exponent in common.* weight_exponent="):
            exchange.to_lava(net, tmp_path / "net.net")
    else:
        exchange.to_lava(net, tmp_path / "net.net")
        assert (tmp_path / "net.net").exists()
