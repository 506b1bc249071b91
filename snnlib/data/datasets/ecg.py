"""Electrocardiograms as spikes, with a label for every time step."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

from snnlib.checks import check_choice
from snnlib.data.checks import check_index
from snnlib.data.datasets.splits import SPLITS, Split
from snnlib.data.formats.event_file import EventFile, EventFileError
from snnlib.data.formats.matlab import load_variables

__all__ = ["ECG"]

# The last step of each sequence holds -1 in channel 0 whatever the heart does.
STEPS = 1300
CHANNELS, BANDS = 4, 6
VAL_SHARE, TEST_SHARE = 0.1, 0.2
# Seed of the order in which sets of sequences are drawn.
_SEED = 0
_FETCH = (
    "fetch QTDB_train.mat and QTDB_test.mat of Yin et al., github.com/byin-cwi/Efficient-spiking-networks"
)


class ECG(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """The QT database's electrocardiograms, level-crossing coded: `(spikes [T, 4], labels [T])`, T = 1300.

    Spikes are float32, 0 or 1: two leads, each with a channel for rises and one for falls. Labels are int64, 0 to 5 for
    the wave that the step belongs to, and -1 where the step has none (8 %): `cross_entropy(..., ignore_index=-1)`.

    Layout: `root/QTDB_train.mat` and, for the published test set, `root/QTDB_test.mat`; `root` may be the training
    file itself. The files name no patients, but neighbours are parts of one recording, so sets are blocks: the
    validation set is the last tenth of the training file; where there is no test file, the last fifth is the test set,
    and the validation set the tenth before it. `apart="sequences"` draws the sets from all sequences instead, with a
    fixed seed: the sets then share recordings, and accuracies are several points higher.

    Args:
        root: the folder of the files, or the training file.
        split: `"train"`, `"val"` or `"test"`.
        apart: `"blocks"`, so that sets share at most two recordings, or `"sequences"`. Default `"blocks"`.

    Attributes:
        classes: names of the labels.
        channels, steps: of every sequence, 4 and 1300.
        spikes: all sequences of the split, int8 `[S, T, 4]`.
        labels: int64 `[S, T]`.

    Raises:
        FileNotFoundError: a file is missing; says what to fetch.
        EventFileError: a file with other contents.

    Source: Laguna et al., "A database for evaluation of algorithms for measurement of QT and other waveform intervals
    in the ECG", Computers in Cardiology 1997; coding of Yin, Corradi, Bohté, "Accurate and efficient time-domain
    classification with adaptive spiking recurrent neural networks", Nature Machine Intelligence 3, 2021.
    """

    classes = ("P", "PQ", "QR", "RS", "ST", "TP")
    channels, steps = CHANNELS, STEPS

    def __init__(
        self, root: str | os.PathLike[str], split: Split = "train", *, apart: str = "blocks"
    ) -> None:
        check_choice("split", split, *SPLITS)
        check_choice("apart", apart, "blocks", "sequences")
        self.split, place = split, Path(root)
        train_file = place if place.is_file() else place / "QTDB_train.mat"
        test_file = train_file.with_name("QTDB_test.mat")
        own_test = test_file.is_file()
        self.path = test_file if split == "test" and own_test else train_file
        if not self.path.is_file():
            raise FileNotFoundError(f"{self.path}: expected a file of the ECG data, found none; {_FETCH}")
        spikes, labels = _load(self.path)
        if not (split == "test" and own_test):
            count = len(spikes)
            tests = 0 if own_test else round(TEST_SHARE * count)
            vals = round(VAL_SHARE * count)
            parts = {
                "train": slice(0, count - tests - vals),
                "val": slice(count - tests - vals, count - tests),
                "test": slice(count - tests, count),
            }
            order = np.arange(count)
            if apart == "sequences":
                order = np.random.default_rng(_SEED).permutation(count)
            spikes, labels = spikes[order[parts[split]]], labels[order[parts[split]]]
        self.spikes, self.labels = torch.from_numpy(spikes.copy()), torch.from_numpy(labels.copy())

    def __len__(self) -> int:
        return len(self.spikes)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        number = check_index(index, len(self))
        return self.spikes[number].float(), self.labels[number].clone()

    def __repr__(self) -> str:
        return f"ECG({str(self.path)!r}, {self.split}, {len(self)} sequences)"


def _load(path: Path) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Spikes int8 `[S, 1300, 4]` and labels int64 `[S, 1300]`."""
    with EventFile(path) as file:
        variables = load_variables(file, ["x", "y"])
    shapes = {name: value.shape for name, value in variables.items()}
    samples, steps = shapes.get("x", ())[:2] if len(shapes.get("x", ())) == 3 else (0, 0)
    if steps < STEPS or shapes != {"x": (samples, steps, CHANNELS), "y": (samples, steps, BANDS)}:
        raise EventFileError(
            f"{path}: expected x [S, {STEPS + 1}, {CHANNELS}] and y [S, {STEPS + 1}, {BANDS}], found {shapes}"
        )
    spikes, hot = variables["x"][:, :STEPS], variables["y"][:, :STEPS]
    if spikes.min(initial=0) < 0 or spikes.max(initial=0) > 1 or hot.sum(2).max(initial=0) > 1:
        raise EventFileError(
            f"{path}: expected spikes of 0 and 1 and at most one label per step, found others"
        )
    return spikes.astype(np.int8), np.where(hot.any(2), hot.argmax(2), -1).astype(np.int64)
