"""Pretraining on simulated events: accuracy on N-MNIST with and without it, fold by fold.

    python benchmarks/learning/pretraining.py [--folder build/pretraining] [--seeds 0 1 2] [--folds 1 2 3 4 5]
        [--recordings 100 25 10 0] [--pretrained RUN] [--table]

Pretraining: recipe `mnist-events` on MNIST's training images 1001 to 60000, once per seed, or once for all seeds of
fine-tuning with `--pretrained`. N-MNIST's recordings carry the numbers of MNIST's images, and those in
`$SNNLIB_DATA/nmnist_800` are of the first 1000, so no image of a recording is seen before. Then recipe `nmnist` is
trained on each fold of `accuracy.py` from that run's last weights, for a third of its epochs at a quarter of its
learning rate (`pretrained`), and as it stands (`scratch`). A fold leaves about 64 recordings of a class to train;
`--recordings` bounds the number of each class, whose first recordings are taken, and 0 tests the pretrained net as it
is. The accuracy after the last epoch on the fold's 160 recordings counts; differences are paired by fold.

Every cell (seed, fold, recordings, method) is one JSON in the folder; a cell that is there is not run again, and
pretraining goes on after its last whole epoch. `--table` prints what is there. `SNNLIB_DATA` names the folder with
`mnist` and `nmnist_800`; 59000 images take 1.5 GB on disk and 4 GB of memory.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from argparse import Namespace
from collections import Counter
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accuracy_methods import train_recipe
from cells import Key, grid_parser, read, run_missing
from folds import fold_of_samples, mean_and_error, recordings, write_fold

from snnlib.app.recipes import recipe
from snnlib.app.training import RunFolder
from snnlib.app.training.data_module import EventData
from snnlib.app.training.load import load_module
from snnlib.app.training.run import train_run
from snnlib.data import MNIST
from snnlib.files.atomic import write_bytes_atomically

# Number of MNIST's training images that some recording may show.
RECORDED = 1000
METHODS = ("pretrained", "scratch")
FOLDS = 5
FINE_TUNING = {"lr": 5e-3, "epochs": 5}
Sample = tuple[np.ndarray, int]


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


def train_cell(options: Namespace, seed: int, fold: int, recorded: int, method: str) -> dict[str, Any] | None:
    """Accuracies of one cell after each epoch; None where there is nothing to train."""
    changes: dict[str, Any] = {"epochs": recipe("nmnist").settings["epochs"]}
    start_of = None
    if method == "pretrained":
        start_of = options.pretrained or pretrain(options.folder, seed, options.threads)
        changes = {"init_from": str(start_of), **FINE_TUNING}
    _, samples = recordings()
    fold_of = fold_of_samples([label for _, label in samples], FOLDS)
    with tempfile.TemporaryDirectory(dir=options.folder) as made:
        write_fold(Path(made), *fewer(samples, fold_of, fold - 1, max(recorded, 1)), fold - 1)
        start = time.process_time()
        if recorded:
            history = train_recipe(Path(made), seed=seed, threads=options.threads, **changes)
        elif start_of is None:
            return None
        else:
            history = [tested(Path(made), start_of)]
    return {"test": history, "cpu_seconds": time.process_time() - start}


def fewer(samples: list[Sample], fold_of: list[int], test: int, most: int) -> tuple[list[Sample], list[int]]:
    """The test fold, and the first samples of each class in the other folds."""
    kept: Counter[int] = Counter()
    chosen = []
    for number, (_, label) in enumerate(samples):
        kept[label] += fold_of[number] != test
        if fold_of[number] == test or kept[label] <= most:
            chosen.append(number)
    return [samples[number] for number in chosen], [fold_of[number] for number in chosen]


@torch.no_grad()
def tested(root: Path, start_of: Path) -> float:
    """Accuracy of a run's last weights on the test set of a fold."""
    run, config = RunFolder.open(start_of, "pretrained")
    net = load_module(config, run, "last").net.eval()
    data = EventData(recipe("nmnist").config(root=str(root)))
    data.setup("fit")
    right = [
        net(frames.float()).mean(0).argmax(-1) == labels for frames, labels, *_ in data.val_dataloader()[0]
    ]
    return float(torch.cat(right).float().mean())


def key_of(seed: int, fold: int, recorded: int, method: str) -> Key:
    return f"seed{seed}", str(fold), str(recorded), method


def table(options: Namespace) -> None:
    """Prints the accuracies that are there by recordings of a class, then the paired difference of the methods."""
    for recorded in options.recordings:
        means: dict[str, list[float]] = {}
        for fold, method in product(options.folds, METHODS):
            cells = [read(options.folder, key_of(seed, fold, recorded, method)) for seed in options.seeds]
            found = [cell["test"][-1] for cell in cells if cell]
            # Folds share recordings and seeds share folds: the error is over folds, each the mean of its seeds.
            means.setdefault(method, []).extend([sum(found) / len(found)] if found else [])
        for method, values in means.items():
            if values:
                mean, error = (100 * value for value in mean_and_error(values))
                folds = ", ".join(f"{value:.1%}" for value in values)
                print(f"{recorded} of a class, {method}: {mean:.1f} +- {error:.1f} % ({folds})")
        pairs = [one - other for one, other in zip(*means.values(), strict=False)]
        if pairs:
            lead, error = (100 * value for value in mean_and_error(pairs))
            print(f"{recorded} of a class: {METHODS[0]} ahead by {lead:+.1f} +- {error:.1f} points, paired")


def main() -> None:
    parser = grid_parser(__doc__, "build/pretraining", seeds=3)
    all_folds = range(1, FOLDS + 1)
    parser.add_argument("--folds", type=int, nargs="*", default=[*all_folds], choices=all_folds)
    parser.add_argument("--methods", nargs="*", default=METHODS, choices=METHODS)
    parser.add_argument("--recordings", type=int, nargs="*", default=[100], metavar="N")
    parser.add_argument("--pretrained", type=Path, metavar="RUN", help="one pretrained run for all seeds")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    if not options.table and not os.environ.get("SNNLIB_DATA"):
        parser.error("SNNLIB_DATA: expected the folder with mnist and nmnist_800, got none")
    options.folder.mkdir(parents=True, exist_ok=True)
    grid = product(options.seeds, options.folds, options.recordings, options.methods)
    cells = {} if options.table else {key_of(*cell): cell for cell in grid}
    run_missing(options.folder, cells, lambda key: train_cell(options, *cells[key]))
    table(options)


if __name__ == "__main__":
    main()
