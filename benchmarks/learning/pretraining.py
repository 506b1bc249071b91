"""Pretraining on simulated events: accuracy on N-MNIST with and without it, fold by fold.

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

import json
import math
import os
import shutil
import tempfile
import time
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from accuracy_methods import train_recipe
from cells import Key, grid_parser, read, run_missing
from folds import fold_of_samples, mean_and_error, recordings, write_fold

from snnlib.app.recipes import recipe
from snnlib.app.training import RunFolder
from snnlib.app.training.run import train_run
from snnlib.data import MNIST
from snnlib.files.atomic import write_bytes_atomically

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
        seconds: dict[str, Any] = {"cpu_seconds": time.process_time() - start, "resumed": resume}
        seconds["test"] = [row["test_accuracy"] for row in result.history]
        write_bytes_atomically(finished, json.dumps(seconds).encode())
    return out


def train_cell(folder: Path, seed: int, fold: int, method: str, threads: int) -> dict[str, Any]:
    """Accuracies of one cell after each epoch."""
    changes: dict[str, Any] = {"epochs": recipe("nmnist").settings["epochs"]}
    if method == "pretrained":
        changes = {"init_from": str(pretrain(folder, seed, threads)), **FINE_TUNING}
    _, samples = recordings()
    fold_of = fold_of_samples([label for _, label in samples], FOLDS)
    with tempfile.TemporaryDirectory(dir=folder) as made:
        write_fold(Path(made), samples, fold_of, fold - 1)
        start = time.process_time()
        history = train_recipe(Path(made), seed=seed, threads=threads, **changes)
    return {"test": history, "cpu_seconds": time.process_time() - start}


def key_of(seed: int, fold: int, method: str) -> Key:
    return f"seed{seed}", str(fold), method


def table(folder: Path, seeds: list[int], folds: list[int]) -> None:
    """Prints the accuracies that are there, then the paired difference of the methods."""
    ahead = []
    for fold in folds:
        pairs = []
        for seed in seeds:
            cells = [read(folder, key_of(seed, fold, method)) for method in METHODS]
            last = [cell["test"][-1] if cell else math.nan for cell in cells]
            print(f"fold {fold} seed {seed}  {METHODS[0]} {last[0]:.1%}  {METHODS[1]} {last[1]:.1%}")
            pairs += [last[0] - last[1]] if all(cells) else []
        # Folds share recordings and seeds share folds: the error is over folds, each the mean of its seeds.
        ahead += [sum(pairs) / len(pairs)] if pairs else []
    if ahead:
        lead, error = (100 * value for value in mean_and_error(ahead))
        print(f"{METHODS[0]} ahead by {lead:+.1f} +- {error:.1f} points, paired, {len(ahead)} folds")


def main() -> None:
    parser = grid_parser(__doc__, "build/pretraining", seeds=3)
    all_folds = range(1, FOLDS + 1)
    parser.add_argument("--folds", type=int, nargs="*", default=[*all_folds], choices=all_folds)
    parser.add_argument("--methods", nargs="*", default=METHODS, choices=METHODS)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    if not args.table and not os.environ.get("SNNLIB_DATA"):
        parser.error("SNNLIB_DATA: expected the folder with mnist and nmnist_800, got none")
    args.folder.mkdir(parents=True, exist_ok=True)
    cells = (
        {} if args.table else {key_of(*cell): cell for cell in product(args.seeds, args.folds, args.methods)}
    )
    run_missing(args.folder, cells, lambda key: train_cell(args.folder, *cells[key], args.threads))
    table(args.folder, args.seeds, args.folds)


if __name__ == "__main__":
    main()
