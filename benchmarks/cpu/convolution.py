"""Milliseconds of the parts of a convolutional layer at several densities: event-driven, and torch's convolution.

    python benchmarks/cpu/convolution.py [--density 0.03 0.1 0.3 0.6] [--json FILE]

128 to 128 channels, 3x3, on 32x32, T = 12, batch 8; input and output both fire at the density, anywhere in the frame.
The layer's time holds its neurons as well: their scan over time forward, and in each of the two gradients the reading
of their record. Torch convolves only: forward, and the gradient of the input or of the weights. Ratios are to the
layer: above 1, it is faster.
"""

from __future__ import annotations

from functools import partial

import torch
from nmnist_nets import raise_mean_, scale_to_rate_
from torch import Tensor
from turns import Report, Task, parser, take_turns

import snnlib

OURS, LAYOUTS = "snnlib layer, with neurons", ("torch, channels-last", "torch, contiguous")
PARTS = ("forward", "input gradient", "weight gradient")


def our_tasks(x: Tensor, density: float) -> dict[str, Task]:
    """The parts of a layer that fires at `density`."""
    layer = snnlib.SRMConv2d(x.shape[2], x.shape[2], 3, padding=1, tau_m=8.0, tau_s=4.0)
    raise_mean_(layer.weight)
    scale_to_rate_(layer.weight, density, lambda: float(layer(x[:, :2]).mean()))
    gradient = torch.randn(x.shape[0], x.shape[1], *x.shape[3:], x.shape[2]).permute(0, 1, 4, 2, 3)

    def backward(leaf: Tensor) -> Task:
        # The other one asks for no gradient while the sequence goes through.
        layer.weight.requires_grad_(leaf is layer.weight)
        spikes = layer(x if leaf is layer.weight else leaf)
        return lambda: torch.autograd.grad(spikes, leaf, gradient, retain_graph=True)

    return {
        "forward": lambda: layer(x),
        "input gradient": backward(x.detach().requires_grad_()),
        "weight gradient": backward(layer.weight),
    }


def torch_tasks(x: Tensor, layout: torch.memory_format) -> dict[str, Task]:
    """Returns tasks of a plain convolution, with the gradients that autograd asks for."""
    frames = x.flatten(0, 1).contiguous(memory_format=layout)
    weight = torch.randn(x.shape[2], x.shape[2], 3, 3).contiguous(memory_format=layout)
    gradient = torch.randn(frames.shape).contiguous(memory_format=layout)
    ones, zeros = [1, 1], [0, 0]

    def backward(wanted: list[bool]) -> tuple[Tensor, ...]:
        return torch.ops.aten.convolution_backward(
            gradient, frames, weight, None, ones, ones, ones, False, zeros, 1, wanted
        )

    return {
        "forward": lambda: torch.nn.functional.conv2d(frames, weight, padding=1),
        "input gradient": partial(backward, [True, False, False]),
        "weight gradient": partial(backward, [False, True, False]),
    }


def main() -> None:
    wanted = parser(__doc__)
    wanted.add_argument("--density", type=float, nargs="+", default=[0.03, 0.1, 0.3, 0.6])
    arguments = wanted.parse_args()
    report = Report(arguments)
    channels, size, steps, batch = (16, 8, 3, 2) if arguments.quick else (128, 32, 12, 8)
    torch.manual_seed(0)
    for density in arguments.density:
        x = (torch.rand(steps, batch, size, size, channels) < density).float().permute(0, 1, 4, 2, 3)
        contenders = {
            OURS: our_tasks(x, density),
            LAYOUTS[0]: torch_tasks(x, torch.channels_last),
            LAYOUTS[1]: torch_tasks(x, torch.contiguous_format),
        }
        for part in PARTS:
            table = take_turns({name: tasks[part] for name, tasks in contenders.items()}, arguments.turns)
            report.add(f"{part}, density {density:.0%}", table)

    report.write()


if __name__ == "__main__":
    main()
