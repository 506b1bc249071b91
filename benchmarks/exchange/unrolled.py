"""Nets of graded spikes in torch, in virtual steps, in integers and as C programs: how many outputs differ.

Usage: python benchmarks/exchange/unrolled.py [--nets 200] [--c]
       python benchmarks/exchange/unrolled.py --net keywords-chip --root ARCHIVE [--fold 3] [--c]

Random nets have weights, thresholds and leaks that are binary fractions, so that no sum is rounded and all four have to
be equal. With `--c` each net is also compiled and run, which takes about two seconds of processor. A trained net is put
on such a grid first: batch normalisation is folded, and weights are rounded to 8 bits of a power of two per channel; it
runs on all test files, with `--c` in a program for every 200 of them.
"""

from __future__ import annotations

import argparse
import copy
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

import snnlib
from snnlib.app.training.data_module import EventData
from snnlib.app.training.exporting import batch_of
from snnlib.exchange import IntegerNet, export_c, unroll_spikes, verify_unrolled
from snnlib.exchange.integers.scales import rounded, weight_scale
from snnlib.exchange.structure.stages import stages_of
from snnlib.recipes import recipe

sys.path.append(str(Path(__file__).parents[2] / "tests" / "helpers"))
from graded_nets import graded_net

# Samples of a trained net that are run at once.
BATCH = 200


@dataclass
class Differences:
    """Sums over all comparisons."""

    samples: int = 0
    spikes: int = 0
    flips: int = 0
    answers: int = 0
    integers: int = 0
    programs: int | None = None

    def add(self, net: nn.Module, small: IntegerNet, x: Tensor) -> None:
        """Compares a net with its unrolled net and its integer net."""
        y, unrolled = net(x), unroll_spikes(net, x)
        report = verify_unrolled(net, unrolled, x)
        self.samples += x.shape[1]
        self.spikes += sum(layer.spikes.total for layer in report.layers if layer.spikes is not None)
        self.flips += sum(layer.flips for layer in report.layers)
        self.answers += int((unrolled(x).sum(0).argmax(1) != y.sum(0).argmax(1)).sum())
        self.integers += int((small(x) != y).sum())
        if self.programs is not None:
            self.programs += differs_in_c(small, x)

    def __str__(self) -> str:
        programs = "" if self.programs is None else f", {self.programs} C programs"
        return (
            f"{self.samples} samples, {self.spikes:,} spikes: {self.flips} differ in virtual steps, {self.answers} "
            f"answers; {self.integers} outputs differ in integers{programs}"
        )

    @property
    def any(self) -> bool:
        return any((self.flips, self.answers, self.integers, self.programs))


def differs_in_c(small: IntegerNet, x: Tensor) -> bool:
    """Compiles an integer net; returns whether its outputs differ from those of the program."""
    with tempfile.TemporaryDirectory() as folder:
        export_c(small, folder, x, binary=False)
        command = ("make", "-s", "check", "CFLAGS=-O1 -march=native")
        return subprocess.run(command, cwd=folder, stdout=subprocess.DEVNULL, check=False).returncode != 0


def on_grid(net: nn.Module, x: Tensor) -> nn.Module:
    """Returns a copy of a chain whose weights are 8 bits of a power of two, with biases in the same unit."""
    made = copy.deepcopy(net)
    layers = [
        m for m in made.modules() if isinstance(m, nn.Linear | nn.Conv1d | nn.Conv2d | snnlib.SRMReadout)
    ]
    for layer, stage in zip(layers, stages_of(net, x), strict=True):
        assert stage.cell is not None and isinstance(layer.weight, Tensor)
        unit = weight_scale(stage.weight, 8, "power-of-two", alike=not stage.cell.spikes)
        weight = rounded(stage.weight, unit, 8) * unit.view(-1, 1, 1, 1)
        layer.weight.copy_(weight.view_as(layer.weight))
        if stage.bias is not None:
            layer.bias = nn.Parameter(((stage.bias / unit).round() * unit).float())
    for module in made.modules():
        if isinstance(module, snnlib.PerStep) and len(module) == 2:
            del module[1]
    return made


def of_trained_net(name: str, root: str, fold: int, found: Differences) -> None:
    """Compares a trained net on the grid over the test files of its recipe."""
    data = EventData(recipe(name).config(root=root, fold=fold), False)
    data.setup("fit")
    x = batch_of(data, data.train_set, BATCH)[0]
    net = on_grid(snnlib.models.load(name).net.eval(), x)
    small = snnlib.to_integers(net, x, scale="power-of-two", state_bits=32)
    for part in batch_of(data, data.test_set)[0].split(BATCH, 1):
        found.add(net, small, part)


def main() -> int:
    """Compares the nets and prints the sums over all of them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nets", type=int, default=200)
    parser.add_argument("--c", action="store_true")
    parser.add_argument("--net")
    parser.add_argument("--root")
    parser.add_argument("--fold", type=int, default=3)
    options = parser.parse_args()
    found = Differences(programs=0 if options.c else None)
    if options.net is not None:
        of_trained_net(options.net, options.root, options.fold, found)
        print(f"{options.net}, {found}")
        return int(found.any)
    for seed in range(options.nets):
        net, x = graded_net(seed)
        found.add(net, snnlib.to_integers(net, x, scale="power-of-two", state_bits=32), x)
    print(f"{options.nets} nets, {found}")
    return int(found.any)


if __name__ == "__main__":
    torch.set_num_threads(1)
    with torch.no_grad():
        sys.exit(main())
