"""Accuracy of recurrent nets by gradient at equal steps, e-prop among them: rows of MNIST and motifs, five seeds.

    SNNLIB_DATA=FOLDER python benchmarks/learning/eprop.py [--seeds 0 1 2] [--tasks motifs] [--table]

The net has 128 recurrent CubaLIF neurons (decay times 10 and 5 steps) and a linear read-out that leaks with 20 steps.
A row of an image is the current of a step. Adam with a cosine from 2e-3, cross-entropy of the mean over time, batches
of 50, 400 updates for motifs and 800 for the first 6000 images of MNIST. Accuracy is that after the last update. A cell
that is there is not run again.
"""

from __future__ import annotations

import time
from itertools import product
from pathlib import Path

import torch
from cells import Cell, grid_parser, read, run_missing
from folds import mean_and_error
from tasks import load
from timed import rows
from torch import Tensor, nn

import snnlib
from snnlib import neurons, surrogate

UPDATES = {"motifs": 400, "mnist-6000": 800}
GRADIENTS = ("bptt", "eprop", "eprop-random", "no-time")
HIDDEN, BATCH, RATE = 128, 50, 2e-3


def sequence(samples: Tensor) -> Tensor:
    """Returns images `[N, 1, H, W]` row by row, or spikes `[N, T, C]`, as `[T, N, C]`."""
    return samples.squeeze(1).transpose(0, 1).float()


def net_of(inputs: int, classes: int, gradient: str) -> nn.Sequential:
    neuron = neurons.CubaLIF(
        10.0, 5.0, surrogate=surrogate.Triangle(0.5, 0.4), gradient_through_time=gradient != "no-time"
    )
    kind = "eprop" if gradient.startswith("eprop") else "bptt"
    readout = nn.Linear(HIDDEN, classes)
    return nn.Sequential(
        snnlib.SpikingRNN(inputs, HIDDEN, neuron=neuron, recurrent_gradient=kind),
        snnlib.nn.RandomFeedback(readout) if gradient == "eprop-random" else readout,
        neurons.Integrator(20.0),
    )


def trained(name: str, gradient: str, seed: int) -> Cell:
    """Trains one net; returns its accuracy and the processor time of training."""
    torch.manual_seed(seed)
    task, updates = load(name), UPDATES[name]
    x, labels = task.train
    net = net_of(sequence(x[:1]).shape[2], task.classes, gradient)
    snnlib.prepare_(net[0], sequence(x[:200]), 0.1)
    optimizer = torch.optim.Adam(net.parameters(), lr=RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, updates)
    order, start = rows(len(x), BATCH, seed), time.process_time()
    for _ in range(updates):
        chosen = next(order)
        loss = nn.functional.cross_entropy(net(sequence(x[chosen])).mean(0) * 4, labels[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    seconds = time.process_time() - start
    with torch.no_grad():
        right = net(sequence(task.test[0])).mean(0).argmax(1) == task.test[1]
    return {"test": round(float(right.float().mean()), 4), "cpu_seconds": round(seconds, 1)}


def table(folder: Path, seeds: list[int], names: list[str]) -> None:
    """Prints the mean accuracy of each gradient over the seeds that are there."""
    for name, gradient in product(names, GRADIENTS):
        cells = [cell for seed in seeds if (cell := read(folder, (name, gradient, str(seed))))]
        if cells:
            mean, error = mean_and_error([100 * cell["test"] for cell in cells])
            seconds = sum(cell["cpu_seconds"] for cell in cells) / len(cells)
            print(
                f"{name:11} {gradient:13} {mean:.1f} +- {error:.1f} % over {len(cells)} seeds, {seconds:.0f} s"
            )


def main() -> None:
    parser = grid_parser(__doc__, "build/eprop", seeds=5)
    parser.add_argument("--tasks", nargs="*", default=[*UPDATES], choices=UPDATES)
    arguments = parser.parse_args()
    if not arguments.table:
        keys = [
            (name, gradient, str(seed))
            for seed, name, gradient in product(arguments.seeds, arguments.tasks, GRADIENTS)
        ]
        run_missing(arguments.folder, keys, lambda key: trained(key[0], key[1], int(key[2])))
    table(arguments.folder, arguments.seeds, arguments.tasks)


if __name__ == "__main__":
    main()
