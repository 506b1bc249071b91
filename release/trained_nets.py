"""Train the nets that come with the package and write their weights and cards.

    python release/trained_nets.py [--seeds 3]

The weights shipped are those of seed 0; the card has the accuracy over all seeds.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import tempfile
from pathlib import Path

import numpy as np
import torch

import snnlib
from snnlib.app.training import RunFolder, TrainConfig
from snnlib.app.training.run import TrainResult, train_run
from snnlib.data.atomic import write_bytes_atomically

FOLDER = Path(__file__).resolve().parents[1] / "snnlib" / "models" / "weights"


def trained(seed: int) -> TrainResult:
    """A finished run of the defaults."""
    with tempfile.TemporaryDirectory() as folder:
        config = TrainConfig(seed=seed, device="cpu")
        return train_run(config, RunFolder.create(Path(folder) / "run", config))


def card_of(result: TrainResult, accuracies: list[float]) -> dict[str, object]:
    """Figures of the net of the first seed; see `snnlib.models.Card`."""
    found = snnlib.profile(
        result.module.net, (frames.float() for frames, _ in result.data.val_dataloader()[0])
    )
    train, test = (len(samples) for samples in (result.data.train_set, result.data.test_set))  # type: ignore[arg-type]
    return {
        "data": f"embedded event digits, {train} samples to train and {test} to test",
        "command": "snnlib train",
        "seed": result.module.config.seed,
        "version": snnlib.__version__,
        "accuracy": result.test.accuracy,
        "mean_accuracy": statistics.mean(accuracies),
        "accuracy_error": statistics.stdev(accuracies) / math.sqrt(len(accuracies)),
        "seeds": len(accuracies),
        "parameters": sum(parameter.numel() for parameter in result.module.net.parameters()),
        "spikes": found.total.nonzero_outputs / found.samples,
        "accumulations": found.total.acs / found.samples,
        "multiplications": found.total.macs / found.samples,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=3)
    results = [trained(seed) for seed in range(parser.parse_args().seeds)]
    first, config = results[0], results[0].module.config
    net = snnlib.nn.fold_standardization_(first.module.net)
    settings = {
        "net": config.net,
        "input_shape": list(first.module.facts.input_shape),
        "neuron": {"tau_m": config.tau_m, "tau_s": config.tau_s, "tau_grad": config.tau_grad},
        "frames": {
            "time_steps": config.time_steps,
            "step_us": config.step_us,
            "mode": config.frames,
            "late": config.late,
        },
        "classes": list(first.module.facts.classes),
        "card": card_of(first, [result.test.accuracy for result in results]),
    }
    FOLDER.mkdir(exist_ok=True)
    with (FOLDER / "digits.npz.new").open("wb") as file:
        np.savez_compressed(file, **{key: value.numpy() for key, value in net.state_dict().items()})
    (FOLDER / "digits.npz.new").replace(FOLDER / "digits.npz")
    write_bytes_atomically(FOLDER / "digits.json", (json.dumps(settings, indent=2) + "\n").encode())
    print(snnlib.models.load("digits").card)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
