"""What pretraining on simulated events brings: N-MNIST with and without, fold by fold.

    python benchmarks/learning/pretraining.py [--folder build/pretraining] [--seeds 0 1 2] [--folds 1 2 3 4 5] [--table]

Pretraining: recipe `mnist-events` on MNIST's training images 1001 to 60000, once per seed. N-MNIST's recordings carry
the numbers of MNIST's images, and those in `$SNNLIB_DATA/nmnist_800` are of the first 1000, so no image of a recording
is seen before. Then recipe `nmnist` is trained on each fold of `accuracy.py` from that run's last weights, for a third
of its epochs at a quarter of its learning rate (`pretrained`), and as it stands (`scratch`). Accuracy is that after the
last epoch on the fold's 160 recordings; differences are paired by fold.

Every cell (seed, fold, method) is one JSON in the folder; a cell that is there is not run again, and pretraining goes
on after its last whole epoch. `--table` prints what is there. `SNNLIB_DATA` names the folder with `mnist` and
`nmnist_800`; 59000 images take 1.5 GB on disk and 4 GB of memory.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from folds import check_folds, fold_of_samples, mean_and_error, recordings, write_fold

from snnlib.app.recipes import recipe
from snnlib.app.training import RunFolder
from snnlib.app.training.run import train_run
from snnlib.data import MNIST
from snnlib.data.atomic import write_bytes_atomically

# Of MNIST's training images, those that some recording may show.
RECORDED = 1000
METHODS = ("pretrained", "scratch")
FOLDS = 5
FINE_TUNING = {"lr": 5e-3, "epochs": 5}


def unrecorded_images(folder: Path) -> Path:
    """A copy of MNIST without the images that were recorded, in its own format."""
    source, target = Path(os.environ["SNNLIB_DATA"]) / "mnist", folder / "mnist"
    if not target.is_dir():
        with tempfile.TemporaryDirectory(dir=folder) as made:
            data = MNIST(source)
            images = data.images[RECORDED:, 0].numpy()
            for name, array in (
                ("train-images-idx3-ubyte", images),
                ("train-labels-idx1-ubyte", data.targets[RECORDED:].numpy().astype(np.uint8)),
            ):
                head = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes()
                (Path(made) / name).write_bytes(head + array.tobytes())
            for path in source.glob("t10k-*"):
                shutil.copy(path, made)
            shutil.copytree(made, target)
    return target


def pretrain(folder: Path, seed: int, threads: int) -> Path:
    """The run of a seed, trained to its end."""
    out = folder / f"pretrained-seed{seed}"
    finished = out / "seconds.json"
    if not finished.is_file():
        config = recipe("mnist-events").config(
            root=str(unrecorded_images(folder)), seed=seed, threads=threads
        )
        resume = (out / "config.json").is_file()
        run = RunFolder.open(out, "folder")[0] if resume else RunFolder.create(out, config)
        start = time.process_time()
        result = train_run(config, run, resume=resume, progress=False)
        seconds = {"cpu_seconds": time.process_time() - start, "resumed": resume}
        write(finished, {**seconds, "test": [row["test_accuracy"] for row in result.history]})
    return out


def train_cell(folder: Path, seed: int, fold: int, method: str, threads: int) -> dict[str, Any]:
    """Accuracies of one cell after each epoch."""
    changes = (
        {"init_from": str(pretrain(folder, seed, threads)), **FINE_TUNING} if method == "pretrained" else {}
    )
    _, samples = recordings()
    fold_of = fold_of_samples([label for _, label in samples], FOLDS)
    with tempfile.TemporaryDirectory(dir=folder) as made:
        root, out = Path(made) / "data", Path(made) / "run"
        write_fold(root, samples, fold_of, fold - 1)
        config = recipe("nmnist").config(root=str(root), seed=seed, threads=threads, **changes)
        start = time.process_time()
        result = train_run(config, RunFolder.create(out, config), progress=False)
    history = [row["test_accuracy"] for row in result.history]
    return {
        "seed": seed,
        "fold": fold,
        "method": method,
        "test": history,
        "cpu_seconds": time.process_time() - start,
    }


def write(path: Path, content: dict[str, Any]) -> None:
    write_bytes_atomically(path, (json.dumps(content, indent=1) + "\n").encode())


def table(folder: Path) -> None:
    """Prints what is there: a row per seed and method, then the paired difference."""
    last: dict[tuple[int, int, str], float] = {}
    for path in sorted(folder.glob("seed*.json")):
        cell = json.loads(path.read_text())
        last[cell["seed"], cell["fold"], cell["method"]] = cell["test"][-1]
    for seed in sorted({seed for seed, _, _ in last}):
        for method in METHODS:
            of_fold = [last.get((seed, fold, method)) for fold in range(1, FOLDS + 1)]
            found = [value for value in of_fold if value is not None]
            shown = "  ".join("     -" if value is None else f"{value:6.1%}" for value in of_fold)
            mean = mean_and_error(found) if found else (float("nan"),) * 2
            print(f"seed {seed}  {method:10}  {shown}  mean {mean[0]:.1%} +- {mean[1]:.1%}")
    # Folds share recordings and seeds share folds: the error is over folds, each the mean of its seeds.
    ahead = []
    for fold in range(1, FOLDS + 1):
        both = [
            last[seed, fold, "pretrained"] - last[seed, fold, "scratch"]
            for seed, of, method in last
            if of == fold and method == "pretrained" and (seed, fold, "scratch") in last
        ]
        ahead += [sum(both) / len(both)] if both else []
    if ahead:
        lead, error = mean_and_error(ahead)
        print(
            f"pretrained ahead by {100 * lead:+.1f} +- {100 * error:.1f} points, paired, {len(ahead)} folds"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, default=Path("build/pretraining"))
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1, 2], metavar="SEED")
    parser.add_argument("--folds", type=int, nargs="*", default=[*range(1, FOLDS + 1)], metavar="FOLD")
    parser.add_argument("--methods", nargs="*", default=METHODS, choices=METHODS)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--table", action="store_true", help="print what is there and train nothing")
    args = parser.parse_args()
    check_folds(parser, args.folds, FOLDS)
    if not args.table and not os.environ.get("SNNLIB_DATA"):
        parser.error("SNNLIB_DATA: expected the folder with mnist and nmnist_800, got none")
    args.folder.mkdir(parents=True, exist_ok=True)
    cells = [(seed, fold, method) for seed in args.seeds for fold in args.folds for method in args.methods]
    for seed, fold, method in [] if args.table else cells:
        path = args.folder / f"seed{seed}-fold{fold}-{method}.json"
        if not path.is_file():
            cell = train_cell(args.folder, seed, fold, method, args.threads)
            write(path, cell)
            print(f"seed {seed} fold {fold} {method}: {cell['test'][-1]:.1%}", flush=True)
    table(args.folder)


if __name__ == "__main__":
    main()
