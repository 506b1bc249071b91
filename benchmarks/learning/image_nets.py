"""Test accuracies of a small SEW-ResNet and a small Spikformer on MNIST, trained in SpikingJelly and in snnlib.

    PYTHONPATH=PEERS python benchmarks/learning/image_nets.py --root MNIST [--net sew spikformer] [--seeds 0 1 2]

Both libraries get the same images in the same order, T = 4, LIF neurons (tau 2, threshold 1, ATan), batch norm,
cross-entropy of the mean scores, AdamW at 3e-3 with a cosine, one thread. The SEW-ResNet (one block of 16, 32 and 64
channels each) starts from the same weights in both: snnlib loads SpikingJelly's `state_dict`. The Spikformer (width 32,
two blocks) draws its own. Images are halved to 14 x 14 by default. Nets of snnlib are fused.
"""

from __future__ import annotations

import argparse
import importlib
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from peers import why_not
from torch import Tensor, nn

import snnlib
from snnlib.data import MNIST

sys.path.append(str(Path(__file__).parents[1] / "cpu"))
from attention_step import OfSpikingJelly
from four_steps import module_of

STEPS, BATCH, LEARNING_RATE, WIDTH = 4, 50, 3e-3, 16
LIBRARIES = ("SpikingJelly", "snnlib")
Made = tuple[nn.Module, Callable[[], object]]


class JellySEW(nn.Module):
    """The layers of a small `SpikingResNet("sew", (1, 1, 1))`, out of SpikingJelly's."""

    def __init__(self) -> None:
        super().__init__()
        layer, model = module_of("layer"), module_of("model.sew_resnet")
        atan = {"surrogate_function": module_of("surrogate").ATan(), "detach_reset": True}
        fire: dict[str, Any] = {"spiking_neuron": module_of("neuron").LIFNode, **atan}
        self.conv1, self.bn1 = model.conv3x3(1, WIDTH), layer.BatchNorm2d(WIDTH)
        self.sn1 = module_of("neuron").LIFNode(**atan)
        before = WIDTH
        for number in range(3):
            after = WIDTH << number
            down = [model.conv1x1(before, after, 2), layer.BatchNorm2d(after)] if number else []
            shortcut = nn.Sequential(*down) if down else None
            block = model.BasicBlock(before, after, 2 if number else 1, shortcut, cnf="ADD", **fire)
            self.add_module(f"layer{number + 1}", nn.Sequential(block))
            before = after
        self.fc = layer.Linear(before, 10)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        x = self.sn1(self.bn1(self.conv1(x)))
        x = self.layer3(self.layer2(self.layer1(x)))
        return self.fc(x.mean((3, 4)))


def made(library: str, name: str, x: Tensor) -> Made:
    """The net, and what clears its states before a step."""
    lif = snnlib.neurons.LIF(surrogate=snnlib.surrogate.ATan(), dialect="spikingjelly", detach_reset=True)
    net: nn.Module
    if library == "snnlib" and name == "spikformer":
        plain = snnlib.neurons.LIF(surrogate=snnlib.surrogate.ATan(), decay_input=False)
        net = snnlib.models.spikformer(width=2 * WIDTH, neuron=plain)
        return snnlib.fuse_(net, x), lambda: None
    jelly = JellySEW() if name == "sew" else OfSpikingJelly(2 * WIDTH)
    if library == "snnlib":
        net = snnlib.models.SpikingResNet(
            "sew", (1, 1, 1), 10, channels=1, width=WIDTH, stem="small", neuron=lif
        )
        net.load_state_dict(jelly.state_dict())
        return snnlib.fuse_(net, x), lambda: None
    functional = importlib.import_module("spikingjelly.activation_based.functional")
    functional.set_step_mode(jelly, "m")
    return jelly, partial(functional.reset_net, jelly)


def pictures(root: str, train: bool, count: int, size: int) -> tuple[Tensor, Tensor]:
    """Images [S, 1, H, W] of mean 0 and standard deviation 1, and labels."""
    digits = MNIST(root, train)
    images = (digits.images[:count].float() / 255 - 0.1307) / 0.3081
    return F.adaptive_avg_pool2d(images, size), digits.targets[:count]


def accuracy_of(library: str, name: str, seed: int, arguments: argparse.Namespace) -> tuple[float, float]:
    """Test accuracy of one training, and its seconds of processor time."""
    images, labels = pictures(arguments.root, True, arguments.images, arguments.size)
    tests, answers = pictures(arguments.root, False, arguments.tests, arguments.size)
    channels = 1 if name == "sew" else 2

    def sequence(chosen: Tensor) -> Tensor:
        return chosen.expand(STEPS, len(chosen), channels, *chosen.shape[2:])

    torch.manual_seed(seed)
    net, clear = made(library, name, sequence(images[:BATCH]))
    optimizer = torch.optim.AdamW(net.parameters(), LEARNING_RATE)
    # Both libraries see the same order.
    torch.manual_seed(seed)
    batches = [rows for _ in range(arguments.epochs) for rows in torch.randperm(len(images)).split(BATCH)]
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, len(batches))
    began = time.process_time()
    for rows in batches:
        clear()
        optimizer.zero_grad()
        F.cross_entropy(net(sequence(images[rows])).mean(0), labels[rows]).backward()
        optimizer.step()
        schedule.step()
    seconds, right = time.process_time() - began, 0
    net.eval()
    with torch.no_grad():
        for part, target in zip(tests.split(250), answers.split(250), strict=True):
            clear()
            right += int((net(sequence(part)).mean(0).argmax(1) == target).sum())
    return right / len(tests), seconds


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--root", required=True, help="folder of MNIST's files")
    parser.add_argument("--net", nargs="+", choices=("sew", "spikformer"), default=["sew", "spikformer"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--images", type=int, default=6000)
    parser.add_argument("--tests", type=int, default=5000)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--size", type=int, default=14, help="pixels of a side (default 14)")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if reason := why_not("SpikingJelly"):
        print(reason)
        return
    for name in arguments.net:
        for library in LIBRARIES:
            runs = [accuracy_of(library, name, seed, arguments) for seed in arguments.seeds]
            found = [100 * accuracy for accuracy, _ in runs]
            error = statistics.stdev(found) / len(found) ** 0.5 if len(found) > 1 else float("nan")
            print(
                f"{name}, {library}: {', '.join(f'{each:.2f}' for each in found)}; mean "
                f"{statistics.mean(found):.2f} +- {error:.2f} %, {statistics.mean(s for _, s in runs):.0f} s",
                flush=True,
            )


if __name__ == "__main__":
    main()
