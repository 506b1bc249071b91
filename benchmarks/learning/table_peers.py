"""The nets of other libraries in the table of learning, of the same sizes and trained the same way as ours with LIF.

`SpikingJelly` and `snnTorch` are the nets of `table_nets.py` with their LIF neurons (ATan) in place of ours; maps,
batch norm and pooling are torch's. Weights before neurons without batch norm are scaled so that 8 % of them fire in a
step.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path

import table_nets
import torch
from table_nets import CONV_RATE, LIF_TAU, SEQUENCE_RATE, Way, by_potentials, by_rates
from table_problems import Batch, Problem
from torch import Tensor, nn

import snnlib
from snnlib.nn.per_step import AvgPool2d, PerStep

sys.path.append(str(Path(__file__).parents[1] / "cpu"))
from nmnist_nets import RATE, scale_to_rate_


class Jelly(nn.Module):
    """SpikingJelly's LIF neurons over whole sequences, from rest."""

    def __init__(self, tau: float) -> None:
        from spikingjelly.activation_based import functional, neuron, surrogate  # noqa: PLC0415

        super().__init__()
        self.reset = functional.reset_net
        self.neuron = neuron.LIFNode(
            tau=tau, detach_reset=True, surrogate_function=surrogate.ATan(), step_mode="m"
        )

    def forward(self, x: Tensor) -> Tensor:
        self.reset(self.neuron)
        spikes: Tensor = self.neuron(x)
        return spikes


class Leaky(nn.Module):
    """snnTorch's LIF neurons, step by step from rest."""

    def __init__(self, tau: float) -> None:
        import snntorch  # noqa: PLC0415

        super().__init__()
        atan = snntorch.surrogate.atan(alpha=2.0)
        self.neuron = snntorch.Leaky(beta=1 - 1 / tau, spike_grad=atan)

    def forward(self, x: Tensor) -> Tensor:
        membrane = self.neuron.init_leaky()
        spikes = []
        for step in x:
            spike, membrane = self.neuron(step, membrane)
            spikes.append(spike)
        return torch.stack(spikes)


def with_neurons(net: nn.Sequential, make: Callable[[], nn.Module]) -> nn.Sequential:
    """A convolutional net of ours behind batch norm, with other neurons and torch's maps and pooling."""
    layers: list[nn.Module] = []
    for module in net:
        if isinstance(module, snnlib.neurons.LIF):
            layers.append(make())
        elif isinstance(module, AvgPool2d):
            layers.append(PerStep(nn.AvgPool2d(module.kernel_size)))
        elif isinstance(module, snnlib.SpikingLinear):
            linear = nn.Linear(module.in_features, module.out_features, bias=False)
            layers += [PerStep(nn.Flatten(), linear), make()]
        else:
            layers.append(module)
    return nn.Sequential(*layers)


def surrogate_net(problem: Problem, neuron: Callable[[float], nn.Module], first: Batch) -> Way:
    of = problem.setting
    if of.shape[1] > 1:
        net = with_neurons(table_nets.conv_lif(problem, snnlib.surrogate.ATan()), lambda: neuron(LIF_TAU))
        return by_rates(problem, net, torch.optim.Adam(net.parameters(), CONV_RATE))
    # Our read-out, as only the hidden neurons are compared.
    _, linear, readout = table_nets.sequence_lif(problem, snnlib.surrogate.ATan())
    net = nn.Sequential(nn.Linear(of.shape[0], linear.in_features), neuron(of.tau_m), linear, readout)
    scale_to_rate_(net[0].weight, RATE, lambda: float(net[:2](first.x).mean()), 12)
    return by_potentials(problem, net, torch.optim.Adam(net.parameters(), SEQUENCE_RATE))


NETS: dict[str, Callable[[Problem, str, Batch], Way]] = {
    "SpikingJelly": lambda problem, _, first: surrogate_net(problem, Jelly, first),
    "snnTorch": lambda problem, _, first: surrogate_net(problem, Leaky, first),
}


def why_not(name: str) -> str | None:
    """Why a net is not run, or None."""
    library = name.lower()
    if importlib.util.find_spec(library) is None:
        return f"{library} is not installed: make build/peers/.ready, and PYTHONPATH=build/peers"
    return None
