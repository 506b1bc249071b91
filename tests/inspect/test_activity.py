"""Counts of spikes per neuron, and what is called dead or saturated."""

import pytest
import torch

import snnlib
from snnlib.inspect.activity import LayerActivity, SpikeCounter


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_counts_are_sums_over_time_and_batch(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    net = snnlib.models.from_notation("3C3p1-P2-7", (2, 6, 8)).to(dtype)
    sequences = [(torch.rand(9, batch, 2, 6, 8) < 0.3).to(dtype) for batch in (4, 1)]
    counter = SpikeCounter(net)
    with counter.counting():
        for sequence in sequences:
            net(sequence)
    # Not counted: the hooks are gone.
    net(sequences[0])
    for name, layer, before in (("conv1", net.conv1, net[:0]), ("fc1", net.fc1, net[:2])):
        sums = sum(layer(before(sequence)).double().sum((0, 1)) for sequence in sequences)
        assert torch.equal(counter.counts[name], sums)
    assert counter.steps.tolist() == [9 * 5, 9 * 5]


def test_dead_and_saturated_neurons() -> None:
    counter = SpikeCounter(torch.nn.Sequential(snnlib.SRMLinear(1, 4)))
    counter.counts, counter.steps = (
        {"0": torch.tensor([0.0, 1.0, 90.0, 91.0]).double()},
        torch.tensor([100.0]),
    )
    assert counter.layers() == [LayerActivity("0", 4, pytest.approx(0.455), dead=1, saturated=1)]
    counter.reset()
    assert counter.layers() == []


@pytest.mark.parametrize(("steps", "spikes", "saturated"), [(2, 8.0, 0), (10, 2.0, 4)])
def test_saturated_neurons_fire_at_most_steps_however_many_spikes(
    steps: int, spikes: float, saturated: int
) -> None:
    sequence = torch.zeros(10, 3, 4)
    sequence[:steps] = spikes
    counter = SpikeCounter(torch.nn.Sequential(snnlib.neurons.IF(levels=8)))
    with counter.counting():
        for _ in range(2):
            counter._net(sequence)
    rate = pytest.approx(steps * spikes / 10)
    assert counter.layers() == [LayerActivity("0", 4, rate, dead=0, saturated=saturated)]
    counter.reset()
    assert counter.firing == {}


class _Branches(torch.nn.Module):
    """Calls one layer twice and one not at all."""

    def __init__(self) -> None:
        super().__init__()
        self.unused, self.twice, self.once = (snnlib.SRMLinear(4, 4) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.once(self.twice(self.twice(x)))


def test_rates_of_layers_that_are_called_twice_or_never() -> None:
    torch.manual_seed(0)
    net = _Branches()
    for layer in (net.twice, net.once):
        torch.nn.init.constant_(layer.weight, 2.0)
    counter, sequence = SpikeCounter(net), torch.ones(5, 3, 4)
    with counter.counting():
        net(sequence)
    # Every input makes every neuron fire at every step.
    assert [(layer.name, layer.rate) for layer in counter.layers()] == [("twice", 1.0), ("once", 1.0)]
    with snnlib.SpikeDoctor(net) as doctor:
        net(sequence)
    assert [layer.rate for layer in doctor.layers()] == [1.0, 1.0]
