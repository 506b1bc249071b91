"""Golden spike trains: a fixed net on fixed events fires at the same steps on every platform, path and release.

Why bits can be asked for: weights are multiples of 2^-6 and pooled events multiples of 2^-2, so every current is a
short sum of multiples of 2^-8 that float32 holds exactly, in whatever order a convolution library adds it. Decay
factors for tau 4 and 2 are 3/4 and 1/2; the neurons then round in one fixed order of IEEE operations. Events and
weights come from NumPy's PCG64, whose stream is fixed.

`pytest tests/testing/test_regression.py --update-spikes` rewrites the file after an intended change: docs/testing.md.
"""

import numpy as np
import torch
from torch import Tensor, nn

import snnlib
from snnlib.testing import SpikeRegression

STEPS, BATCH, SIZE = 24, 2, 12


def _net() -> nn.Sequential:
    constants = {"tau_m": 4.0, "tau_s": 2.0, "tau_grad": 2.0}
    net = nn.Sequential()
    net.add_module("conv1", snnlib.SRMConv2d(2, 4, 3, padding=1, **constants))
    net.add_module("pool1", snnlib.SpikeAvgPool2d(2))
    net.add_module("conv2", snnlib.SRMConv2d(4, 6, 3, **constants))
    net.add_module("flatten", nn.Flatten(2))
    net.add_module("fc1", snnlib.SRMLinear(96, 10, **constants))
    generator = np.random.Generator(np.random.PCG64(2022))
    # Step of the weights in units of 2^-6, small for many inputs.
    for name, unit in (("conv1", 4), ("conv2", 5), ("fc1", 2)):
        weight = net.get_submodule(name).weight
        levels = np.floor(generator.random(tuple(weight.shape)) * 16) - 6
        with torch.no_grad():
            weight.copy_(torch.from_numpy(levels * unit / 64))
    return net


def _events() -> Tensor:
    generator = np.random.Generator(np.random.PCG64(2023))
    return torch.from_numpy((generator.random((STEPS, BATCH, 2, SIZE, SIZE)) < 0.2).astype(np.float32))


def _spikes() -> dict[str, Tensor]:
    trains: dict[str, Tensor] = {}
    x = _events()
    with torch.no_grad():
        for name, layer in _net().named_children():
            x = layer(x)
            if isinstance(layer, snnlib.nn.SRMLayer):
                trains[name] = x
    return trains


def test_golden_spike_trains(path: str, spike_regression: SpikeRegression) -> None:
    trains = _spikes()
    for name, train in trains.items():
        rate = float(train.mean())
        assert 0.02 < rate < 0.5, f"{name} fires at {rate:.3f}: it would test little"
    spike_regression.check(trains, "spikes_of_every_path")


def test_premise() -> None:
    """Weights are dyadic, and float32 and float64 agree on every spike."""
    net, events = _net(), _events()
    with torch.no_grad():
        for name, weight in net.named_parameters():
            assert torch.equal((weight * 64).round(), weight * 64), name
        expected = net(events)
        assert torch.equal(net.double()(events.double()).float(), expected)
