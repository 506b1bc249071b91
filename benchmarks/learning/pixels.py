"""MNIST pixel by pixel: blocks of a state-space model and recurrent nets, each trained for the same processor time.

    PYTHONPATH=PEERS python benchmarks/learning/pixels.py --root MNIST [--net NAME ...] [--seconds 1500] [--permuted]

Blocks, sequences and settings are those of `snnlib train --recipe smnist`, but that the warm-up and the cosine follow
the time that is gone; recurrent nets have 256 neurons of which 5 % fire at the start, batches of 128 and a learning
rate of 2e-3. All 60000 images train, the first 5000 test images are tested. Peers need their packages.
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
from snnlib.app.recipes import recipe
from snnlib.app.training.classifier import SpikingClassifier
from snnlib.app.training.config import TrainConfig
from snnlib.data import MNIST

sys.path.append(str(Path(__file__).parents[1] / "cpu"))
from recurrent import Layer, SnnTorch, SpikingJelly

HIDDEN = 256
TESTED, AT_ONCE = 5000, 250
BLOCKS = ("spiking-lru", "lru")
# Neurons of the command, and peers.
RECURRENT = {
    "adlif": {"neuron": "adlif", "surrogate": "triangle", "tau": 10.0},
    "brf": {"neuron": "brf"},
}
PEERS: dict[str, Callable[[], Layer]] = {
    "snntorch": lambda: SnnTorch(1, HIDDEN, synaptic=True),
    "spikingjelly": lambda: SpikingJelly(1, HIDDEN),
}
NETS = (*BLOCKS, *RECURRENT, *PEERS)


def made(name: str, config: TrainConfig, first: Tensor) -> nn.Module:
    """A net as it begins, scaled by some sequences where it is recurrent."""
    if name in PEERS:
        peer = PEERS[name]()
        scale_to_rate_(peer.input.weight, lambda: peer.spikes(first), config.target_rate)
        return peer
    module = SpikingClassifier(config, config.kind.facts(config))
    if name in RECURRENT:
        snnlib.prepare_(module.net, first, module.target_rates())
    return module.net


def run(name: str, root: Path, seconds: float, permuted: bool, seed: int) -> None:
    """Train one net, and print its accuracy on the way."""
    torch.manual_seed(seed)
    own = {"neuron": name} if name in BLOCKS else {}
    if name in RECURRENT:
        own = {"net": f"{HIDDEN}R-10", **RECURRENT[name]}
    config = recipe("psmnist" if permuted else "smnist").config(root=str(root), target_rate=0.05, **own)
    sequence = config.kind.transform(config, torch.float32)
    train, test = MNIST(root, True), MNIST(root, False)
    net = made(name, config, sequence(train.images[:64]))
    batch, lr = (config.batch_size, config.lr) if name in BLOCKS else (128, 2e-3)
    groups = snnlib.parameter_groups(net, lr, weight_decay=config.weight_decay)
    optimizer = torch.optim.AdamW(groups)
    peaks = [group["lr"] for group in groups]

    def step(chosen: Tensor, gone: float) -> None:
        factor = min(1.0, 0.01 + gone / 0.03) * (1 + math.cos(math.pi * min(gone, 1.0))) / 2
        for group, peak in zip(optimizer.param_groups, peaks, strict=True):
            group["lr"] = factor * peak
        scores = net(sequence(train.images[chosen])).mean(0)
        optimizer.zero_grad()
        nn.functional.cross_entropy(scores, train.targets[chosen]).backward()
        if nn.utils.clip_grad_norm_(net.parameters(), config.clip_norm).isfinite():
            optimizer.step()

    @torch.no_grad()
    def evaluate() -> float:
        images, labels = test.images[:TESTED], test.targets[:TESTED]
        guesses = [net(sequence(some)).mean(0).argmax(1) for some in images.split(AT_ONCE)]
        accuracy = float((torch.cat(guesses) == labels).float().mean())
        print(f"{name}: {accuracy:.4f} after {clock.seconds():.0f} s", flush=True)
        return accuracy

    clock = Clock()
    found = train_for(seconds, clock, rows(len(train), batch, seed), step, evaluate, evaluations=5)
    parameters = sum(part.numel() for part in net.parameters())
    updates, _, accuracy = found[-1]
    print(f"{name}: {parameters} parameters, {updates} updates of {batch}, {accuracy:.1%}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--net", choices=NETS, nargs="+", default=NETS)
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
