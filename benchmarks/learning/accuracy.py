"""Accuracy on the same folds: the library's recipes and SpikingJelly.

    python benchmarks/learning/accuracy.py [--folds 5] [--epochs 15] [--seed 0 1 2] [--samples N] [--method NAME]
                                           [--json FILE]

Data: the N-MNIST copy in `$SNNLIB_DATA/nmnist_800`, training and test samples pooled; without `SNNLIB_DATA` the
embedded digits. The pool is split into folds, each with its share of every class; each fold is the test set once. All
methods (`accuracy_methods.py`) train the net 12C5p1-P2-64C5-P2-10 at T = 30 on the same folds with the same seed.

Accuracy is that after the last epoch; the best epoch's, chosen on the test fold, is printed beside it. Standard errors
are over folds and seeds; folds share training samples, so they are a little too small. Differences are paired by fold
and seed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from itertools import product
from pathlib import Path

from accuracy_methods import methods
from folds import fold_of_samples, mean_and_error, recordings, write_fold

import snnlib


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--seed", type=int, nargs="+", default=[0], help="of weights and order, not of folds")
    parser.add_argument("--samples", type=int, help="take about this many samples (default: all)")
    parser.add_argument("--method", action="append", choices=methods(), help="default: all that can run here")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    args = parser.parse_args()
    chosen = {name: run for name, run in methods().items() if name in (args.method or methods())}
    snnlib.keep_freed_memory()

    name, samples = recordings()
    samples = samples[:: max(len(samples) // (args.samples or len(samples)), 1)]
    fold = fold_of_samples([label for _, label in samples], args.folds)
    print(
        f"{name}: {len(samples)} samples, {args.folds} folds, {args.epochs} epochs, seed {args.seed}",
        flush=True,
    )
    last: dict[str, list[float]] = {method: [] for method in chosen}
    best: dict[str, list[float]] = {method: [] for method in chosen}
    seconds = dict.fromkeys(chosen, 0.0)
    for seed, test in product(args.seed, range(args.folds)):
        with tempfile.TemporaryDirectory() as folder:
            write_fold(Path(folder), samples, fold, test)
            for method, run in chosen.items():
                start = time.process_time()
                history = run(Path(folder), args.epochs, seed)
                seconds[method] += time.process_time() - start
                last[method].append(history[-1])
                best[method].append(max(history))
                print(
                    f"  fold {test + 1}  {method:22}  {history[-1]:6.1%}  best {max(history):6.1%}",
                    flush=True,
                )

    first = next(iter(chosen))
    runs = args.folds * len(args.seed)
    print(f"\n{'':22}  {'per fold':{8 * runs}}  mean +- error   best epoch  {first} ahead by  CPU s per fold")
    rows = []
    for method in chosen:
        mean, error = mean_and_error(last[method])
        ahead = [ours - theirs for ours, theirs in zip(last[first], last[method], strict=True)]
        lead, lead_error = mean_and_error(ahead)
        per_fold = "  ".join(f"{value:6.1%}" for value in last[method])
        print(
            f"{method:22}  {per_fold}  {mean:6.1%} +- {error:4.1%}  {statistics.mean(best[method]):10.1%}  "
            + (" " * 20 if method == first else f"{100 * lead:+6.1f} +- {100 * lead_error:3.1f} points")
            + f"  {seconds[method] / runs:8.0f}"
        )
        rows.append(
            {
                "method": method,
                "last": last[method],
                "best": best[method],
                "mean": mean,
                "error": error,
                f"{first}_ahead": lead,
                f"{first}_ahead_error": lead_error,
                "cpu_seconds": seconds[method],
            }
        )
    if args.json:
        settings = {"data": name, "samples": len(samples), "folds": args.folds, "epochs": args.epochs}
        args.json.write_text(json.dumps({**settings, "seed": args.seed, "methods": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
