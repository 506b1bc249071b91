"""Stores the nets that come with the package, from finished runs, with their cards.

    snnlib train --recipe mnist --root DIR --seed 0 --out runs/0          # and seeds 1 and 2
    python release/trained_nets.py mnist runs/0 runs/1 runs/2

    python benchmarks/learning/yin_yang.py --delays none --seeds 0 1 2 --save runs
    python release/trained_nets.py yin-yang runs/none-0.pt runs/none-1.pt runs/none-2.pt

The weights stored are those of the first run, with 8 bits per number of kernels and matrices; the card has the accuracy
of all runs, and that of the stored net. A net that loses more than 0.1 points by its 8 bits is refused.
"""

from __future__ import annotations

import argparse
import io
import json
import math
import statistics
from collections.abc import Iterator, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

import snnlib
from snnlib.app.training import RunFolder
from snnlib.app.training.config import TrainConfig
from snnlib.app.training.data_module import EventData
from snnlib.app.training.load import load_module
from snnlib.app.training.net import build_net
from snnlib.data import YinYang
from snnlib.data.atomic import write_bytes_atomically
from snnlib.data.ragged import NO_LABEL
from snnlib.models.packing import packed, unpacked
from snnlib.models.trained import Decision, net_of, scores_of
from snnlib.models.trained_inputs import transform_of

FOLDER = Path(__file__).resolve().parents[1] / "snnlib" / "models" / "weights"
MOST_LOST = 0.001
SAMPLES = 250


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
    "ecg": Origin(
        "snnlib train --recipe ecg --root DIR",
        "QT database in blocks of recordings, spikes of 1300 steps",
        "PhysioNet's QT Database, Laguna et al., 1997, open access; spikes by Yin et al., 2021",
    ),
    "spoken-digits": Origin(
        "snnlib train --recipe spoken-digits --root DIR",
        "free spoken digits, three speakers to train and another to test",
        "Jackson et al., Free Spoken Digit Dataset, CC BY-SA 4.0",
    ),
    "yin-yang": Origin(
        "python benchmarks/learning/yin_yang.py --delays none --updates 3000",
        "Yin-Yang, the published points",
        "made by rule; Kriener et al., 2021, MIT",
    ),
}
Batch = tuple[Tensor, Tensor]


class Source(NamedTuple):
    """Finished runs of one net.

    Args:
        settings: what describes the net without its weights (`snnlib.models.trained.net_of`).
        nets: the trained nets, one for each seed.
        batches: the test set as the net takes it, with labels, no sample longer than another of its batch.
        train, test: numbers of samples.
        seed: of the first net.
        decision, input_shape: of the card.
    """

    settings: dict[str, Any]
    nets: list[nn.Module]
    batches: list[Batch]
    train: int
    test: int
    seed: int
    decision: Decision
    input_shape: tuple[int, int, int]


def source_of_runs(folders: Sequence[Path]) -> Source:
    """Returns what runs of `snnlib train` left."""
    runs = [RunFolder.open(run, "runs") for run in folders]
    config = runs[0][1]
    data = EventData(config, progress=True)
    data.setup("fit")
    modules = [load_module(config, run, "last") for run, config in runs]
    facts = modules[0].facts
    neuron = {key: getattr(config, key) for key in ("tau_m", "tau_s", "tau_grad", "input_grad_scale")}
    settings = {
        "net": config.net,
        "neuron": neuron,
        "readout": {key: neuron[key] for key in ("tau_m", "tau_s")} if config.loss == "tet" else None,
        "transform": inputs_of(config),
        "classes": list(facts.classes),
    }
    if config.neuron != "srm":
        settings["neuron"] = neuron_of(build_net(config, facts))
    for module in modules:
        snnlib.nn.fold_standardization_(module.net)
    decision: Decision = "every step" if config.kind.labels_steps else "mean"
    sizes = [len(samples) for samples in (data.train_set, data.test_set)]  # type: ignore[arg-type]
    nets: list[nn.Module] = [module.net for module in modules]
    return Source(settings, nets, list(whole_batches(data)), *sizes, config.seed, decision, facts.input_shape)


def neuron_of(net: nn.Module) -> dict[str, Any]:
    """Returns the neurons of a net with one kind of them, without constants per channel: the weights bring those."""
    (neuron,) = (module for module in net.modules() if isinstance(module, snnlib.neurons.Neuron))
    given = snnlib.neurons.config(neuron) | {"learnable": []}
    return {key: value for key, value in given.items() if not is_list(value)}


def is_list(value: object) -> bool:
    """Returns whether a value of a neuron's settings is one number per channel."""
    return isinstance(value, list) and bool(value) and isinstance(value[0], float)


