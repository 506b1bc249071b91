"""What `snnlib train --operations-weight` saves and costs: the recipe `nmnist` with and without, fold by fold.

    python benchmarks/learning/operations.py [--weight 3 ...] [--folds 5] [--seed 0 ...] [--neuron srm] [--json FILE]

Data and folds are those of `accuracy.py`. Each fold and seed trains the net 12C5p1-P2-64C5-P2-10 without the loss and
with each weight of it. Operations are the effective ones of `snnlib.profile` per test sample: by NeuroBench's
definition those of the first layer, which reads events, are accumulations, the others, behind average pools,
multiplications with accumulation. The first layer's depend on the data alone. Differences of accuracy after the last
epoch are paired by fold and seed; their standard errors are over folds, of means over seeds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from accuracy_methods import LIF
from folds import check_folds, fold_of_samples, mean_and_error, recordings, write_fold

import snnlib
from snnlib.app.recipes import recipe
from snnlib.app.training import RunFolder
from snnlib.app.training.profiling import run_profile
from snnlib.app.training.run import train_run

NEURONS: dict[str, dict[str, Any]] = {
    "srm": {},
    "lif": {**LIF, "surrogate": "triangle"},
}


def trained(root: Path, weight: float, seed: int, epochs: int, neuron: str) -> dict[str, float]:
    """Accuracy after the last epoch, and effective operations per test sample."""
    start = time.process_time()
    config = recipe("nmnist").config(
        root=str(root), epochs=epochs, seed=seed, operations_weight=weight, **NEURONS[neuron]
    )
    with tempfile.TemporaryDirectory() as folder:
        run = RunFolder.create(Path(folder), config)
        result = train_run(config, run, progress=False)
        counted = run_profile(config, run, "last", None, progress=False)
    return {
        "accuracy": result.test.accuracy,
        "operations": (counted.total.acs + counted.total.macs) / counted.samples,
        "first_layer": counted.total.acs / counted.samples,
        "seconds": time.process_time() - start,
    }


def by_fold(values: dict[tuple[int, int], float]) -> list[float]:
    """The mean over seeds of every fold, of values by fold and seed."""
    folds = sorted({fold for fold, _ in values})
    return [statistics.mean(value for (fold, _), value in values.items() if fold == of) for of in folds]


def summary(runs: dict[float, dict[tuple[int, int], dict[str, float]]]) -> None:
    """A row per weight: accuracy, its difference to no weight, operations and their cut."""
    plain = runs[0.0]
    print(
        f"\n{'weight':>6}  {'accuracy':>14}  {'gained, points':>14}  {'operations':>10}  {'cut':>5}  "
        f"{'behind layer 1':>14}"
    )
    for weight, found in runs.items():
        accuracy, error = mean_and_error(by_fold({key: run["accuracy"] for key, run in found.items()}))
        gained, gained_error = mean_and_error(
            by_fold({key: run["accuracy"] - plain[key]["accuracy"] for key, run in found.items()})
        )
        total, first = (
            [statistics.mean(run[what] for run in each.values()) for each in (plain, found)]
            for what in ("operations", "first_layer")
        )
        behind = (total[0] - first[0]) / (total[1] - first[1])
        print(
            f"{weight:6g}  {accuracy:6.2%} +- {error:4.2%}  {100 * gained:+6.2f} +- {100 * gained_error:4.2f}  "
            f"{total[1]:10.0f}  {total[0] / total[1]:5.1f}  {behind:14.1f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--weight", type=float, nargs="+", default=[3.0])
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--only", type=int, nargs="*", help="run these folds alone, counted from 1")
    parser.add_argument("--seed", type=int, nargs="+", default=[0])
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--neuron", choices=NEURONS, default="srm")
    parser.add_argument("--json", type=Path, help="also write the figures of every run to this file")
    args = parser.parse_args()
    check_folds(parser, args.only, args.folds)
    snnlib.keep_freed_memory()
    name, samples = recordings()
    fold = fold_of_samples([label for _, label in samples], args.folds)
    print(
        f"{name}: {len(samples)} samples, {args.folds} folds, {args.epochs} epochs, {args.neuron}", flush=True
    )
    runs: dict[float, dict[tuple[int, int], dict[str, float]]] = {
        0.0: {},
        **{weight: {} for weight in args.weight},
    }
    for seed in args.seed:
        for test in range(args.folds):
            if args.only and test + 1 not in args.only:
                continue
            with tempfile.TemporaryDirectory() as root:
                write_fold(Path(root), samples, fold, test)
                for weight, found in runs.items():
                    run = trained(Path(root), weight, seed, args.epochs, args.neuron)
                    found[test, seed] = run
                    print(
                        f"  fold {test + 1} seed {seed} weight {weight:g}: {run['accuracy']:.2%}, "
                        f"{run['operations']:.0f} operations, {run['seconds']:.0f} s",
                        flush=True,
                    )
    summary(runs)
    if args.json:
        rows = [
            {"weight": weight, "fold": test + 1, "seed": seed, **run}
            for weight, found in runs.items()
            for (test, seed), run in found.items()
        ]
        args.json.write_text(json.dumps({"data": name, "epochs": args.epochs, "runs": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
