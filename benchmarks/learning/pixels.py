"""MNIST pixel by pixel: blocks of a state-space model and recurrent nets, each trained for the same processor time.

    PYTHONPATH=PEERS python benchmarks/learning/pixels.py --root MNIST [--net NAME ...] [--seconds 1500] [--permuted]

784 steps of one pixel, normalised; cross-entropy of the mean output, AdamW with a warm-up and a cosine by the time that
is gone, gradients scaled down to a norm of 1. Blocks and learning rate are those of `snnlib train --recipe smnist`;
recurrent nets have 256 neurons of which 5 % fire at the start, batches of 128 and a learning rate of 2e-3. All 60000
images train, the first 5000 test images are tested. Peers need their packages.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from speech import scale_to_rate_
from timed import Clock, rows, train_for
from torch import Tensor, nn

import snnlib
from snnlib import neurons, surrogate
from snnlib.data import MNIST
from snnlib.neurons import LRU

sys.path.append(str(Path(__file__).parents[1] / "cpu"))
from recurrent import Layer, SnnTorch, SpikingJelly

WIDTH, HIDDEN, CLASSES = 64, 256, 10
TESTED, AT_ONCE = 5000, 250
MEAN, STD = 0.1307, 0.3081


class Recurrent(Layer):
    """Recurrent neurons of this library."""

    def __init__(self, neuron: neurons.Neuron) -> None:
        super().__init__(1, HIDDEN)
        self.input = snnlib.SpikingRNN(1, HIDDEN, neuron=neuron)

    def spikes(self, x: Tensor) -> Tensor:
        return self.input(x)


class Blocks(nn.Module):
    """Three blocks, and scores of each step."""

    def __init__(self, **options: float) -> None:
        super().__init__()
        units = [LRU.ring(WIDTH, **options) for _ in range(3)]
        blocks = [snnlib.nn.StateSpaceBlock(WIDTH, neuron=each) for each in units]
        self.layers = nn.Sequential(nn.Linear(1, WIDTH), *blocks, nn.Linear(WIDTH, CLASSES))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


def adlif() -> neurons.Neuron:
    return neurons.AdLIF(
        tau_m=neurons.log_uniform(10.0, 100.0, HIDDEN),
        tau_a=neurons.log_uniform(50.0, 300.0, HIDDEN),
        a=torch.rand(HIDDEN),
        b=2 * torch.rand(HIDDEN),
        rho=60.0,
        surrogate=surrogate.Triangle(0.5, 0.4),
        learnable=("tau_m", "tau_a", "a", "b"),
    )


def brf() -> neurons.Neuron:
    return neurons.BRF(torch.empty(HIDDEN).uniform_(15, 50), torch.empty(HIDDEN).uniform_(0.1, 1))


NETS: dict[str, Callable[[], nn.Module]] = {
    "spiking-blocks": lambda: Blocks(threshold=1.0),
    "blocks": Blocks,
    "adlif": lambda: Recurrent(adlif()),
    "brf": lambda: Recurrent(brf()),
    "snntorch": lambda: SnnTorch(1, HIDDEN, synaptic=True),
    "spikingjelly": lambda: SpikingJelly(1, HIDDEN),
}


def run(name: str, root: Path, seconds: float, permuted: bool, seed: int) -> None:
    """Train one net, and print its accuracy on the way."""
    torch.manual_seed(seed)
    train, test = MNIST(root, True), MNIST(root, False)
    order = torch.randperm(784, generator=torch.Generator().manual_seed(0))

    def sequence(images: Tensor) -> Tensor:
        pixels = images.flatten(1)
        pixels = pixels[:, order] if permuted else pixels
        return pixels.float().div(255).sub(MEAN).div(STD).t().unsqueeze(2)

    net = NETS[name]()
    blocks = isinstance(net, Blocks)
    batch, lr = (32, 4e-3) if blocks else (128, 2e-3)
    if isinstance(net, Layer):
        first = sequence(train.images[:64])
        weight = next(part for part in net.input.parameters() if part.shape[-1] == 1)
        scale_to_rate_(weight, lambda: net.spikes(first), 0.05)
    groups = snnlib.parameter_groups(net, lr, weight_decay=0.01)
    optimizer = torch.optim.AdamW(groups)
    peaks = [group["lr"] for group in groups]

    def step(chosen: Tensor, gone: float) -> None:
        factor = min(1.0, 0.01 + gone / 0.03) * (1 + math.cos(math.pi * min(gone, 1.0))) / 2
        for group, peak in zip(optimizer.param_groups, peaks, strict=True):
            group["lr"] = factor * peak
        scores = net(sequence(train.images[chosen])).mean(0)
        optimizer.zero_grad()
        nn.functional.cross_entropy(scores, train.targets[chosen]).backward()
        if nn.utils.clip_grad_norm_(net.parameters(), 1.0).isfinite():
            optimizer.step()

    @torch.no_grad()
    def evaluate() -> float:
        right = 0
        for images, labels in zip(
            test.images[:TESTED].split(AT_ONCE), test.targets[:TESTED].split(AT_ONCE), strict=True
        ):
            right += int((net(sequence(images)).mean(0).argmax(1) == labels).sum())
        print(f"{name}: {right / TESTED:.4f} after {clock.seconds():.0f} s", flush=True)
        return right / TESTED

    clock = Clock()
    found = train_for(seconds, clock, rows(len(train), batch, seed), step, evaluate, evaluations=5)
    parameters = sum(part.numel() for part in net.parameters())
    print(
        f"{name}: {parameters} parameters, {found[-1][0]} updates of {batch}, {found[-1][2]:.1%}", flush=True
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--net", choices=list(NETS), nargs="+", default=list(NETS))
    parser.add_argument("--seconds", type=float, default=1500.0)
    parser.add_argument("--permuted", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    snnlib.keep_freed_memory()
    for name in options.net:
        run(name, options.root, options.seconds, options.permuted, options.seed)


if __name__ == "__main__":
    main()
