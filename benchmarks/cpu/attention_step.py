"""Milliseconds of one training step of a small Spikformer: snnlib, fused and as layers, and SpikingJelly.

    PYTHONPATH=PEERS python benchmarks/cpu/attention_step.py [--threads 1] [--batch 25] [--steps 10] [--width 64]

`models.spikformer` on the embedded digits, forward + backward + Adam, and the same layers of SpikingJelly: its
convolutions, batch norms, neurons (LIF, threshold 1, tau 2, ATan), average pools and blocks, over whole sequences (step
mode "m"). SpikingJelly is timed where it is installed, also as `snnlib.convert` and `fuse_` make it. Ratios are to the
first.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader
from turns import Report, Task, parser, take_turns

import snnlib
from snnlib.data import EventDigits, FrameCache, ToFrames, stack_time_first

DURATION_US = 300_000


class OfSpikingJelly(nn.Module):
    """The layers of `models.spikformer`, out of SpikingJelly's."""

    def __init__(self, width: int, depth: int = 2) -> None:
        super().__init__()
        base = "spikingjelly.activation_based"
        layer, neuron, model, surrogate = (
            importlib.import_module(f"{base}.{name}")
            for name in ("layer", "neuron", "model.spikformer", "surrogate")
        )
        fire = {"decay_input": False, "surrogate_function": surrogate.ATan(), "detach_reset": True}

        def conv(before: int, after: int, *behind: nn.Module) -> nn.Sequential:
            return nn.Sequential(
                layer.Conv2d(before, after, 3, padding=1, bias=False, step_mode="m"),
                layer.BatchNorm2d(after, step_mode="m"),
                neuron.LIFNode(step_mode="m", **fire),
                *behind,
            )

        pools = [layer.AvgPool2d(2, step_mode="m") for _ in range(2)]
        self.stem = nn.Sequential(
            conv(2, width // 4, pools[0]), conv(width // 4, width // 2, pools[1]), conv(width // 2, width)
        )
        self.places = conv(width, width)
        block = partial(model.SpikformerBlock, width, 4, 2.0, **fire)
        self.blocks = nn.Sequential(*(block() for _ in range(depth)))
        self.head = layer.Linear(width, 10, step_mode="m")

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        x = self.blocks(x + self.places(x))
        return self.head(x.flatten(3).mean(-1))


def made(name: str, width: int, x: Tensor) -> tuple[nn.Module, Callable[[], object]]:
    """The net, and what clears its states before a step."""
    torch.manual_seed(0)
    if name.startswith("snnlib"):
        net: nn.Module = snnlib.models.spikformer(width=width)
        return snnlib.fuse_(net) if "fused" in name else net, lambda: None
    net = OfSpikingJelly(width)
    if "converted" in name:
        return snnlib.fuse_(snnlib.convert(net, x, quiet=True)), lambda: None
    reset = importlib.import_module("spikingjelly.activation_based.functional").reset_net
    return net, partial(reset, net)


def training_step(name: str, width: int, x: Tensor, y: Tensor) -> Task:
    net, clear = made(name, width, x)
    optimiser = torch.optim.Adam(net.parameters(), lr=1e-3)

    def step() -> None:
        clear()
        optimiser.zero_grad()
        nn.functional.cross_entropy(net(x).mean(0), y).backward()
        optimiser.step()

    return step


def main() -> None:
    wanted = parser(__doc__)
    wanted.add_argument("--batch", type=int, default=25)
    wanted.add_argument("--steps", type=int, default=10)
    wanted.add_argument("--width", type=int, default=64)
    arguments = wanted.parse_args()
    report = Report(arguments)
    batch = 2 if arguments.quick else arguments.batch
    frames = ToFrames(time_steps=arguments.steps, step_us=DURATION_US // arguments.steps)
    data = FrameCache(EventDigits(train=True, transform=frames))
    x, y = next(iter(DataLoader(data, batch, collate_fn=stack_time_first)))
    names = ["snnlib, fused", "snnlib, as layers"]
    if importlib.util.find_spec("spikingjelly") is not None:
        names += ["SpikingJelly", "SpikingJelly, converted and fused"]
    else:
        print("SpikingJelly: not installed, not timed")
    tasks = {name: training_step(name, arguments.width, x, y) for name in names}
    report.add(f"one training step, batch {batch}, T = {arguments.steps}", take_turns(tasks, arguments.turns))
    report.write()


if __name__ == "__main__":
    main()
