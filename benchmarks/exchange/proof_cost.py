"""Processor time of the comparison at the end of `convert`, in forward and backward passes of the original.

Usage: python benchmarks/exchange/proof_cost.py [--turns 3] [--samples 1 4 16 64] [--threads 1]

Each net is converted with `verify=True` and with `verify=False` in turns; the difference of the smallest times is
divided by the smallest time of a forward and backward pass of the original on the same x. Needs snnTorch and
SpikingJelly; nets of libraries that are not installed are left out.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

import snnlib
from snnlib.exchange.conversion.proof import run_original
from snnlib.structure.peers import clear_states

STEPS = 10


class Loop(nn.Module):
    """A loop over time with states passed by hand."""

    def __init__(self, snn: Any, sizes: list[int]) -> None:
        super().__init__()
        self.fc1, self.fc2 = (nn.Linear(*pair) for pair in itertools.pairwise(sizes))
        self.lif1, self.lif2 = snn.Leaky(beta=0.9), snn.Leaky(beta=0.9)

    def forward(self, x: Tensor) -> Tensor:
        a, b, out = self.lif1.init_leaky(), self.lif2.init_leaky(), []
        for t in range(x.shape[0]):
            spikes, a = self.lif1(self.fc1(x[t]), a)
            spikes, b = self.lif2(self.fc2(spikes), b)
            out.append(spikes)
        return torch.stack(out)


def _snntorch(sizes: list[int]) -> nn.Module:
    return Loop(importlib.import_module("snntorch"), sizes)


def _linear() -> nn.Module:
    snn = importlib.import_module("snntorch")
    layers = nn.Linear(1000, 3000), nn.Linear(3000, 2200), nn.Linear(2200, 100)
    return nn.Sequential(*(part for fc in layers for part in (fc, snn.Leaky(beta=0.9, init_hidden=True))))


def _conv() -> nn.Module:
    base = "spikingjelly.activation_based"
    layer, neuron = (importlib.import_module(f"{base}.{name}") for name in ("layer", "neuron"))
    parts: list[nn.Module] = []
    for channels in ((2, 32), (32, 64), (64, 64)):
        parts += [layer.Conv2d(*channels, 3, padding=1), layer.BatchNorm2d(channels[1]), neuron.IFNode()]
    net = nn.Sequential(*parts, layer.AdaptiveAvgPool2d(1), layer.Flatten(), layer.Linear(64, 10))
    importlib.import_module(f"{base}.functional").set_step_mode(net, "m")
    return net


NETS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], bool]] = {
    "linear, 9.8 million weights, step by step": (_linear, (1000,), True),
    "loop, 0.5 million weights": (partial(_snntorch, [784, 600, 10]), (784,), False),
    "loop, 10 million weights": (partial(_snntorch, [4000, 2490, 20]), (4000,), False),
    "convolutions, mode m": (_conv, (2, 24, 24), False),
}


def _seconds(run: Callable[[], object]) -> float:
    start = time.process_time()
    run()
    return time.process_time() - start


def _pass(net: nn.Module, x: Tensor, stepwise: bool) -> None:
    clear_states(net)
    run_original(net, x, stepwise).sum().backward()


def main() -> None:
    """Prints a row for each net and number of samples."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--samples", type=int, nargs="+", default=[1, 4, 16, 64])
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    for name, (build, shape, stepwise) in NETS.items():
        torch.manual_seed(0)
        try:
            net = build()
        except ImportError:
            continue
        for samples in options.samples:
            x = (torch.rand(STEPS, samples, *shape) < 0.3).float()
            convert = partial(snnlib.convert, net, x, quiet=True)
            times = [
                [
                    _seconds(partial(convert, verify=True)),
                    _seconds(partial(convert, verify=False)),
                    _seconds(partial(_pass, net, x, stepwise)),
                ]
                for _ in range(options.turns)
            ]
            verified, plain, once = map(min, zip(*times, strict=True))
            proof = verified - plain
            print(f"{name:42} {samples:3} samples  {proof:6.2f} s  {proof / once:5.1f} passes", flush=True)


if __name__ == "__main__":
    main()
