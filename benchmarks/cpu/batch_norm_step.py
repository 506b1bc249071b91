"""Milliseconds of one training step of nets with batch norm before LIF neurons: snnlib and SpikingJelly.

    PYTHONPATH=PEERS python benchmarks/cpu/batch_norm_step.py [--net nmnist vgg gesture] [--batch 8] [--json FILE]

Convolution, batch norm by the statistics of the batch, LIF with tau 2 and a detached reset, average pooling; forward,
backward and Adam, float32, random events of 4 %. `nmnist` is 12C5p1-P2-64C5-P2-10 at T = 30; `vgg` and `gesture` are
the layers of `models.cifar10_dvs_vgg` and `models.dvs_gesture_net` at T = 20, without dropout. Ratios are to the first
row, snnlib fused with a triangle of half width 0.5. SpikingJelly runs with ATan(2) in channels-last where it is
installed. Peak memory is that of two steps in a process of its own over what imports take.
"""

from __future__ import annotations

import re
import sys

import torch
from nmnist_nets import DENSITY, SPIKINGJELLY, TUNED, installed, training_step
from peak_memory import peak_apart, print_peak
from torch import Tensor, nn
from turns import Report, Task, parser, take_turns

import snnlib
from snnlib import surrogate

# name: (layers, frames, time steps)
NETS = {
    "nmnist": ("12C5p1-P2-64C5-P2-10", (2, 34, 34), 30),
    "vgg": (
        "128C3p1-P2-256C3p1-256C3p1-P2-256C3p1-512C3p1-P2-512C3p1-512C3p1-512C3p1-P2-1024-1024-10",
        (2, 48, 48),
        20,
    ),
    "gesture": ("128C3p1-P2-" * 6 + "512-128-11", (2, 128, 128), 20),
}
ROWS = (
    "snnlib, fused, triangle",
    "snnlib, fused, ATan",
    "snnlib, layer by layer, ATan",
    SPIKINGJELLY + TUNED,
)


def our_net(notation: str, shape: tuple[int, int, int], bump: surrogate.Surrogate) -> nn.Sequential:
    torch.manual_seed(0)
    neuron = snnlib.neurons.LIF(2.0, surrogate=bump)
    return snnlib.models.from_notation(notation, shape, neuron=neuron, batch_norm=True)


class SpikingJellyNet(nn.Module):
    """Net of SpikingJelly in multi-step mode and channels-last."""

    def __init__(self, notation: str, shape: tuple[int, int, int]) -> None:
        super().__init__()
        from spikingjelly.activation_based import functional, layer, neuron  # noqa: PLC0415
        from spikingjelly.activation_based import surrogate as theirs  # noqa: PLC0415

        torch.manual_seed(0)
        self.reset = functional.reset_net
        words, layers, channels, flat = notation.split("-"), [], shape[0], False
        for number, word in enumerate(words):
            if conv := re.fullmatch(r"(\d+)C(\d+)(?:p(\d+))?", word):
                width, size, padding = int(conv[1]), int(conv[2]), int(conv[3] or 0)
                layers += [
                    layer.Conv2d(channels, width, size, padding=padding, bias=False),
                    layer.BatchNorm2d(width),
                ]
                channels = width
            elif pool := re.fullmatch(r"P(\d+)", word):
                layers.append(layer.AvgPool2d(int(pool[1])))
                continue
            else:
                layers += [] if flat else [layer.Flatten()]
                flat = True
                layers.append(layer.Linear(self._inputs(layers, shape), int(word), bias=False))
                if number < len(words) - 1:
                    layers.append(layer.BatchNorm1d(int(word)))
            layers.append(neuron.LIFNode(tau=2.0, detach_reset=True, surrogate_function=theirs.ATan()))
        self.net = nn.Sequential(*layers)
        functional.set_step_mode(self.net, "m")
        self.to(memory_format=torch.channels_last)

    def _inputs(self, layers: list[nn.Module], shape: tuple[int, int, int]) -> int:
        with torch.no_grad():
            out = nn.Sequential(*layers).eval()(torch.zeros(1, *shape) if len(layers) else torch.zeros(1))
        self.reset(nn.Sequential(*layers))
        return out.shape[1]

    def forward(self, x: Tensor) -> Tensor:
        self.reset(self.net)
        frames = x.flatten(0, 1).contiguous(memory_format=torch.channels_last)
        spikes: Tensor = self.net(frames.unflatten(0, x.shape[:2]))
        return spikes


def make_task(row: str, net_name: str, batch: int, steps: int) -> Task:
    """Returns the training step of a row of the table."""
    notation, shape, _ = NETS[net_name]
    generator = torch.Generator().manual_seed(0)
    x = (torch.rand(steps, batch, *shape, generator=generator) < DENSITY).float()
    y = torch.randint(0, 10, (batch,), generator=generator)
    if row == SPIKINGJELLY + TUNED:
        return training_step(SpikingJellyNet(notation, shape), x, y)
    bump = surrogate.Triangle() if "triangle" in row else surrogate.ATan()
    net = our_net(notation, shape, bump)
    return training_step(snnlib.fuse_(net) if "fused" in row else net, x, y)


def main() -> None:
    wanted = parser(__doc__, turns=7)
    wanted.add_argument("--net", nargs="+", choices=NETS, default=["nmnist"])
    wanted.add_argument("--batch", type=int, default=16)
    arguments = wanted.parse_args()
    report = Report(arguments)
    rows = ROWS if installed(SPIKINGJELLY) else ROWS[:-1]
    if not installed(SPIKINGJELLY):
        print(f"{SPIKINGJELLY}: not installed, not timed")
    for name in arguments.net:
        batch = 2 if arguments.quick else arguments.batch
        size = (name, batch, NETS[name][2])
        table = take_turns({row: make_task(row, *size) for row in rows}, arguments.turns)
        for row in () if arguments.quick else rows:
            table[row]["peak_mb"] = peak_apart(__file__, (row, *size), not arguments.fresh_memory)
        report.add(f"one training step of {name} with batch norm, batch {batch}", table)
    report.write()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--task"]:
        (task_row, *_), *_ = torch.load(sys.argv[2], weights_only=False)
        print_peak(sys.argv[2], make_task, (task_row, "nmnist", 1, 1))
    else:
        main()
