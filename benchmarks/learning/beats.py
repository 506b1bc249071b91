"""Heart beats of patients who were never seen: N, S and V of DS1 in folds by patient, beside other nets.

    python benchmarks/learning/beats.py --root MITDB [--nets ...] [--seeds 0 1 2] [--threads 1]

DS1 of the MIT-BIH Arrhythmia Database has 22 records, in eleven folds by patient: record i by number is in fold i % 11.
Each fold tests once the nets that the other twenty records trained, and counts are pooled over the folds. Beats of the
classes F and Q are left out of training and scores, and count as beats before others. All nets see the same frames of
beats (`data.BeatFrames`), the same balanced draw of beats and the same changes of them, for as many steps. Macro F1
decides: the mean over the classes of the harmonic mean of sensitivity and precision, as 91 % of the beats are N. Its
first error is that of the mean over seeds, the second the jackknife's over folds: what other patients would change.
Settings were chosen by seed 0 of all folds. Time is that of the processor, in training.
"""

from __future__ import annotations

import argparse
import math

import torch
from recorded import CNN, GRU, NEURONS, Way, available, mean_and_error, spiking
from torch import Tensor

from snnlib.app.kinds.beats import CLASSES, DRAWN, Beats, VaryBeats, balanced
from snnlib.data import BeatFrames
from snnlib.data.datasets.mitbih import DS1
from snnlib.recipes import recipe

NETS = ("snnlib", "GRU", "CNN", "SpikingJelly", "snnTorch")
FOLDS = 11


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
        return Way(GRU(channels, 40, len(CLASSES)), centred, config.epochs, config.batch_size, 5e-3)
    if name == "CNN":
        net = CNN(channels, 36, len(CLASSES), (1, 1))
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
    whole = Beats(options.root, "train", None, BeatFrames())
    beats, labels, records = whole.beats, whole.targets, whole.records
    fold = torch.tensor([DS1.index(record) % FOLDS for record in records.tolist()])
    for net in available(options.nets):
        counts = []
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
            counts.append(confusions(answers, labels, fold))
            print(
                f"{net}, seed {seed}: {said(counts[-1].sum(0))}; {way.parameters:,} parameters, "
                f"{seconds:.0f} processor seconds",
                flush=True,
            )
            if seed == options.seeds[0]:
                by_record(answers, labels, records)
        found = torch.stack(counts)
        scores = [scores_of(one.sum(0)) for one in found]
        print(
            f"{net}: "
            + ", ".join(f"{key} {mean_and_error([one[key] for one in scores])}" for key in scores[0])
            + f"; macro F1 over folds +- {100 * error_over_folds(found):.1f}",
            flush=True,
        )


def confusions(answers: Tensor, labels: Tensor, fold: Tensor) -> Tensor:
    """Beats by fold, label and answer `[FOLDS, classes, classes]`."""
    classes = len(CLASSES)
    cells = (fold * classes + labels) * classes + answers
    return cells.bincount(minlength=FOLDS * classes**2).view(FOLDS, classes, classes).double()


def f1_of(confusion: Tensor) -> Tensor:
    """F1 of each class."""
    return 2 * confusion.diagonal() / (confusion.sum(0) + confusion.sum(1))


def mean_f1(counts: Tensor) -> float:
    """Macro F1 of pooled counts `[seeds, folds, classes, classes]`, mean over the seeds."""
    return sum(float(f1_of(one).mean()) for one in counts.sum(1)) / len(counts)


def error_over_folds(counts: Tensor) -> float:
    """The jackknife's standard error of `mean_f1`, each time without a fold."""
    left = torch.tensor([mean_f1(counts[:, torch.arange(FOLDS) != number]) for number in range(FOLDS)])
    return math.sqrt((FOLDS - 1) * float(left.var(correction=0)))


def scores_of(confusion: Tensor) -> dict[str, float]:
    """Macro F1, sensitivity and precision of each class, and accuracy."""
    right, found = confusion.diagonal(), {"macro F1": float(f1_of(confusion).mean())}
    for number, name in enumerate(CLASSES):
        found[f"sensitivity of {name}"] = float(right[number] / confusion[number].sum())
        found[f"precision of {name}"] = float(right[number] / confusion[:, number].sum())
    return found | {"accuracy": float(right.sum() / confusion.sum())}


def said(confusion: Tensor) -> str:
    """The scores as text."""
    return ", ".join(f"{key} {value:.1%}" for key, value in scores_of(confusion).items())


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
