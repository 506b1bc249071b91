"""Two nets of others with exact spike times on Yin-Yang, in small steps: their spikes, times and accuracies.

The nets come with "Fast and energy-efficient neuromorphic deep learning with first-spike times" (Göltz et al. 2021) and
its successor on delays: 4-30-3 neurons, one spike each, trained in continuous time. In steps of 0.005 synaptic time
constants, with their inputs moved to the grid, the closed form on the same grid says where every spike has to be.
"""

import math
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from closed_form import first_spikes
from torch import Tensor, nn

import snnlib
from snnlib import encoding, readout
from snnlib.neurons import CubaLIF

pytestmark = pytest.mark.skipif(
    not os.environ.get("SNNLIB_DATA"), reason="SNNLIB_DATA is unset: no nets of others to compare with"
)

DT, END = 0.005, 4.0
STEPS = round(END / DT)


def _folder() -> Path:
    return Path(os.environ["SNNLIB_DATA"]) / "yin_yang"


class Trained:
    """Weights `[outputs, inputs]` of both layers, delays of their inputs, input times and labels."""

    def __init__(self, name: str) -> None:
        stored = np.load(_folder() / f"goeltz_H30_{name}.npz")
        self.weights = [torch.from_numpy(stored[f"layers.{layer}.weights"]).t() for layer in (1, 3)]
        self.delays: list[Tensor] | None = None
        if name == "WA":
            raw = [torch.from_numpy(stored[f"layers.{layer}._delay_parameters"])[:, 0] for layer in (0, 2)]
            self.delays = [raw_delay.sigmoid() for raw_delay in raw]
        self.inputs = 0.15 + 1.85 * torch.from_numpy(np.load(_folder() / "test_samples.npy"))
        self.labels = torch.from_numpy(np.load(_folder() / "test_labels.npy"))
        self.times = torch.from_numpy(np.load(_folder() / f"goeltz_H30_{name}_test_spiketimes.npy"))

    def net(self) -> nn.Sequential:
        layers = []
        for index, weight in enumerate(self.weights):
            neuron = CubaLIF.from_continuous(2.0, 1.0, DT, refractory=torch.inf)
            delays = None
            if self.delays is not None:
                steps = (self.delays[index] / DT).round()
                delays = snnlib.Delays(round(1 / DT), initial=steps)
            layer = snnlib.SpikingLinear(*weight.t().shape, neuron=neuron, delays=delays, dtype=torch.float64)
            with torch.no_grad():
                layer.weight.copy_(weight)
            layers.append(layer)
        return nn.Sequential(*layers).eval()


def _on_grid(times: Tensor) -> Tensor:
    return (times / DT).round() * DT


def _closed(trained: Trained) -> tuple[list[Tensor], Tensor]:
    """Steps of the first spikes of both layers on the grid, T for none, and whether no potential only just misses.

    A crossing within the step from k dt to (k + 1) dt is a spike of step k, and arrives at the next layer at k dt.
    """
    arrivals, found = _on_grid(trained.inputs), []
    clear = torch.ones(len(arrivals), dtype=torch.bool)
    for index, weight in enumerate(trained.weights):
        late = 0.0 if trained.delays is None else _on_grid(trained.delays[index])
        first = first_spikes((arrivals + late)[:, None].expand(-1, len(weight), -1), weight)
        # A peak between two steps may reach the threshold there alone.
        clear &= (first.miss > 1e-3).all(1)
        steps = (first.times / DT - 1e-9).floor().clamp(max=STEPS)
        found.append(steps)
        arrivals = torch.where(steps < STEPS, steps * DT, math.inf)
    return found, clear


@pytest.mark.parametrize(("name", "theirs"), [("W", 0.967), ("WA", 0.975)])
def test_nets_of_others(name: str, theirs: float) -> None:
    trained = Trained(name)
    net = trained.net()
    with torch.no_grad():
        hidden = net[0](encoding.at_times(_on_grid(trained.inputs), STEPS, dt=DT))
        spikes = net[1](hidden)
        potential = net[1].free_potential(net[1].input_current(hidden, net[1].effective_weight))
        times = (readout.first_spike_time(spikes, potential=potential, no_spike=math.inf) + 1) * DT
    accuracy = float((times.argmin(1) == trained.labels).double().mean())
    # A difference of three of the thousand samples is what moving the inputs to the grid makes.
    assert accuracy >= theirs - 0.003
    expected, clear = _closed(trained)
    assert clear.double().mean() > 0.8
    for layer, steps in zip((hidden, spikes), expected, strict=True):
        own = readout.first_spike_time(layer)
        off = (own != steps)[clear]
        print(f"{name}: {int(off.sum())} of {off.numel()} spikes off")
        assert int(off.sum()) == 0
    # Against continuous time: half a step in the middle, more where a neuron only just fires.
    both = times.isfinite() & trained.times.isfinite()
    assert both.double().mean() > 0.99
    assert float((times - trained.times)[both].abs().median()) < 0.6 * DT
