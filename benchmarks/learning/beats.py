"""Heart beats of patients who were never seen: N, S and V of DS1 in folds by patient, beside other nets.

    python benchmarks/learning/beats.py --root MITDB [--nets ...] [--seeds 0 1 2] [--without joined ratio]

DS1 of the MIT-BIH Arrhythmia Database has 22 records, in eleven folds by patient: record i by number is in fold i % 11.
Each fold tests once the nets that the other twenty records trained, and counts are pooled over the folds. Beats of the
classes F and Q are left out of training and scores, and count as beats before others. All nets see the same frames of
beats (`data.BeatFrames`), the same balanced draw of beats and the same changes of them, for as many steps. Macro F1
decides: the mean over the classes of the harmonic mean of sensitivity and precision, as 91 % of the beats are N. Its
first error is that of the mean over seeds, the second the jackknife's over folds: what other patients would change.
Settings were chosen by seed 0 of all folds. Time is that of the processor, in training.

DS1 has no patient most of whose beats are S for long. `S-rich` stands for such patients: each patient with ten beats S
gives a record of 1,000 beats, cut and joined from the patient's own by the rule of `join_beats`, of runs of S with a
mean of 20 beats between runs of N with a mean of 5. `N alone` joins 500 beats N of each patient in the same way. The
net of the fold that tests a patient is tested on both; macro F1 of `S-rich` is the mean over N and S. The recipe learns
from such records of the other patients, too: `--without joined` leaves them out, `--without ratio` the ratio of an
interval to a long one.
"""

from __future__ import annotations

import argparse
import math
from itertools import product

import torch
from recorded import CNN, GRU, NEURONS, Way, available, mean_and_error, spiking
from torch import Tensor

from snnlib.app.kinds.beats import CLASSES, DRAWN, RECORDS, Beats, VaryBeats, balanced
from snnlib.data import BeatFrames
from snnlib.data.datasets.mitbih import DS1
from snnlib.recipes import recipe

NETS = ("snnlib", "GRU", "CNN", "SpikingJelly", "snnTorch")
FOLDS = 11
# Joined records, by the thousands of their number.
JOINED = {"S-rich": 1, "N alone": 3}


def way_of(name: str, ratio: bool) -> Way:
    """A net with its training; without the ratio of intervals, the last channel, all nets see 0 there."""
    config, vary = recipe("beats").config(root=""), VaryBeats()
    channels = BeatFrames().channels

    def whole(x: Tensor, train: bool) -> Tensor:
        beats = x.transpose(0, 1)
        found = (vary(beats) if train else beats).float()
        if not ratio:
            found[..., -1] = 128
        return found

    def centred(x: Tensor, train: bool) -> Tensor:
        return (whole(x, train) - 128) / 42

    if name == "GRU":
        return Way(
            GRU(channels, 40, len(CLASSES)), centred, config.learning.epochs, config.learning.batch_size, 5e-3
        )
    if name == "CNN":
        net = CNN(channels, 36, len(CLASSES), (1, 1))
        return Way(net, centred, config.learning.epochs, config.learning.batch_size, 5e-3)
    net = spiking("beats", (channels, 1, 1), NEURONS[name])
    return Way(net, whole, config.learning.epochs, config.learning.batch_size, config.learning.lr)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--root", required=True)
    parser.add_argument("--nets", nargs="+", choices=NETS, default=NETS)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--without", nargs="+", choices=("joined", "ratio"), default=[])
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.set_flush_denormal(True)
    whole = Beats(options.root, "train", None, BeatFrames(), joined=True)
    beats, labels, records = whole.beats, whole.targets, whole.records
    fold = torch.tensor([DS1.index(record) % FOLDS for record in (records % RECORDS).tolist()])
    recorded = records < RECORDS
    learned = recorded | ("joined" not in options.without)
    for net in available(options.nets):
        counts, scores = [], []
        for seed in options.seeds:
            answers, seconds = torch.full_like(labels, -1), 0.0
            for number in range(FOLDS):
                torch.manual_seed(seed)
                way = way_of(net, "ratio" not in options.without)
                train = torch.nonzero((fold != number) & learned).squeeze(1)
                generator = torch.Generator().manual_seed(seed)
                draw = train[balanced(labels[train], records[train], DRAWN, generator)]
                seconds += way.learn(beats, labels, lambda draw=draw: draw[torch.randperm(len(draw))])
                answers[fold == number] = way.answers(beats[fold == number])
            counts.append(confusions(answers[recorded], labels[recorded], fold[recorded]))
            scores.append(scores_of(counts[-1].sum(0)) | joined_scores(answers, labels, records))
            print(
                f"{net}, seed {seed}: {said(scores[-1])}; {way.parameters:,} parameters, "
                f"{seconds:.0f} processor seconds",
                flush=True,
            )
            if seed == options.seeds[0]:
                by_record(answers, labels, records)
        print(
            f"{net}: "
            + ", ".join(f"{key} {mean_and_error([one[key] for one in scores])}" for key in scores[0])
            + f"; macro F1 over folds +- {100 * error_over_folds(torch.stack(counts)):.1f}",
            flush=True,
        )


def joined_scores(answers: Tensor, labels: Tensor, records: Tensor) -> dict[str, float]:
    """Scores of joined records, pooled over the patients: those rich in S, and those of N alone."""
    found = {}
    for name, kind in JOINED.items():
        rows = records // RECORDS == kind
        confusion = confusions(answers[rows], labels[rows], torch.zeros_like(labels[rows]))[0]
        right = confusion.diagonal() / confusion.sum(1)
        if name == "S-rich":
            found[f"{name} macro F1"] = float(f1_of(confusion)[:2].mean())
            found[f"{name} sensitivity of S"] = float(right[1])
        found[f"{name} sensitivity of N"] = float(right[0])
    return found


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


def said(scores: dict[str, float]) -> str:
    """The scores as text."""
    return ", ".join(f"{key} {value:.1%}" for key, value in scores.items())


def by_record(answers: Tensor, labels: Tensor, records: Tensor) -> None:
    """Prints right answers of all beats for each record and class."""
    kinds = {"": 0} | JOINED
    for (name, kind), record in product(kinds.items(), DS1):
        rows = records == kind * RECORDS + record
        counts = [
            f"{label} {int((answers[chosen] == number).sum())}/{int(chosen.sum())}"
            for number, label in enumerate(CLASSES)
            if (chosen := rows & (labels == number)).any()
        ]
        if counts:
            print(f"  {name or 'record'} {record}: {', '.join(counts)}")


if __name__ == "__main__":
    main()
