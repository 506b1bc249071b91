"""Where does the loss that `prepare_` advises learn, and does a net that it fails say so? Two grids of short trainings.

    python benchmarks/learning/first_loss.py [--grid depth batch] [--neuron NAME ...] [--seeds 0] [--within SECONDS]
                                    [--file FILE]
    python benchmarks/learning/first_loss.py --page

A cell trains a net for 116 updates on the embedded digits, on one thread, with `prepare_` on a batch of training,
`count_cross_entropy` at the report's `logit_scale`, and its learning rate. `depth`: neuron x 2, 4, 6 layers x 10, 30,
100 steps, in batches of 25 with Adam. `batch`: neuron x batches of 4, 25, 256 x Adam, AdamW, SGD, two layers, 30 steps;
SGD after `prepare_(gain=False)`. Every cell is a row of FILE; rows that are there are not run again, and no cell is
begun after `--within` seconds. `--page` draws them into docs/measurements/first-loss.md.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import torch
from cells import PAGE, RESULTS, redraw
from stress import accuracy, warnings_kept
from tasks import load
from timed import rows

import snnlib
from snnlib.inspect.environment import processor_name
from snnlib.neurons import ALIF, LIF, CubaLIF, Neuron

FILE = RESULTS / "first_loss.csv"
NETS = {
    2: "12C5s2p1-P2-32C3-P2-10",
    4: "12C5s2p1-P2-32C3p1-32C3-P2-10",
    6: "12C5s2p1-P2-32C3p1-32C3-P2-64-64-10",
}
NEURONS: dict[str, Neuron | None] = {
    "LIF": LIF(2.0),
    "CubaLIF": CubaLIF(8.0, 4.0),
    "ALIF": ALIF(8.0, 20.0),
    "graded": LIF(2.0, levels=4),
    "SRM": None,
}
STEPS, BATCHES, OPTIMIZERS, UPDATES = (10, 30, 100), (4, 25, 256), ("Adam", "AdamW", "SGD"), 116
# Grid, neuron, layers, steps, batch, optimiser, seed.
Key = tuple[str, str, int, int, int, str, int]
FIELDS = [
    "grid",
    "neuron",
    "layers",
    "steps",
    "batch",
    "optimizer",
    "seed",
    "accuracy",
    "first_loss",
    "last_loss",
]
FIELDS += ["seconds", "processor", "warnings"]
# Accuracy in % below which a cell has to warn; and points below its neuron's best from which on it may.
FAILED, NEAR = 30.0, 5.0


def grid(name: str, neuron: str, seed: int) -> Iterator[Key]:
    """Yields the cells of a neuron in a grid."""
    if name == "depth":
        yield from ((name, neuron, layers, steps, 25, "Adam", seed) for layers, steps in product(NETS, STEPS))
    else:
        yield from ((name, neuron, 2, 30, batch, kind, seed) for batch, kind in product(BATCHES, OPTIMIZERS))


def run(key: Key) -> dict[str, object]:
    """Trains the net of a cell; returns its row."""
    _, neuron, layers, steps, batch, kind, seed = key
    task = load("digits" if steps == 30 else f"digits-{steps}")
    samples, labels = task.train
    losses: list[float] = []
    warned: list[dict[str, object]] = []
    torch.manual_seed(seed)
    began = time.process_time()
    with warnings_kept(warned, lambda: len(losses)):
        options = {"tau_m": 8.0, "tau_s": 4.0} if NEURONS[neuron] is None else {"neuron": NEURONS[neuron]}
        net = snnlib.models.from_notation(NETS[layers], (2, 34, 34), **options)
        batches = rows(len(samples), batch, seed)
        report = snnlib.prepare_(net, task.batch(samples[next(batches)]), gain=kind != "SGD")
        snnlib.fuse_(net)
        momentum = {"momentum": 0.9} if kind == "SGD" else {}
        optimizer = getattr(torch.optim, kind)(net.parameters(), lr=report.learning_rate, **momentum)
        while len(losses) < UPDATES:
            chosen = next(batches)
            counts = snnlib.readout.spike_count(net(task.batch(samples[chosen])))
            loss = snnlib.losses.count_cross_entropy(counts, labels[chosen], scale=report.logit_scale)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()))
    found = (
        round(100 * accuracy(net, task), 1),
        round(losses[0], 2),
        round(statistics.mean(losses[-10:]), 2),
        round(time.process_time() - began, 1),
        processor_name(),
        " | ".join(f"update {one['update']}: {one['text']}" for one in warned),
    )
    return dict(zip(FIELDS, (*key, *found), strict=True))


def read(file: Path) -> dict[Key, dict[str, str]]:
    """Returns the rows that are there, by cell."""
    if not file.exists():
        return {}
    with file.open(encoding="utf-8", newline="") as lines:
        found = list(csv.DictReader(lines))
    kinds = (str, str, int, int, int, str, int)
    return {
        tuple(kind(row[name]) for kind, name in zip(kinds, FIELDS, strict=False)): row  # type: ignore[misc]
        for row in found
    }


def tables(found: dict[Key, dict[str, str]]) -> str:
    """Returns counts in words and both grids as Markdown, seeds in a field."""
    best = {
        (key[0], key[1], key[6]): max(
            float(row["accuracy"]) for at, row in found.items() if at[::6] == key[::6] and at[1] == key[1]
        )
        for key in found
    }
    failed = [row for row in found.values() if float(row["accuracy"]) < FAILED]
    near = [
        row for key, row in found.items() if float(row["accuracy"]) >= best[key[0], key[1], key[6]] - NEAR
    ]
    text = [
        f"Of {len(found)} cells {len(failed)} end below {FAILED:g} %, of which "
        f"{sum(not row['warnings'] for row in failed)} without a warning;\nof the {len(near)} within "
        f"{NEAR:g} points of the best of their neuron, grid and seed "
        f"{sum(bool(row['warnings']) for row in near)} warned."
    ]
    for name, columns in {
        "depth": [f"{layers} layers, T {steps}" for layers, steps in product(NETS, STEPS)],
        "batch": [f"N {batch}, {kind}" for batch, kind in product(BATCHES, OPTIMIZERS)],
    }.items():
        text += ["", "| neuron | " + " | ".join(columns) + " |", "| --- |" + " --- |" * len(columns)]
        for neuron in NEURONS:
            by_seed = [list(grid(name, neuron, seed)) for seed in sorted({key[6] for key in found})]
            shown = (
                ", ".join(_shown(found[key]) for key in keys if key in found)
                for keys in zip(*by_seed, strict=True)
            )
            text.append(f"| {neuron} | " + " | ".join(shown) + " |")
    return "\n".join(text)


def _shown(row: dict[str, str]) -> str:
    failed = float(row["accuracy"]) < FAILED
    return (f"**{row['accuracy']}**" if failed else row["accuracy"]) + " w" * bool(row["warnings"])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--grid", nargs="+", choices=["depth", "batch"], default=["depth", "batch"])
    parser.add_argument("--neuron", nargs="+", choices=NEURONS, default=list(NEURONS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument(
        "--within", type=float, default=float("inf"), help="begin no cell after so many seconds"
    )
    parser.add_argument("--file", type=Path, default=FILE)
    parser.add_argument("--page", action="store_true", help="draw the rows into the page, and run nothing")
    args = parser.parse_args()
    found, began = read(args.file), time.monotonic()
    if args.page:
        redraw(PAGE.with_name("first-loss.md"), "first-loss", tables(found))
        return
    torch.set_num_threads(1)
    for seed, name, neuron in product(args.seeds, args.grid, args.neuron):
        for key in grid(name, neuron, seed):
            if key in found or time.monotonic() - began > args.within:
                continue
            row = run(key)
            is_new = not args.file.exists()
            with args.file.open("a", encoding="utf-8", newline="") as file:
                writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
                if is_new:
                    writer.writeheader()
                writer.writerow(row)
            print(", ".join(map(str, row.values())), flush=True)


if __name__ == "__main__":
    main()
