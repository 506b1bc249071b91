"""Accuracy on the same folds: the library's recipe, the settings of its paper, and SpikingJelly.

    python benchmarks/accuracy.py [--folds 5] [--epochs 15] [--samples N] [--method NAME ...] [--json FILE]

Data: the N-MNIST copy in `$SNNLIB_DATA/nmnist_800`, training and test samples pooled; without `SNNLIB_DATA` the
embedded digits. The pool is split into folds, each with its share of every class; each fold is the test set once. All
methods train the net 12C5p1-P2-64C5-P2-10 at T = 30 on the same folds with the same seed:

- `recipe`: `snnlib train --recipe nmnist`, unchanged but for the data;
- `paper`: the NeurIPS 2022 code's settings on this library's layers: count loss (15 and 2 wanted), thresholds set for
  two spikes per neuron, AdamW at 5e-4, batches of 50, gradients clipped to norm 1, a cosine schedule by epoch;
- `spikingjelly`, `spikingjelly-plif`: convolutions, batch normalisation and LIF or PLIF neurons with tau 2, surrogate
  gradients, mean squared error of output rates, AdamW at 2e-3; skipped where SpikingJelly is not installed;
- `spikingjelly-augmented`: the first of these on training samples moved, turned and bent as the recipe does it.

Accuracy is that after the last epoch; the best epoch's, chosen on the test fold, is printed beside it. Standard errors
are over folds, which share training samples: a little too small. Differences are paired by fold.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

import snnlib
from snnlib.data import (
    NMNIST,
    EventDigits,
    FrameCache,
    ToFrames,
    stack_time_first,
    write_nmnist,
)
from snnlib.recipes import recipe
from snnlib.training import RunFolder
from snnlib.training.data_module import augmentation
from snnlib.training.run import train_run

RECIPE = "nmnist"
T = 30
# Test accuracy after each epoch, of a folder with Train/ and Test/.
Method = Callable[[Path, int, int], list[float]]


def recordings() -> tuple[str, list[tuple[np.ndarray, int]]]:
    """Name and pooled `(events, label)` of the data."""
    if "SNNLIB_DATA" in os.environ:
        root = Path(os.environ["SNNLIB_DATA"]) / "nmnist_800"
        parts: list[NMNIST] = [NMNIST(root, train) for train in (True, False)]
        return "N-MNIST", [sample for part in parts for sample in part]
    parts = [EventDigits(train=train) for train in (True, False)]
    return "embedded digits (SNNLIB_DATA is unset)", [sample for part in parts for sample in part]


def fold_of_samples(labels: list[int], folds: int) -> list[int]:
    """Fold of each sample: classes are dealt out one after the other, each in a random order."""
    generator = np.random.default_rng(0)
    order = generator.permutation(len(labels))
    by_class = sorted(order.tolist(), key=lambda sample: labels[sample])
    fold = [0] * len(labels)
    for place, sample in enumerate(by_class):
        fold[sample] = place % folds
    return fold


def write_fold(root: Path, samples: list[tuple[np.ndarray, int]], fold: list[int], test: int) -> None:
    """The pool as `Train/` and `Test/`, in the layout of N-MNIST."""
    for number, ((events, label), of_fold) in enumerate(zip(samples, fold, strict=True)):
        folder = root / ("Test" if of_fold == test else "Train") / str(label)
        folder.mkdir(parents=True, exist_ok=True)
        write_nmnist(folder / f"{number:05}.bin", events)


def train_recipe(root: Path, epochs: int, seed: int) -> list[float]:
    with tempfile.TemporaryDirectory() as folder:
        config = recipe(RECIPE).config(root=str(root), epochs=epochs, seed=seed)
        result = train_run(config, RunFolder.create(Path(folder), config), progress=False)
    return [row["test_accuracy"] for row in result.history]


def frames_of(root: Path, train: bool) -> FrameCache:
    return FrameCache(NMNIST(root, train, ToFrames(time_steps=T)), preload=True, progress=False)


def loaders(root: Path, batch_size: int, augment: bool = False) -> tuple[DataLoader, DataLoader]:
    """Training and test batches; the training samples augmented as in the recipe where asked for."""
    collate = augmentation(recipe(RECIPE).config(root=str(root))) if augment else stack_time_first
    return (
        DataLoader(frames_of(root, train=True), batch_size, shuffle=True, collate_fn=collate),
        DataLoader(frames_of(root, train=False), 50, collate_fn=stack_time_first),
    )


@torch.no_grad()
def accuracy(net: nn.Module, batches: Iterable[tuple[Tensor, Tensor]]) -> float:
    """Share of samples whose neuron fires most; earlier spikes count a little more and so break ties."""
    net.eval()
    hits = []
    for frames, labels in batches:
        spikes = net(frames)
        scores = snnlib.readout.spike_count(spikes) + snnlib.readout.time_weighted_count(spikes) / 10
        hits.append(scores.argmax(1) == labels)
    net.train()
    return float(torch.cat(hits).float().mean())


def train_paper(root: Path, epochs: int, seed: int) -> list[float]:
    torch.manual_seed(seed)
    train, test = loaders(root, batch_size=50)
    net = snnlib.fuse(snnlib.models.nmnist_net(tau_grad=3.0, input_grad_scale=0.85))
    layers = [layer for layer in net if isinstance(layer, snnlib.nn.SRMLayer)]
    for layer in layers:
        # torch's initialisation of convolutions and linear layers; their scale then goes into the thresholds.
        nn.init.kaiming_uniform_(layer.weight, a=math.sqrt(5))
        initial = layer.weight.detach().clone()
        standardize = snnlib.WeightStandardization(len(initial), bias=True)
        nn.utils.parametrize.register_parametrization(layer, "weight", standardize)
        with torch.no_grad():
            layer.parametrizations["weight"].original.copy_(initial)
            standardize.scale.fill_(1.0)
            standardize.bias.zero_()
    set_thresholds(net, next(iter(train))[0], spikes=2.0)
    optimizer = torch.optim.AdamW(net.parameters(), lr=5e-4, weight_decay=5e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    history = []
    for _ in range(epochs):
        for frames, labels in train:
            with snnlib.nn.supervised_spikes(layers[-1], labels):
                counts = snnlib.readout.spike_count(net(frames))
            loss = snnlib.losses.spike_count_loss(
                counts, labels, desired=15, undesired=2, one_sided=True, reduction="sum"
            )
            optimizer.zero_grad()
            (loss / T).backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
        schedule.step()
        history.append(accuracy(net, test))
    return history


@torch.no_grad()
def set_thresholds(net: nn.Sequential, frames: Tensor, spikes: float) -> None:
    """Layer by layer the threshold at which neurons fire `spikes` times per train on a batch."""
    x = frames
    for layer in net:
        if isinstance(layer, snnlib.nn.SRMLayer):
            low, high = 1e-3, 1e4
            for _ in range(20):
                layer.threshold.fill_(math.sqrt(low * high))
                if float(layer(x).mean()) * T > spikes:
                    low = float(layer.threshold)
                else:
                    high = float(layer.threshold)
        x = layer(x)


def train_spikingjelly(
    root: Path, epochs: int, seed: int, neuron: str = "LIFNode", augment: bool = False
) -> list[float]:
    from spikingjelly.activation_based import functional, layer  # noqa: PLC0415
    from spikingjelly.activation_based import neuron as neurons  # noqa: PLC0415

    torch.manual_seed(seed)
    train, test = loaders(root, batch_size=50, augment=augment)

    def spiking() -> nn.Module:
        constants = {"tau": 2.0} if neuron == "LIFNode" else {"init_tau": 2.0}
        return getattr(neurons, neuron)(**constants, detach_reset=True)

    class Fresh(nn.Sequential):
        """Neurons there keep their state from call to call until it is reset."""

        def forward(self, frames: Tensor) -> Tensor:
            functional.reset_net(self)
            return super().forward(frames)

    net = Fresh(
        *(
            layer.Conv2d(2, 12, 5, padding=1, bias=False),
            layer.BatchNorm2d(12),
            spiking(),
            layer.AvgPool2d(2),
        ),
        *(layer.Conv2d(12, 64, 5, bias=False), layer.BatchNorm2d(64), spiking(), layer.AvgPool2d(2)),
        *(layer.Flatten(), layer.Linear(2304, 10), spiking()),
    )
    functional.set_step_mode(net, "m")
    optimizer = torch.optim.AdamW(net.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    history = []
    for _ in range(epochs):
        for frames, labels in train:
            wanted = nn.functional.one_hot(labels, 10).float()
            loss = nn.functional.mse_loss(net(frames).mean(0), wanted)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        schedule.step()
        history.append(accuracy(net, test))
    return history


def methods() -> dict[str, Method]:
    """All methods, or those that can run here; the first is the one that others are compared with."""
    here: dict[str, Method] = {"recipe": train_recipe, "paper": train_paper}
    if importlib.util.find_spec("spikingjelly"):
        here |= {
            "spikingjelly": train_spikingjelly,
            "spikingjelly-plif": lambda *run: train_spikingjelly(*run, neuron="ParametricLIFNode"),
            "spikingjelly-augmented": lambda *run: train_spikingjelly(*run, augment=True),
        }
    return here


def mean_and_error(values: list[float]) -> tuple[float, float]:
    """Mean and its standard error; NaN of one value."""
    error = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    return statistics.mean(values), error


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--seed", type=int, default=0, help="of weights and order; folds stay the same")
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
    for test in range(args.folds):
        with tempfile.TemporaryDirectory() as folder:
            write_fold(Path(folder), samples, fold, test)
            for method, run in chosen.items():
                start = time.process_time()
                history = run(Path(folder), args.epochs, args.seed)
                seconds[method] += time.process_time() - start
                last[method].append(history[-1])
                best[method].append(max(history))
                print(
                    f"  fold {test + 1}  {method:22}  {history[-1]:6.1%}  best {max(history):6.1%}",
                    flush=True,
                )

    first = next(iter(chosen))
    print(
        f"\n{'':22}  {'per fold':{8 * args.folds}}  mean +- error   best epoch  {first} ahead by  CPU s per fold"
    )
    rows = []
    for method in chosen:
        mean, error = mean_and_error(last[method])
        ahead = [ours - theirs for ours, theirs in zip(last[first], last[method], strict=True)]
        lead, lead_error = mean_and_error(ahead)
        per_fold = "  ".join(f"{value:6.1%}" for value in last[method])
        print(
            f"{method:22}  {per_fold}  {mean:6.1%} +- {error:4.1%}  {statistics.mean(best[method]):10.1%}  "
            + (" " * 20 if method == first else f"{100 * lead:+6.1f} +- {100 * lead_error:3.1f} points")
            + f"  {seconds[method] / args.folds:8.0f}"
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
