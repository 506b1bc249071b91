"""Accuracy of sparse nets that are rewired while they learn, beside the dense net: embedded digits, five seeds.

    python benchmarks/learning/rewired.py [--folder build/rewired] [--seeds 0 1 2] [--nets dense 5%-deep_r] [--table]

The net has two hidden layers of 1000 LIF neurons and a dense read-out of potentials. Of the hidden layers' connections
5 % or 2 % exist, drawn at random; they stay (`5%`), or move by DEEP R at every step (`5%-deep_r`) or by SET after every
epoch (`5%-set`). AdamW with a cosine from 1e-3 (1e-2 where connections are sparse: fewer ones have to go farther), TET,
batches of 25, no augmentation. Accuracy is that after the last epoch. A cell that is there is not run again.
"""

from __future__ import annotations

import math
import time
from itertools import product
from pathlib import Path

import torch
from cells import Cell, grid_parser, read, run_missing
from folds import mean_and_error
from tasks import Task, load
from timed import rows
from torch import nn

import snnlib
from snnlib import neurons, surrogate
from snnlib.learning import Rewiring

NETS = ("dense", "5%-deep_r", "5%-set", "5%", "2%-deep_r", "2%-set", "2%")
HIDDEN, BATCH = 1000, 25


def net_of(inputs: int, classes: int, density: float, hidden: int = HIDDEN) -> nn.Sequential:
    def neuron() -> neurons.Neuron:
        return neurons.LIF(4.0, surrogate=surrogate.Triangle(0.5))

    connections = snnlib.Sparse(density=density) if density < 1 else None
    return nn.Sequential(
        snnlib.SpikingLinear(inputs, hidden, neuron=neuron(), connections=connections),
        snnlib.SpikingLinear(hidden, hidden, neuron=neuron(), connections=connections),
        snnlib.SRMReadout(hidden, classes, tau_m=8.0, tau_s=4.0),
    )


def trained(
    task: Task, name: str, seed: int, epochs: int, rate: float | None = None, **options: float
) -> Cell:
    """Accuracy after each epoch, the processor time of training, and how many connections moved."""
    torch.manual_seed(seed)
    share, _, rule = name.partition("%-")
    density = 1.0 if name == "dense" else float(share.rstrip("%")) / 100
    x, labels = task.train
    net = net_of(x[0, 0].numel(), task.classes, density)
    rate = rate or (1e-3 if density == 1 else 1e-2)
    optimizer = torch.optim.AdamW(net.parameters(), lr=rate)
    batches = math.ceil(len(x) / BATCH)
    rewiring = Rewiring(net, every=1 if rule == "deep_r" else batches, rule=rule, **options) if rule else None
    order, moved, accuracies, seconds = rows(len(x), BATCH, seed), 0, [], 0.0
    for epoch in range(epochs):
        start = time.process_time()
        for batch in range(batches):
            for group in optimizer.param_groups:
                group["lr"] = rate * (1 + math.cos(math.pi * (epoch + batch / batches) / epochs)) / 2
            chosen = next(order)
            loss = snnlib.losses.tet_loss(net(task.batch(x[chosen])), labels[chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            moved += rewiring.step(optimizer) if rewiring else 0
        seconds += time.process_time() - start
        accuracies.append(round(accuracy(net, task), 4))
    return {"test": accuracies, "cpu_seconds": round(seconds, 1), "moved": moved}


@torch.no_grad()
def accuracy(net: nn.Module, task: Task) -> float:
    x, labels = task.test
    scores = [net(task.batch(part)).mean(0) for part in x.split(90)]
    return float((torch.cat(scores).argmax(1) == labels).float().mean())


def table(folder: Path, seeds: list[int], nets: list[str]) -> None:
    """Prints the mean accuracy of each net over the seeds that are there, and its distance to the dense net."""
    found = {name: {seed: read(folder, (name, str(seed))) for seed in seeds} for name in nets}
    for name, runs in found.items():
        last = {seed: 100 * cell["test"][-1] for seed, cell in runs.items() if cell}
        if not last:
            continue
        mean, error = mean_and_error([*last.values()])
        dense = {seed: 100 * cell["test"][-1] for seed, cell in found.get("dense", {}).items() if cell}
        pairs = [value - dense[seed] for seed, value in last.items() if seed in dense]
        lead, spread = mean_and_error(pairs) if pairs else (math.nan, math.nan)
        seconds = sum(cell["cpu_seconds"] for cell in runs.values() if cell) / len(last)
        print(
            f"{name:10} {mean:.1f} +- {error:.1f} % over {len(last)} seeds, {lead:+.1f} +- {spread:.1f} points to "
            f"dense, {seconds:.0f} s of a processor"
        )


def main() -> None:
    parser = grid_parser(__doc__, "build/rewired", seeds=5)
    parser.add_argument("--nets", nargs="*", default=[*NETS], choices=NETS)
    parser.add_argument("--epochs", type=int, default=8)
    arguments = parser.parse_args()
    if not arguments.table:
        task = load("digits")
        keys = [(name, str(seed)) for seed, name in product(arguments.seeds, arguments.nets)]
        run_missing(arguments.folder, keys, lambda key: trained(task, key[0], int(key[1]), arguments.epochs))
    table(arguments.folder, arguments.seeds, arguments.nets)


if __name__ == "__main__":
    main()
