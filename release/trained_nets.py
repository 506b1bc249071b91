"""Stores the nets that come with the package, from finished runs of `snnlib train`, with their cards.

    snnlib train --recipe mnist --root DIR --seed 0 --out runs/0          # and seeds 1 and 2
    python release/trained_nets.py mnist runs/0 runs/1 runs/2

The weights stored are those of the first run, with 8 bits per number of kernels and matrices; the card has the accuracy
of all runs, and that of the stored net. A net that loses more than 0.1 points by its 8 bits is refused.
"""

from __future__ import annotations

import argparse
import io
import json
import math
import statistics
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

import snnlib
from snnlib.app.training import RunFolder
from snnlib.app.training.choices import IMAGES
from snnlib.app.training.data_module import EventData
from snnlib.app.training.frames import frames_of
from snnlib.app.training.images import sequence_of_image
from snnlib.app.training.load import load_module
from snnlib.data.atomic import write_bytes_atomically
from snnlib.models.trained import packed, unpacked

FOLDER = Path(__file__).resolve().parents[1] / "snnlib" / "models" / "weights"
MOST_LOST = 0.001


class Origin(NamedTuple):
    """What a card says of a net beyond its run."""

    command: str
    data: str
    licence: str


ORIGINS = {
    "digits": Origin(
        "snnlib train",
        "embedded event digits",
        "scikit-learn's handwritten digits (UCI, Alpaydin and Kaynak, CC BY 4.0), seen by a simulated camera",
    ),
    "mnist": Origin(
        "snnlib train --recipe mnist --shift 2 --root DIR",
        "MNIST",
        "LeCun, Cortes and Burges, CC BY-SA 3.0",
    ),
    "nmnist": Origin(
        "snnlib train --recipe nmnist --root DIR",
        "N-MNIST, recordings of the ATIS camera",
        "Orchard et al., 2015, CC BY-SA 4.0",
    ),
}


@torch.no_grad()
def accuracy_of(module: Any, data: EventData) -> float:
    """Returns the share of the test samples that a net gets right."""
    right = total = 0
    for x, labels in data.val_dataloader()[0]:
        right += int((module(x).argmax(1) == labels).sum())
        total += len(labels)
    return right / total


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", choices=ORIGINS)
    parser.add_argument("runs", nargs="+", type=Path)
    arguments = parser.parse_args()
    name, origin = arguments.name, ORIGINS[arguments.name]
    runs = [RunFolder.open(run, "runs") for run in arguments.runs]
    data = EventData(runs[0][1], progress=True)
    data.setup("fit")
    modules = [load_module(config, run, "last") for run, config in runs]
    accuracies = [accuracy_of(module, data) for module in modules]
    first, config = modules[0], runs[0][1]
    net = snnlib.nn.fold_standardization_(first.net)
    stored = packed(net.state_dict())
    net.load_state_dict(unpacked(stored))
    accuracy = accuracy_of(first, data)
    if accuracy < accuracies[0] - MOST_LOST:
        raise SystemExit(f"{name}: {accuracies[0]:.2%} became {accuracy:.2%} with 8 bits")
    found = snnlib.profile(net, (x.float() for x, _ in data.val_dataloader()[0]))
    train, test = (len(samples) for samples in (data.train_set, data.test_set))  # type: ignore[arg-type]
    seeds = len(accuracies)
    card = {
        "data": f"{origin.data}, {train} samples to train and {test} to test",
        "licence": origin.licence,
        "command": origin.command,
        "seed": config.seed,
        "version": snnlib.__version__,
        "accuracy": accuracy,
        "mean_accuracy": statistics.mean(accuracies),
        "accuracy_error": statistics.stdev(accuracies) / math.sqrt(seeds) if seeds > 1 else 0.0,
        "seeds": seeds,
        "input_shape": list(first.facts.input_shape),
        "parameters": sum(parameter.numel() for parameter in net.parameters()),
        "spikes": found.total.nonzero_outputs / found.samples,
        "accumulations": found.total.acs / found.samples,
        "multiplications": found.total.macs / found.samples,
    }
    frames = ("time_steps", "step_us", "mode", "late")
    images = ("encoding", "time_steps", "mean", "std")
    transform = sequence_of_image if config.data in IMAGES else frames_of
    made = transform(config, torch.float32)
    options = {key: getattr(made, key) for key in (images if config.data in IMAGES else frames)}
    settings = {
        "net": config.net,
        "neuron": {key: getattr(config, key) for key in ("tau_m", "tau_s", "tau_grad", "input_grad_scale")},
        "readout": "potentials" if config.loss == "tet" else "spikes",
        "transform": options,
        "classes": list(first.facts.classes),
        "card": card,
    }
    FOLDER.mkdir(exist_ok=True)
    weights = io.BytesIO()
    np.savez_compressed(weights, **stored)  # type: ignore[arg-type]
    write_bytes_atomically(FOLDER / f"{name}.npz", weights.getvalue())
    write_bytes_atomically(FOLDER / f"{name}.json", (json.dumps(settings, indent=2) + "\n").encode())
    print(snnlib.models.load(name).card)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
