"""Heart beats of patients who were never seen: N, S and V of DS1 in folds by patient, beside other nets.

    python benchmarks/learning/beats.py --root MITDB [--nets ...] [--seeds 0 1 2] [--threads 1]

DS1 of the MIT-BIH Arrhythmia Database, records sorted, record i in fold i % 5; each fold tests once the nets that the
others trained, and counts are pooled over the folds. Beats of the classes F and Q are left out of training and scores,
and count as beats before others. All nets see the same frames of beats (`data.BeatFrames`) and the same balanced draw
of beats. Settings were chosen by seed 0 of all folds. Time is that of the processor, in training.
"""

from __future__ import annotations

import argparse

import torch
from recorded import CNN, GRU, NEURONS, Way, available, mean_and_error, spiking
from torch import Tensor

from snnlib.app.kinds.beats import CLASSES, DRAWN, Beats, VaryBeats, balanced
from snnlib.data import BeatFrames
from snnlib.data.datasets.mitbih import DS1
from snnlib.recipes import recipe

NETS = ("snnlib", "GRU", "CNN", "SpikingJelly", "snnTorch")
FOLDS = 5
# The record with two fifths of the beats of S.
MANY = 209


def way_of(name: str) -> Way:
    """A net with its training."""
    config, vary = recipe("beats").config(root=""), VaryBeats()
    channels = BeatFrames().channels

    def whole(x: Tensor, train: bool) -> Tensor:
        beats = x.transpose(0, 1)
        return (vary(beats) if train else beats).float()

    def centred(x: Tensor, train: bool) -> Tensor:
        return (whole(x, train) - 128) / 42

    if name == "GRU":
        return Way(GRU(channels, 54, len(CLASSES)), centred, config.epochs, config.batch_size, 5e-3)
    if name == "CNN":
        net = CNN(channels, 44, len(CLASSES), (1, 1))
        return Way(net, centred, config.epochs, config.batch_size, 5e-3)
    net = spiking("beats", (channels, 1, 1), NEURONS[name])
    return Way(net, whole, config.epochs, config.batch_size, config.lr)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--root", required=True)
    parser.add_argument("--nets", nargs="+", choices=NETS, default=NETS)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.set_flush_denormal(True)
    parts = [Beats(options.root, "test", fold, BeatFrames()) for fold in range(FOLDS)]
    fold = torch.cat([torch.full((len(part),), number) for number, part in enumerate(parts)])
    beats, labels, records = (
        torch.cat([getattr(part, key) for part in parts]) for key in ("beats", "targets", "records")
    )
    for net in available(options.nets):
        seeds = []
        for seed in options.seeds:
            answers, seconds = torch.full_like(labels, -1), 0.0
            for number in range(FOLDS):
                torch.manual_seed(seed)
                way = way_of(net)
                train = torch.nonzero(fold != number).squeeze(1)
                generator = torch.Generator().manual_seed(seed)
                draw = train[balanced(labels[train], records[train], DRAWN, generator)]
                seconds += way.learn(beats, labels, lambda draw=draw: draw[torch.randperm(len(draw))])
                answers[fold == number] = way.answers(beats[fold == number])
            scores = scores_of(answers, labels, records)
            seeds.append(scores)
            text = ", ".join(f"{key} {value:.1%}" for key, value in scores.items())
            print(
                f"{net}, seed {seed}: {text}; {way.parameters:,} parameters, {seconds:.0f} processor seconds",
                flush=True,
            )
            if seed == options.seeds[0]:
                by_record(answers, labels, records)
        print(
            f"{net}: "
            + ", ".join(f"{key} {mean_and_error([one[key] for one in seeds])}" for key in seeds[0]),
            flush=True,
        )


def scores_of(answers: Tensor, labels: Tensor, records: Tensor) -> dict[str, float]:
    """Accuracy, sensitivity of each class, that of S without one record, and precision of S and V."""
    right = answers == labels

    def share(rows: Tensor) -> float:
        return float(right[rows].float().mean())

    found = {"accuracy": share(labels >= 0)}
    found |= {f"sensitivity of {name}": share(labels == label) for label, name in enumerate(CLASSES)}
    found[f"of S without {MANY}"] = share((labels == 1) & (records != MANY))
    return found | {
        f"precision of {name}": share(answers == label) for label, name in enumerate(CLASSES) if label
    }


def by_record(answers: Tensor, labels: Tensor, records: Tensor) -> None:
    """Prints right answers of all beats for each record and class."""
    for record in DS1:
        rows = records == record
        counts = [
            f"{name} {int((answers[rows & (labels == label)] == label).sum())}/{int((rows & (labels == label)).sum())}"
            for label, name in enumerate(CLASSES)
        ]
        print(f"  record {record}: {', '.join(counts)}")


if __name__ == "__main__":
    main()
