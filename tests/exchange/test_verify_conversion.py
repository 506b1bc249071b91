"""`verify_conversion` on graded spikes, spikes that a net writes into, states beside outputs and missing gradients."""

import importlib
from typing import Any

import pytest
import torch
from loop_nets import random_spikes
from peer_standins import Leaky, MemoryModule, spike_at
from torch import Tensor, nn

import snnlib
from snnlib.neurons import LIF, CubaLIF


class Counter(MemoryModule):
    """A neuron of SpikingJelly without counterpart that gives up to four spikes in a step."""

    def step(self, x: Tensor) -> Tensor:
        spikes: Tensor = sum(spike_at(x - level) for level in range(1, 5))  # type: ignore[assignment]
        return spikes


Counter.__module__ = "spikingjelly.activation_based.neuron.counter"


class Sums(nn.Module):
    """A net that writes into the spikes of a neuron."""

    def __init__(self, frozen: bool = False) -> None:
        super().__init__()
        self.fc1, self.fc2, self.frozen = nn.Linear(12, 16), nn.Linear(12, 16), frozen
        self.lif1, self.lif2 = Leaky(0.5, hidden=True), Leaky(0.75, hidden=True)
        for layer in (self.fc1, self.fc2):
            nn.init.uniform_(layer.weight, 0, 1)

    def forward(self, x: Tensor) -> Tensor:
        out = []
        for step in x:
            with torch.set_grad_enabled(not self.frozen):
                counts = self.lif1(self.fc1(step))
            counts += self.lif2(self.fc2(step))
            out.append(counts)
        return torch.stack(out)


def test_graded_spikes_are_compared() -> None:
    net, x = nn.Sequential(nn.Identity(), Counter()), 5 * torch.rand(7, 2, 6)
    made = snnlib.convert(net, x, quiet=True)
    found = snnlib.verify_conversion(net, made, x)
    assert found.ok and found.spikes["1"][0] == int(net(x.flatten(0, 1)).sum()) > 7 * 2 * 6
    made[1] = LIF(tau=1.0, threshold=2.0, levels=4)
    assert not snnlib.verify_conversion(net, made, x).ok


def test_spikes_that_the_net_writes_into_are_compared_as_they_were() -> None:
    net, x = Sums(), random_spikes(7, 3, 12)
    made = snnlib.convert(net, x, quiet=True, loop="inside")
    found = snnlib.verify_conversion(net, made, x, loop="inside")
    assert found.ok and found.silent == [] and found.identical == 1
    counts = int(net.eval()(x).sum())
    # States are cleared by hand, as snnTorch's utils.reset does it.
    assert counts == sum(pair[0] for pair in found.spikes.values())


def test_a_missing_gradient_is_said_to_be_missing() -> None:
    net, x = Sums(), random_spikes(7, 3, 12)
    made = snnlib.convert(net, x, quiet=True, loop="inside")
    for frozen, missing in ((net, "original"), (made, "converted net")):
        net.frozen = frozen is net
        if frozen is made:
            made.fc1.register_forward_hook(lambda module, inputs, output: output.detach())
        found = snnlib.verify_conversion(net, made, x, loop="inside")
        assert not found.ok and found.identical == 1
        assert found.gradients_missing == {"fc1.weight": missing, "fc1.bias": missing}
        assert f"fc1.weight  gradient is missing in the {missing}\n" in str(found)
        assert "fc2.weight  gradient differs by " in str(found)


@pytest.mark.parametrize("lifted", [False, True])
def test_states_beside_the_outputs_of_norse_are_left_out(lifted: bool) -> None:
    norse: Any = pytest.importorskip("norse.torch", reason="compares with norse, which is not installed")
    torch.manual_seed(0)
    neuron = norse.Lift(norse.LIFCell()) if lifted else norse.LIF()
    net, x = norse.SequentialState(norse.Lift(nn.Linear(12, 10)), neuron), 30 * torch.rand(12, 5, 12)
    made = snnlib.convert(net, x, quiet=True)
    found = snnlib.verify_conversion(net, made, x)
    assert found.ok and next(iter(found.spikes.values()))[0] > 0, str(found)


def test_lifted_neurons_of_norse_are_those_of_their_cells() -> None:
    norse: Any = pytest.importorskip("norse.torch", reason="compares with norse, which is not installed")
    torch.manual_seed(0)
    linear, cell, last = norse.Lift(nn.Linear(12, 10)), norse.LIFCell(), norse.Lift(nn.Linear(10, 4))
    x = 30 * torch.rand(12, 5, 12)
    net = norse.SequentialState(linear, norse.Lift(cell), last)
    made = snnlib.convert(net, x, quiet=True, unsupported="raise")
    assert type(made[1]) is CubaLIF
    torch.testing.assert_close(made(x), net(x)[0])
    # A lifted chain runs as it is.
    chain = norse.Lift(norse.SequentialState(nn.Linear(12, 10), cell))
    torch.testing.assert_close(snnlib.convert(chain, x, quiet=True)(x)[0], chain(x)[0])


def test_ilif_nodes_are_compared() -> None:
    base = "spikingjelly.activation_based"
    neuron = pytest.importorskip(
        f"{base}.neuron", reason="compares with spikingjelly, which is not installed"
    )
    layer = importlib.import_module(f"{base}.layer")
    net = nn.Sequential(layer.Linear(12, 10, step_mode="m"), neuron.ILIFNode(step_mode="m"))
    made = snnlib.convert(net, x := 20 * torch.rand(12, 5, 12), quiet=True)
    found = snnlib.verify_conversion(net, made, x)
    assert found.ok and found.spikes["1"][0] > 0, str(found)
