"""Processor time of a training step of twelve nets at T = 4 after `fuse_(net, x)`, over that before, in turns.

    python benchmarks/cpu/fused_nets.py [--net csnn mlp] [--turns 9] [--threads 1] [--json FILE]

Dense and small nets are among them, in which joining modules has nothing to gain: `fuse_` should leave these as they
are. Modules are those that `snnlib.convert` gives for nets of SpikingJelly: `PerStep` of torch's modules, and `LIF`
with the surrogate ATan.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from turns import Report, Task, parser, take_turns

import snnlib

STEPS, CLASSES = 4, 10


# name: (samples, frame, share of nonzero inputs, layers). A share of 1 is an image. Layers: convolution "c", without
# batch norm "C", depthwise "d" or over one axis "r" with channels, kernel and stride; pools; fully connected "f".
NETS: dict[str, tuple[int, tuple[int, ...], float, str]] = {
    "csnn": (16, (1, 28, 28), 1.0, "c64,3,1 max c64,3,1 max f256 f10"),
    "csnn of one sample": (1, (1, 28, 28), 1.0, "c32,3,1 max c32,3,1 max f10"),
    "mlp": (32, (1, 28, 28), 0.2, "f256 f128 f10"),
    "wide mlp": (64, (64, 8, 8), 0.1, "f1024 f10"),
    "dense inputs": (16, (32, 16, 16), 0.5, "c64,3,1 c64,3,1 avg f10"),
    "without batch norm": (16, (2, 32, 32), 0.05, "C32,3,1 avg C64,3,1 avg f10"),
    "events": (8, (2, 64, 64), 0.03, "c32,3,1 avg c64,3,1 avg c64,3,1 avg f10"),
    "depthwise": (16, (32, 16, 16), 0.2, "d32,3,1 c64,1,1 d64,3,1 c64,1,1 f10"),
    "one by one": (16, (64, 8, 8), 0.3, "c128,1,1 c128,1,1 f10"),
    "strides": (16, (3, 32, 32), 1.0, "c64,3,2 c128,3,2 c256,3,2 f10"),
    "small images": (32, (128, 4, 4), 0.2, "c256,3,1 c256,3,1 avg f10"),
    "one axis": (16, (8, 256), 0.2, "r32,5,2 r64,5,2 f10"),
}


def _layer(text: str, x: Tensor) -> list[nn.Module]:
    """Returns the modules of a layer for an input `[T, N, C, ...]`."""
    if text in ("max", "avg"):
        return [snnlib.MaxPool2d(2) if text == "max" else snnlib.AvgPool2d(2)]
    kind, before = text[0], x.shape[2]
    after, *window = map(int, text[1:].split(","))
    fire = snnlib.neurons.LIF(2.0, surrogate=snnlib.surrogate.ATan())
    if kind == "f":
        return [nn.Flatten(2), snnlib.PerStep(nn.Linear(x.shape[2:].numel(), after)), fire]
    conv, norm = (nn.Conv1d, nn.BatchNorm1d) if kind == "r" else (nn.Conv2d, nn.BatchNorm2d)
    groups = before if kind == "d" else 1
    made = conv(before, after, *window, padding=window[0] // 2, groups=groups, bias=kind == "C")
    return [snnlib.PerStep(made), *([] if kind == "C" else [snnlib.PerStep(norm(after))]), fire]


def make_net(name: str) -> nn.Sequential:
    """Returns the net of a name."""
    _, frame, _, layers = NETS[name]
    net, x = nn.Sequential(), torch.zeros(1, 2, *frame)
    for text in layers.split():
        added = nn.Sequential(*_layer(text, x))
        net.extend(added)
        x = added(x)
    return net


def make_input(name: str, quick: bool) -> Tensor:
    """Returns a sequence `[T, N, ...]`."""
    samples, frame, share, _ = NETS[name]
    samples = 1 if quick else samples
    generator = torch.Generator().manual_seed(1)
    if share == 1.0:
        return torch.rand(samples, *frame, generator=generator).expand(STEPS, -1, *[-1] * len(frame)).clone()
    return torch.rand(STEPS, samples, *frame, generator=generator).lt(share).float()


def make_task(net: nn.Module, x: Tensor) -> Task:
    """Returns a training step of a net."""
    optimiser = torch.optim.SGD(net.parameters(), 1e-3)
    y = torch.arange(x.shape[1]) % CLASSES

    def step() -> None:
        optimiser.zero_grad()
        nn.functional.cross_entropy(net(x).mean(0), y).backward()
        optimiser.step()

    return step


def main() -> None:
    wanted = parser(__doc__, turns=9)
    wanted.add_argument("--net", nargs="+", choices=NETS, default=list(NETS))
    arguments = wanted.parse_args()
    report = Report(arguments)
    for name in arguments.net[:1] if arguments.quick else arguments.net:
        torch.manual_seed(0)
        net, x = make_net(name), make_input(name, arguments.quick)
        tasks = {"as it is": make_task(net, x), "fused": make_task(snnlib.fuse_(copy.deepcopy(net), x), x)}
        report.add(f"one training step of {name}", take_turns(tasks, arguments.turns))
    report.write()


if __name__ == "__main__":
    main()
