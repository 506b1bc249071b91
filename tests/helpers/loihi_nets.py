"""Random nets of neurons in fixed point, with integer weights, and their input."""

import random
from typing import Any

import torch
from torch import Tensor, nn

import snnlib
from snnlib.neurons import LoihiCubaLIF, LoihiLIF, Neuron

_LOW = snnlib.surrogate.Triangle(width=0.5, height=0.4)


def _neuron(rng: random.Random, channels: int) -> Neuron:
    def tau() -> float:
        return 4096 / rng.choice([1, 100, rng.randint(1, 4096), 4096])

    def per_channel(low: int, high: int) -> Tensor:
        return torch.tensor([rng.randint(low, high) for _ in range(channels)]) / 64

    options: dict[str, Any] = {"surrogate": _LOW}
    options["threshold"] = rng.choice([rng.randint(1, 40) / 64, per_channel(1, 60)])
    options["bias_current"] = rng.choice([None, rng.randint(-2, 2) / 64, per_channel(-2, 2)])
    options["refractory"] = rng.choice([0, 0, rng.randint(1, 4)])
    options["weight_exponent"] = rng.choice([-10, -9, -8])
    if rng.random() < 0.3:
        return LoihiLIF(tau(), **options)
    return LoihiCubaLIF(tau(), tau(), **options)


def _delays(rng: random.Random) -> snnlib.Delays | None:
    kinds: list[Any] = [None, None, None, "channel", "connection"]
    kind = rng.choice(kinds)
    return None if kind is None else snnlib.Delays(rng.randint(1, 5), kind)


def _conv(rng: random.Random, inputs: int, channels: int) -> nn.Module:
    sizes = {"stride": rng.choice([1, 1, (1, 2)]), "padding": rng.randint(0, 1)}
    neuron = _neuron(rng, channels)
    return snnlib.SpikingConv2d(
        inputs, channels, rng.choice([2, 3]), neuron=neuron, delays=_delays(rng), **sizes
    )


def _linear(rng: random.Random, inputs: int, channels: int) -> nn.Module:
    return snnlib.SpikingLinear(inputs, channels, neuron=_neuron(rng, channels), delays=_delays(rng))


def random_net(seed: int) -> tuple[nn.Module, Tensor]:
    """A net in `eval` mode, and counts of events `[20, 2, ...]` for it."""
    rng = random.Random(seed)
    torch.manual_seed(seed)
    if seed % 3:
        net = nn.Sequential(_conv(rng, 2, 4), snnlib.AvgPool2d(2), _conv(rng, 4, 5), nn.Flatten(2))
        shape: tuple[int, ...] = (2, 14, 14)
    else:
        recurrent = snnlib.SpikingRNN(14, 9, neuron=_neuron(rng, 9), recurrent_delays=_delays(rng))
        net, shape = nn.Sequential(_linear(rng, 12, 14), recurrent), (12,)
    inputs = net(torch.zeros(20, 1, *shape)).shape[2]
    net = nn.Sequential(*net, _linear(rng, inputs, 8), _linear(rng, 8, 6)).eval()
    with torch.no_grad():
        for name, parameter in net.named_parameters():
            if "delays" not in name:
                # Beyond what 8 bits hold, both ways, and more that excites than inhibits.
                parameter.copy_(torch.randint(-130, 160, parameter.shape) * 2.0**-8)
    return net, torch.poisson(torch.full((20, 2, *shape), 0.3))