def inputs_of(config: TrainConfig) -> dict[str, Any]:
    """Returns what describes the transform of a run's samples."""
    if config.data == "ecg":
        return {"of": "spikes"}
    if config.data == "spoken-digits":
        return {"of": "sound", "step_us": config.step_us, "mode": config.frames}
    made, images = config.kind.transform(config, torch.float32), "images" in config.kind.has
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


def source_of_points(files: Sequence[Path]) -> Source:
    """Returns what benchmarks/learning/yin_yang.py saved."""
    states = [torch.load(file, weights_only=True) for file in files]
    dt = STEP_OF_POINTS
    neuron = snnlib.neurons.CubaLIF.from_continuous(2.0, 1.0, dt, gradient="event", single_spike=True)
    settings: dict[str, Any] = {
        "net": "30-3",
        "neuron": snnlib.neurons.config(neuron),
        "readout": None,
        "transform": {"of": "points", "first": 0.15, "span": 1.85, "time_steps": round(3 / dt), "dt": dt},
        "classes": list(YinYang.classes),
    }
    shape = (4, 1, 1)
    nets = []
    for state in states:
        net = net_of(settings, shape)
        for own, name in ((net[0], "hidden"), (net[1], "output")):
            own.weight.data.copy_(state[f"{name}.weight"] * state.get(f"{name}.gain", 1.0))
        nets.append(net.eval())
    test, transform = YinYang("test"), transform_of(settings["transform"], shape)
    batches = [
        (transform(points), labels)
        for points, labels in zip(test.samples.split(SAMPLES), test.targets.split(SAMPLES), strict=True)
    ]
    return Source(settings, list(nets), batches, len(YinYang()), len(test), 0, "first spike", shape)


# Of the time constants of the synapse; times of finer steps differ more often.
STEP_OF_POINTS = 0.005


@torch.no_grad()
def accuracy_of(net: nn.Module, source: Source) -> float:
    """Returns the share of the test samples, or of their labelled steps, that a net gets right."""
    right = total = 0
    for x, labels in source.batches:
        answers = scores_of(net(x.float()), source.decision).argmax(-1)
        labelled = labels != NO_LABEL
        right += int((answers == labels)[labelled].sum())
        total += int(labelled.sum())
    return right / total


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", choices=ORIGINS)
    parser.add_argument("runs", nargs="+", type=Path)
    arguments = parser.parse_args()
    name, origin = arguments.name, ORIGINS[arguments.name]
    source = source_of_points(arguments.runs) if name == "yin-yang" else source_of_runs(arguments.runs)
    accuracies = [accuracy_of(net, source) for net in source.nets]
    print("seeds:", ", ".join(f"{accuracy:.2%}" for accuracy in accuracies))
    trained, seeds = source.nets[0], len(accuracies)
    net = net_of(source.settings, source.input_shape).eval()
    kept = trained.state_dict()
    # Learned constants with bounds are kept under other names.
    state = {key: kept[key] if key in kept else attrgetter(key)(trained).detach() for key in net.state_dict()}
    stored = packed(state)
    net.load_state_dict(unpacked(stored))
    accuracy = accuracy_of(net, source)
    if accuracy < accuracies[0] - MOST_LOST:
        raise SystemExit(f"{name}: {accuracies[0]:.2%} became {accuracy:.2%} with 8 bits")
    found = snnlib.profile(net, (x.float() for x, _ in source.batches))
    card = {
        "data": f"{origin.data}, {source.train} samples to train and {source.test} to test",
        "licence": origin.licence,
        "command": origin.command,
        "seed": source.seed,
        "version": snnlib.__version__,
        "decision": source.decision,
        "accuracy": accuracy,
        "test_samples": source.test,
        "mean_accuracy": statistics.mean(accuracies),
        "accuracy_error": statistics.stdev(accuracies) / math.sqrt(seeds) if seeds > 1 else 0.0,
        "seeds": seeds,
        "input_shape": list(source.input_shape),
        "parameters": sum(parameter.numel() for parameter in trained.parameters()),
        "spikes": found.total.nonzero_outputs / found.samples,
        "accumulations": found.total.acs / found.samples,
        "multiplications": found.total.macs / found.samples,
    }
    FOLDER.mkdir(exist_ok=True)
    weights = io.BytesIO()
    np.savez_compressed(weights, **stored)  # type: ignore[arg-type]
    write_bytes_atomically(FOLDER / f"{name}.npz", weights.getvalue())
    settings = json.dumps({**source.settings, "card": card}, indent=2)
    write_bytes_atomically(FOLDER / f"{name}.json", f"{settings}\n".encode())
    print(snnlib.models.load(name).card)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
