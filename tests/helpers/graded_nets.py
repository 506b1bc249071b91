"""Random nets of graded spikes whose weights, thresholds and leaks are binary fractions, so that no sum is rounded."""

import random

import torch
from torch import Tensor, nn

import snnlib
from snnlib.neurons import IF, LIF, Integrator, Neuron
from snnlib.surrogate import Triangle

STEPS, BATCH, SIZE = 6, 3, 7


def graded_net(seed: int) -> tuple[nn.Module, Tensor]:
    """A net and its input: convolutions, pools, delays, batch normalisation and recurrence, by chance."""
    chance = random.Random(seed)
    torch.manual_seed(seed)
    channels = chance.choice((3, 4, 17))
    layers: list[nn.Module] = []
    if chance.random() < 0.5:
        norm = nn.BatchNorm2d(channels, eps=0.0)
        norm.weight.data.fill_(2.0)
        norm.running_mean.fill_(0.25)  # type: ignore[union-attr]
        layers += [snnlib.PerStep(nn.Conv2d(2, channels, 3, padding=1), norm), _neuron(chance)]
    else:
        delays = _delays(chance)
        layers += [snnlib.SpikingConv2d(2, channels, 3, padding=1, neuron=_neuron(chance), delays=delays)]
    size = SIZE
    if chance.random() < 0.5:
        layers, size = [*layers, snnlib.AvgPool2d(2)], size // 2
    layers.append(nn.Flatten(2))
    width = chance.choice((5, 20))
    if chance.random() < 0.5:
        back = {"recurrent_delays": _delays(chance)}
        layers.append(snnlib.SpikingRNN(channels * size * size, width, neuron=_neuron(chance), **back))
    else:
        layers.append(snnlib.SpikingLinear(channels * size * size, width, neuron=_neuron(chance)))
    last = Integrator(2.0, decay_input=False) if chance.random() < 0.3 else _neuron(chance)
    layers.append(snnlib.SpikingLinear(width, 4, neuron=last))
    net = nn.Sequential(*layers).eval()
    with torch.no_grad():
        for name, parameter in net.named_parameters():
            if name.endswith(("weight", "bias")) and "1.weight" not in name:
                parameter.copy_((parameter * 16 + 1.5).round().clamp(-60, 60) / 16)
    x = torch.poisson(torch.full((STEPS, BATCH, 2, SIZE, SIZE), 0.2))
    return net, x


def _delays(chance: random.Random) -> snnlib.Delays | None:
    per = chance.choice((None, "channel", "connection"))
    return None if per is None else snnlib.Delays(3, per)


def _neuron(chance: random.Random) -> Neuron:
    options = {
        "levels": chance.choice((1, 2, 3, 4, 7)),
        "level_rounding": chance.choice(("round", "floor")),
        "compare": chance.choice((">=", ">")),
        "threshold": chance.choice((0.5, 1.0, 1.25)),
        "surrogate": Triangle(height=0.5),
    }
    if options["levels"] == 1:
        options["reset"] = chance.choice(("zero", "subtract"))
    tau = chance.choice((0.0, 1.0, 2.0))
    return LIF(tau, decay_input=False, **options) if tau else IF(**options)  # type: ignore[arg-type]
