"""The recipe `nmnist` in integers and in C, fold by fold: accuracy, equal bits, memory and speed.

    python benchmarks/exchange/integers.py [--folds 5] [--only FOLD ...] [--epochs 15] [--bits 8] [--keep DIR]

Data and folds are those of `accuracy.py`. Each fold trains `snnlib train --recipe nmnist`, exports it with
`snnlib export c`, whose scales come from 100 training samples, and compiles and runs the program's own check: its
output beside the integer simulation's on all test samples, event by event and frame by frame, then its speed on one
core. `--keep` holds runs and programs in a folder, and takes runs that lie there instead of training again.
"""

from __future__ import annotations

import argparse
import re
import statistics
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import snnlib
from snnlib.app.recipes import recipe
from snnlib.app.training import RunFolder
from snnlib.app.training.exporting import export_run_to_c
from snnlib.app.training.run import train_run

sys.path.append(str(Path(__file__).parents[1] / "learning"))
from folds import check_folds, fold_of_samples, mean_and_error, recordings, write_fold


def trained(folder: Path, root: Path, epochs: int, seed: int) -> Path:
    """The run of a fold: a finished one that lies there, or a new one."""
    if not (folder / "checkpoints" / "last.ckpt").exists():
        config = recipe("nmnist").config(root=str(root), epochs=epochs, seed=seed)
        train_run(config, RunFolder.create(folder, config), progress=False)
    return folder


def checked(program: Path, rounds: int) -> tuple[int, float]:
    """Outputs that differ from the simulation's, and samples per second, of a program that compiles without warning."""
    command = ["cc", "-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-O3", "-march=native"]
    subprocess.run([*command, "-o", "check", "check.c", "net.c"], cwd=program, check=True)
    done = subprocess.run(
        ["./check", "vectors.bin", str(rounds)], cwd=program, capture_output=True, text=True, check=False
    )
    by_events, by_frames = map(int, re.findall(r"(\d+) by", done.stdout))
    return by_events + by_frames, float(re.findall(r"([\d.]+) samples per second", done.stdout)[0])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--only", type=int, nargs="*", help="run these folds alone, counted from 1")
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--bits", type=int, default=8, choices=(4, 8))
    parser.add_argument("--rounds", type=int, default=10, help="passes over the test samples for the speed")
    parser.add_argument("--keep", type=Path)
    args = parser.parse_args()
    check_folds(parser, args.only, args.folds)
    snnlib.keep_freed_memory()
    name, samples = recordings()
    fold = fold_of_samples([label for _, label in samples], args.folds)
    print(f"{name}: {len(samples)} samples, {args.folds} folds, {args.epochs} epochs, seed {args.seed}")
    lost, speeds = [], []
    with ExitStack() as stack:
        place = args.keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for test in range(args.folds):
            if args.only and test + 1 not in args.only:
                continue
            root = place / "data" / str(test)
            if not root.exists():
                write_fold(root, samples, fold, test)
            run, program = (
                trained(place / "runs" / str(test), root, args.epochs, args.seed),
                place / "c" / str(test),
            )
            options = {"weight_bits": args.bits}
            report, sizes = export_run_to_c(run, program, "last", options, (100, len(samples)), root)
            wrong, speed = checked(program, args.rounds)
            lost.append(report.accuracy - report.layers[-1].accuracy)
            speeds.append(speed)
            print(
                f"fold {test + 1}: float {report.accuracy:.2%}, int{args.bits} {report.layers[-1].accuracy:.2%}, "
                f"{wrong} outputs differ, {sizes['ram']} bytes of RAM, {sizes['flash']} of constants, "
                f"{speed:.0f} samples/s",
                flush=True,
            )
    mean, error = mean_and_error(lost)
    print(
        f"lost {100 * mean:.2f} +- {100 * error:.2f} points; median {statistics.median(speeds):.0f} samples/s"
    )


if __name__ == "__main__":
    main()
