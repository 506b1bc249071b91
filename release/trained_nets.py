"""Stores the nets that come with the package, from finished runs, with their cards.

    snnlib train --recipe mnist --root DIR --seed 0 --out runs/0          # and seeds 1 and 2
    python release/trained_nets.py mnist runs/0 runs/1 runs/2

The weights stored are those of the first run, with 8 bits per number of kernels and matrices, or 16 where 8 lose more
than 0.1 points and two samples; the card has the accuracy of all runs, and that of the stored net. A net that loses
more by 16 bits is refused. The data, their licence and the command stand in the card that is there: for a new net write
`{"card": {"data": ..., "licence": ..., "command": ...}}` into snnlib/models/weights/NAME.json first.
"""

from __future__ import annotations

import io
import json
import re
import statistics
import sys
from collections.abc import Iterator, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import sem
from torch import Tensor, nn

import snnlib
from snnlib.app.kinds.base import DataFacts
from snnlib.app.training import RunFolder
from snnlib.app.training.config import TrainConfig
from snnlib.app.training.data_module import EventData
from snnlib.app.training.load import load_module
from snnlib.app.training.net import build_net
from snnlib.app.training.objective import LOSSES
from snnlib.data.ragged import NO_LABEL
from snnlib.data.word_to_steps import WordToSteps
from snnlib.files.atomic import write_bytes_atomically
from snnlib.models.trained import Decision, net_of, packed, scores_of, unpacked

FOLDER = Path(__file__).resolve().parents[1] / "snnlib" / "models" / "weights"
MOST_LOST = 0.001


Batch = tuple[Tensor, Tensor]


def settings_of(config: TrainConfig, facts: DataFacts) -> dict[str, Any]:
    """Returns what describes the net of a run without its weights (`snnlib.models.trained.net_of`)."""
    srm = {key: config.settings()[key] for key in ("tau_m", "tau_s", "tau_grad", "input_grad_scale")}
    potentials = LOSSES[config.learning.loss].of_potentials
    return {
        "net": config.net.net,
        "neuron": srm if config.net.neuron == "srm" else neuron_of(build_net(config, facts)),
        "options": {"batch_norm": config.net.batch_norm, "dropout": config.net.dropout},
        "readout": {key: srm[key] for key in ("tau_m", "tau_s")} if potentials else None,
        "transform": inputs_of(config),
        "classes": list(facts.classes),
    }


def neuron_of(net: nn.Module) -> dict[str, Any]:
    """Returns the neurons of a net with one kind of them, without constants per channel: the weights bring those."""
    found = [snnlib.neurons.config(part) for part in net.modules() if isinstance(part, snnlib.neurons.Neuron)]
    given = found[0] | {"learnable": []}
    if any(other | {"learnable": []} != given for other in found):
        raise SystemExit(f"expected neurons of one kind, got {found}")
    return {key: value for key, value in given.items() if not (isinstance(value, list) and value)}


def inputs_of(config: TrainConfig) -> dict[str, Any]:
    """Returns what describes the transform of a run's samples."""
    if config.data.data == "ecg":
        return {"of": "spikes"}
    if config.data.data == "beats":
        return {"of": "beats"}
    made, images = config.data.kind.transform(config, torch.float32), "images" in config.data.kind.has
    if isinstance(made, WordToSteps):
        of_sound = {"sample_rate": made.front_end.sample_rate, "frames": made.steps * made.stack.hop}
        return {"of": "word", **of_sound, "hop": made.stack.hop, "window": made.stack.window}
    names = ("encoding", "time_steps", "mean", "std") if images else ("time_steps", "step_us", "mode", "late")
    return {"of": "image" if images else "events", **{key: getattr(made, key) for key in names}}


def whole_batches(data: EventData) -> Iterator[Batch]:
    """Yields the test set; where samples differ in length, one by one without padding."""
    for frames, labels, *rest in data.val_dataloader()[0]:
        if not rest or bool((rest[0] == len(frames)).all()):
            yield frames, labels
            continue
        for number, length in enumerate(rest[0].tolist()):
            yield frames[:length, number : number + 1], labels[number : number + 1]


@torch.no_grad()
def accuracy_of(net: nn.Module, batches: Sequence[Batch], decision: Decision) -> float:
    """Returns the share of the test samples, or of their labelled steps, that a net gets right."""
    right = total = 0
    for x, labels in batches:
        labelled = labels != NO_LABEL
        right += int((scores_of(net(x.float()), decision).argmax(-1) == labels)[labelled].sum())
        total += int(labelled.sum())
    return right / total


def main(name: str, folders: Sequence[str]) -> None:
    file = FOLDER / f"{name}.json"
    earlier = json.loads(file.read_text(encoding="utf-8"))["card"]
    runs = [RunFolder.open(Path(run), "runs") for run in folders]
    config = runs[0][1]
    decision: Decision = "every step" if config.data.kind.labels_steps else "mean"
    data = EventData(config, progress=True)
    data.setup("fit")
    batches = list(whole_batches(data))
    train, test = (len(samples) for samples in (data.train_set, data.test_set))  # type: ignore[arg-type]
    modules = [load_module(config, run, "last") for run, config in runs]
    for module in modules:
        snnlib.nn.fold_standardization_(module.net)
    accuracies = [accuracy_of(module.net, batches, decision) for module in modules]
    print("seeds:", ", ".join(f"{accuracy:.2%}" for accuracy in accuracies))

    trained, facts = modules[0].net, modules[0].facts
    settings = settings_of(config, facts)
    net = net_of(settings, facts.input_shape).eval()
    kept = trained.state_dict()
    # Learned constants with bounds are kept under other names.
    state = {key: kept[key] if key in kept else attrgetter(key)(trained).detach() for key in net.state_dict()}
    # A net may lose one of few samples, and any rounding moves one or two.
    least = accuracies[0] - max(MOST_LOST, 2.5 / test)
    for bits in (torch.int8, torch.int16):
        stored = packed(state, bits)
        net.load_state_dict(unpacked(stored))
        accuracy = accuracy_of(net, batches, decision)
        print(f"{name}: {accuracies[0]:.2%} became {accuracy:.2%} with {bits}")
        if accuracy >= least:
            break
    else:
        raise SystemExit(f"{name}: expected {least:.2%} at least, got {accuracy:.2%}")
    found = snnlib.profile(net, (x.float() for x, _ in batches))
    of_data = re.sub(r", \d+ samples to train and \d+ to test$", "", earlier["data"])
    card = {
        "data": f"{of_data}, {train} samples to train and {test} to test",
        "licence": earlier["licence"],
        "command": earlier["command"],
        "seed": config.learning.seed,
        "version": snnlib.__version__,
        "decision": decision,
        "accuracy": accuracy,
        "test_samples": test,
        "mean_accuracy": statistics.mean(accuracies),
        "accuracy_error": sem(accuracies) if len(runs) > 1 else 0.0,
        "seeds": len(runs),
        "input_shape": list(facts.input_shape),
        "parameters": sum(parameter.numel() for parameter in trained.parameters()),
        "spikes": found.total.nonzero_outputs / found.samples,
        "accumulations": found.total.acs / found.samples,
        "multiplications": found.total.macs / found.samples,
    }
    weights = io.BytesIO()
    np.savez_compressed(weights, **stored)  # type: ignore[arg-type]
    write_bytes_atomically(FOLDER / f"{name}.npz", weights.getvalue())
    write_bytes_atomically(file, f"{json.dumps({**settings, 'card': card}, indent=2)}\n".encode())
    print(snnlib.models.load(name).card)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(sys.argv[1], sys.argv[2:])
