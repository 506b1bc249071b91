"""Does every loss train? One net, one initialisation, the embedded digits: a table with one row per loss.

    python benchmarks/learning/losses.py [--net 12C5s2p1-64C5s2-10] [--epochs 10] [--seed 0] [--loss count ...]

Calibration and schedule are those of `snnlib train`, without augmentation and with batches of 50; only the loss and,
where the table says so, its own numbers differ. Strides in the place of pooling make the default net five times as fast
as the published one. Every run starts from the same weights before calibration and sees the samples in the same order.
Accuracy is the last epoch's on the 360 test samples (standard error about 1.5 points at 90 %), not the best. Spikes are
per output neuron and test sample: over the whole sequence, and up to the decision, which for first-spike is the first
output spike of the sample and for all others the end of the sequence.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from snnlib.app.training import RunFolder, TrainConfig
from snnlib.app.training.objective import LOSSES
from snnlib.app.training.run import TrainResult, train_run

# Samples as they are: in a few epochs a loss shows more of what it can do.
PLAIN: dict[str, Any] = {
    "batch_size": 50,
    "weight_decay": 0.01,
    "tau_grad": None,
    "shift": 0,
    "rotate": 0.0,
    "warp": 0.0,
}
# What a loss needs beside its name, where that is not the default.
SETTINGS: dict[str, dict[str, Any]] = {
    # A wanted spike of another class would be pulled forward, and count.
    "spike-time": {"undesired": 0},
    # Before the first output spike only early hidden spikes count: there have to be some.
    "first-spike": {"target_rate": 0.03},
}


def spikes_per_output(result: TrainResult) -> tuple[float, float]:
    """Mean spikes per output neuron of a test sample: in all, and up to the decision."""
    module, whole, decided, samples = result.module, 0.0, 0.0, 0
    for frames, _ in result.data.val_dataloader():
        with torch.no_grad():
            spikes: Tensor = module.net(frames.float())
        whole += float(spikes.sum())
        if module.config.loss == "first-spike":
            # True from the step after the sample's first output spike.
            after = spikes.amax(2, keepdim=True).cumsum(0).roll(1, 0) > 0
            after[0] = False
            spikes = spikes.masked_fill(after, 0)
        decided += float(spikes.sum())
        samples += spikes.shape[1] * spikes.shape[2]
    return whole / samples, decided / samples


def measure(loss: str, options: dict[str, Any]) -> dict[str, Any]:
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        config = TrainConfig(loss=loss, **PLAIN, **options, **SETTINGS.get(loss, {}))
        result = train_run(config, RunFolder.create(Path(folder), config), progress=False)
    whole, decided = (None, None) if loss == "tet" else spikes_per_output(result)
    return {
        "loss": loss,
        "test_accuracy": result.history[-1]["test_accuracy"],
        "train_accuracy": result.history[-1]["train_accuracy"],
        "output_spikes": whole,
        "output_spikes_to_decision": decided,
        "epochs": config.epochs,
        "seconds": time.perf_counter() - start,
        "settings": SETTINGS.get(loss, {}),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--net", default="12C5s2p1-64C5s2-10", help="layers in the papers' notation")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--loss", action="append", choices=LOSSES, help="default: all")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    args = parser.parse_args()
    options = {"net": args.net, "epochs": args.epochs, "seed": args.seed}
    rows = [measure(loss, options) for loss in args.loss or LOSSES]
    print(f"{'loss':16}{'test':>8}{'train':>8}{'spikes':>8}{'to decision':>13}{'epochs':>8}{'seconds':>9}")
    for row in rows:
        spikes, decided = (
            "none" if row[name] is None else f"{row[name]:.2f}"
            for name in ("output_spikes", "output_spikes_to_decision")
        )
        print(
            f"{row['loss']:16}{row['test_accuracy']:8.1%}{row['train_accuracy']:8.1%}{spikes:>8}{decided:>13}"
            f"{row['epochs']:8}{row['seconds']:9.0f}  {row['settings'] or ''}"
        )
    if args.json:
        args.json.write_text(json.dumps(rows, indent=2) + "\n")
    sys.exit(any(row["test_accuracy"] < 0.9 for row in rows))


if __name__ == "__main__":
    main()
