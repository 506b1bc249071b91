"""Milliseconds of one training step of the N-MNIST net with LIF neurons: snnlib's surrogates and SpikingJelly.

    SNNLIB_DATA=FOLDER PYTHONPATH=PEERS python benchmarks/cpu/surrogate_step.py [--batch 50] [--rate 0.08] [--json FILE]

Workload: 12C5(p1)-P2-64C5-P2-10, T = 30, forward + backward + Adam, float32, LIF with tau 2 and a detached reset. Every
layer of every net is scaled until so many of its neurons fire in a step. Ratios are to the first row, a triangle.
SpikingJelly runs in channels-last, its faster layout, where it is installed. SRM neurons for comparison.
"""

from __future__ import annotations

import torch
from nmnist_nets import (
    FUSED,
    RATE,
    SPIKINGJELLY,
    TUNED,
    calibrated,
    installed,
    make_task,
    recorded,
    scale_layers_,
    training_step,
)
from torch import Tensor, nn
from turns import Report, parser, take_turns

import snnlib
from snnlib import surrogate
from snnlib.nn.layers.spiking_layer import SpikingLayer

TRIANGLE, NARROW, ATAN = "snnlib, LIF, triangle 0.5", "snnlib, LIF, triangle 0.25", "snnlib, LIF, ATan"
SURROGATES = {TRIANGLE: surrogate.Triangle(0.5), NARROW: surrogate.Triangle(0.25), ATAN: surrogate.ATan()}


def lif_net(bump: surrogate.Surrogate, x: Tensor, rate: float) -> nn.Sequential:
    """Our net, fused, with every layer at this rate."""
    torch.manual_seed(0)
    neuron = snnlib.neurons.LIF(2.0, surrogate=bump)
    net = snnlib.models.from_notation("12C5p1-P2-64C5-P2-10", (2, 34, 34), neuron=neuron)
    scale_layers_(net, SpikingLayer, rate, lambda: net(x))
    return snnlib.fuse_(net)


def spikingjelly_net(x: Tensor, rate: float) -> nn.Module:
    """Theirs, with every layer at this rate."""
    from nmnist_nets import SpikingJellyNet  # noqa: PLC0415
    from spikingjelly.activation_based import neuron  # noqa: PLC0415

    torch.manual_seed(0)
    net = SpikingJellyNet(torch.channels_last)
    scale_layers_(net, neuron.LIFNode, rate, lambda: net(x))
    return net


def main() -> None:
    wanted = parser(__doc__)
    wanted.add_argument("--batch", type=int, default=50)
    wanted.add_argument("--rate", type=float, default=RATE)
    arguments = wanted.parse_args()
    report = Report(arguments)
    data, x, y = recorded(2 if arguments.quick else arguments.batch)
    few = x[:, : min(x.shape[1], 4)]
    tasks = {
        name: training_step(lif_net(bump, few, arguments.rate), x, y) for name, bump in SURROGATES.items()
    }
    tasks["snnlib, SRM"] = make_task(FUSED, x, y, calibrated(x, arguments.rate))
    if installed(SPIKINGJELLY):
        tasks[SPIKINGJELLY + TUNED] = training_step(spikingjelly_net(few, arguments.rate), x, y)
    else:
        print(f"{SPIKINGJELLY}: not installed, not timed")
    report.add(f"one training step, batch {x.shape[1]}, {data}", take_turns(tasks, arguments.turns))
    report.write()


if __name__ == "__main__":
    main()
