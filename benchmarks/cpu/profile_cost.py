"""What `snnlib.profile` costs beside a forward pass of the same net, in turns in one process.

Usage: python benchmarks/cpu/profile_cost.py [--turns 15] [--threads 1] [NET ...]

Prints the median of (time of the profile) / (time of the forward pass) for each net, in evaluation mode without
gradients. Times are processor times, so that other programs on the machine do not count. Spikes are random at 5 %.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

import snnlib
from snnlib import models, neurons


def spikes(*shape: int, rate: float = 0.05) -> Tensor:
    """A random spike tensor."""
    return (torch.rand(*shape, generator=torch.Generator().manual_seed(0)) < rate).float()


def nmnist() -> tuple[nn.Module, Tensor]:
    net, x = models.nmnist_net(), spikes(30, 100, 2, 34, 34)
    snnlib.prepare_(net, x[:, :20])
    return net, x


def lif_convolutions() -> tuple[nn.Module, Tensor]:
    layers = [snnlib.SpikingConv2d(2, 16, 3, padding=1), snnlib.AvgPool2d(2)]
    layers += [snnlib.SpikingConv2d(16, 32, 3, padding=1), snnlib.AvgPool2d(2)]
    net = nn.Sequential(*layers, nn.Flatten(2), snnlib.SpikingLinear(32 * 64, 10))
    x = spikes(30, 32, 2, 32, 32)
    snnlib.prepare_(net, x)
    return net, x


def batch_norm() -> tuple[nn.Module, Tensor]:
    layers: list[nn.Module] = []
    for inputs in (2, 32):
        layers += [snnlib.PerStep(nn.Conv2d(inputs, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32))]
        layers += [neurons.LIF(), snnlib.AvgPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(2), snnlib.PerStep(nn.Linear(32 * 64, 10))), spikes(
        20, 32, 2, 32, 32
    )


def torch_net() -> tuple[nn.Module, Tensor]:
    layers = [
        nn.Conv2d(3, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.ReLU(),
    ]
    net = nn.Sequential(
        *layers, nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64 * 64, 128), nn.ReLU(), nn.Linear(128, 10)
    )
    return net, torch.randn(256, 3, 32, 32)


def fully_connected() -> tuple[nn.Module, Tensor]:
    net, x = (
        nn.Sequential(snnlib.SpikingLinear(784, 512), snnlib.SpikingLinear(512, 10)),
        spikes(50, 128, 784),
    )
    snnlib.prepare_(net, x)
    return net, x


def recurrent() -> tuple[nn.Module, Tensor]:
    net, x = nn.Sequential(snnlib.SpikingRNN(700, 256), snnlib.SpikingLinear(256, 20)), spikes(100, 64, 700)
    snnlib.prepare_(net, x)
    return net, x


def fused(build: Callable[[], tuple[nn.Module, Tensor]]) -> Callable[[], tuple[nn.Module, Tensor]]:
    def make() -> tuple[nn.Module, Tensor]:
        net, x = build()
        return snnlib.fuse_(net), x

    return make


NETS: dict[str, Callable[[], tuple[nn.Module, Tensor]]] = {
    "nmnist": nmnist,
    "nmnist-fused": fused(nmnist),
    "lif": lif_convolutions,
    "lif-fused": fused(lif_convolutions),
    "batch-norm": batch_norm,
    "batch-norm-fused": fused(batch_norm),
    "linear": fully_connected,
    "recurrent": recurrent,
    "torch": torch_net,
}


def ratio(net: nn.Module, x: Tensor, turns: int) -> tuple[float, float]:
    """(median of the ratios of the times, median milliseconds of a forward pass)."""
    net.eval()
    batch_first = x.dim() == 4
    ratios, passes = [], []
    for _ in range(turns + 2):
        start = time.process_time()
        with torch.no_grad():
            net(x)
        middle = time.process_time()
        snnlib.profile(net, x, batch_first=batch_first)
        end = time.process_time()
        ratios.append((end - middle) / (middle - start))
        passes.append(middle - start)
    # The first turns warm up.
    return statistics.median(ratios[2:]), statistics.median(passes[2:]) * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("nets", nargs="*", choices=[*NETS, []])
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    snnlib.keep_freed_memory()
    for name in arguments.nets or NETS:
        torch.manual_seed(0)
        found, milliseconds = ratio(*NETS[name](), arguments.turns)
        print(f"{name}: {found:.3f} forward passes of {milliseconds:.1f} ms of processor time", flush=True)


if __name__ == "__main__":
    main()
