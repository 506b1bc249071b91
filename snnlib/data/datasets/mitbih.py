"""Heart beats: the MIT-BIH Arrhythmia Database."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from snnlib.data.checks import check_choice, check_int
from snnlib.data.datasets.folds import Folds
from snnlib.data.datasets.splits import Split
from snnlib.data.formats.wfdb import read_annotations, read_header, read_signals
from snnlib.data.ragged import NO_LABEL
from snnlib.data.samples import Samples, Transform

__all__ = ["MITBIH"]

_FETCH = "fetch mit-bih-arrhythmia-database-1.0.0.zip from physionet.org/content/mitdb and unpack it"
# Numbers of the annotations of beats, by the classes of the standard EC57 of the Association for the Advancement of
# Medical Instrumentation.
_CODES = {"N": (1, 2, 3, 11, 34), "S": (4, 7, 8, 9), "V": (5, 10), "F": (6,), "Q": (12, 13, 38)}
CLASSES = tuple(_CODES)
# The sets of de Chazal, O'Dwyer and Reilly, "Automatic classification of heartbeats using ECG morphology and heartbeat
# interval features", 2004: no patient is in both, and none has a pacemaker, as those of 102, 104, 107 and 217 have.
DS1 = (
    *(101, 106, 108, 109, 112, 114, 115, 116, 118, 119, 122, 124),
    *(201, 203, 205, 207, 208, 209, 215, 220, 223, 230),
)
DS2 = (
    *(100, 103, 105, 111, 113, 117, 121, 123, 200, 202, 210),
    *(212, 213, 214, 219, 221, 222, 228, 231, 232, 233, 234),
)


class MITBIH(Samples):
    """Electrocardiograms of 44 records, two leads in millivolts, 360 samples a second, with a label for every beat.

    Layout: `root/{record}.hea`, `.dat` and `.atr`, as published. Records of patients with a pacemaker are left out.

    `unit="beat"`: `(signal, label)` for each beat, float32 `[before + after, 2]` around its annotated R peak, which is
    sample `before`; where the record ends earlier, its first or last sample is repeated. `unit="record"`: `(signal
    [T, 2], labels [T])` of each whole record, labels int64: that of a beat at the sample where the beat ends, `after`
    samples after its R peak and so the last of its window, -1 elsewhere. A beat that ends after the record has none.

    The training set is DS1 and the test set DS2 of de Chazal. With `fold`, DS1 alone is divided: its records, sorted by
    number, are in fold i % `folds`; fold `fold` tests, `val_fold` validates, the others train. Without `fold`,
    `val_fold` holds out that fold of DS1 for validation. No patient is in two sets.

    Args:
        root: the folder.
        split: `"train"`, `"val"`, `"test"`, or None for all records that are there.
        transform: maps the signal.
        target_transform: maps the label or labels.
        unit: `"beat"` or `"record"`. Default `"beat"`.
        before, after: samples of a beat before its R peak, and from it on. Default 90 and 150: a quarter of a second,
            and 0.42 s, which the T wave ends within.
        labels: classes that have labels; beats of others are left out, and have -1 in whole records. Default all five.
        mark_peaks: whether signals have a third channel, 1 at each annotated R peak and 0 elsewhere, as a detector of
            beats sends them: intervals between beats. Default False.
        folds: number of folds. Default 5.
        fold: the fold that tests. Default None: DS2 tests.
        val_fold: the fold that validates. Default None: no fold.

    Attributes:
        classes: names of the labels: of N (normal), S (supraventricular), V (ventricular), F (fusion), Q (unknown).
        targets: labels, int64 `[S]`; of whole records the list of their `[T]`.
        records: record of each sample.
        peaks: sample of the R peak of each beat; of whole records the arrays of those of all beats.
        sample_rate: 360.

    Raises:
        FileNotFoundError: no records, or none of a set, or a file is missing; says what to fetch.
        ValueError: an option out of its range.
        EventFileError: a damaged file, or one of another format than 212 or another rate; names file and byte.

    Source: Moody and Mark, "The impact of the MIT-BIH Arrhythmia Database", 2001; PhysioNet, ODC-BY 1.0.

    >>> beats = snnlib.data.MITBIH("mitdb", "test", fold=0)  # doctest: +SKIP
    >>> signal, label = beats[0]  # doctest: +SKIP
    """

    sample_rate, channels = 360, 2

    def __init__(
        self,
        root: str | os.PathLike[str],
        split: Split | None = "train",
        transform: Transform | None = None,
        target_transform: Transform | None = None,
        *,
        unit: Literal["beat", "record"] = "beat",
        before: int = 90,
        after: int = 150,
        labels: Sequence[str] = CLASSES,
        mark_peaks: bool = False,
        folds: int = 5,
        fold: int | None = None,
        val_fold: int | None = None,
    ) -> None:
        super().__init__(transform, target_transform)
        self.split, sets = split, Folds(split, folds, fold, val_fold)
        self.unit = check_choice("unit", unit, ("beat", "record"))
        self.before, self.after = check_int("before", before, 0), check_int("after", after, 1)
        self.classes = tuple(check_choice("labels", name, CLASSES) for name in labels)
        if not self.classes or len(set(self.classes)) < len(self.classes):
            raise ValueError(f"labels: expected classes, each once, got {list(labels)}")
        self.root = Path(root)
        found = sorted(path.stem for path in self.root.glob("*.hea"))
        parts: dict[str, Split] = {str(name): sets.part(i % folds) for i, name in enumerate(DS1)}
        if fold is None:
            parts |= dict.fromkeys(map(str, DS2), "test")
        chosen = [name for name in found if name in parts and split in (None, parts[name])]
        if not chosen:
            raise FileNotFoundError(
                f"root {str(root)!r}: expected records ({{record}}.hea, .dat and .atr) for split {split!r}, found "
                f"{', '.join(found[:5]) or 'none'}; {_FETCH}"
            )
        self._headers = {
            name: read_header(self._path(name, ".hea"), self.channels, self.sample_rate) for name in chosen
        }
        self.mark_peaks = bool(mark_peaks)
        self._signals: dict[str, np.ndarray[Any, Any]] = {}
        self._beats = {name: self._read_beats(name) for name in chosen}
        if self.unit == "record":
            self.records = chosen
            self.peaks: Any = [self._beats[name][0] for name in chosen]
            self.targets = [self._over_time(name) for name in chosen]
        else:
            kept = {name: labels != NO_LABEL for name, (_, labels) in self._beats.items()}
            self.records = [name for name in chosen for _ in range(kept[name].sum())]
            peaks, targets = (
                np.concatenate([self._beats[name][part][kept[name]] for name in chosen]) for part in (0, 1)
            )
            self.peaks, self.targets = peaks, torch.from_numpy(targets)

    def signals(self, record: str) -> np.ndarray[Any, Any]:
        """The samples of a record as they are stored, int16 `[T, 2]`; kept in memory, 2.6 MB."""
        if record not in self._signals:
            self._signals[record] = read_signals(self._path(record, ".dat"), self._headers[record])
        return self._signals[record]

    def sample(self, number: int) -> torch.Tensor:
        """The signal in millivolts."""
        record = self.records[number]
        stored, header = self.signals(record), self._headers[record]
        window = np.arange(len(stored) if self.unit == "record" else self.before + self.after)
        if self.unit == "beat":
            window += self.peaks[number] - self.before
        gains, zeros = (np.array(values, np.float32) for values in (header.gains, header.zeros))
        signal = (stored[window.clip(0, len(stored) - 1)] - zeros) / gains
        if self.mark_peaks:
            marks = np.isin(window, self._beats[record][0], kind="table")
            signal = np.concatenate([signal, marks.astype(np.float32)[:, None]], 1)
        return torch.from_numpy(signal)

    def label(self, number: int) -> Any:
        """The class, or one for every sample of the record."""
        return self.targets[number].clone() if self.unit == "record" else super().label(number)

    def _path(self, record: str, suffix: str) -> Path:
        path = self.root / f"{record}{suffix}"
        if not path.is_file():
            raise FileNotFoundError(f"{path}: expected a file of the record, found none; {_FETCH}")
        return path

    def _read_beats(self, record: str) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """R peaks of all beats of a record and their labels, -1 for classes that have none, int64."""
        times, codes = read_annotations(self._path(record, ".atr"), self._headers[record].samples)
        # -2 is no beat.
        labels = np.full(64, NO_LABEL - 1)
        for name, numbers in _CODES.items():
            labels[list(numbers)] = self.classes.index(name) if name in self.classes else NO_LABEL
        beats = labels[codes] >= NO_LABEL
        return times[beats], labels[codes[beats]]

    def _over_time(self, record: str) -> torch.Tensor:
        peaks, labels = self._beats[record]
        over_time = np.full(self._headers[record].samples, NO_LABEL)
        ends = peaks + self.after - 1
        over_time[ends[ends < len(over_time)]] = labels[ends < len(over_time)]
        return torch.from_numpy(over_time)

    def __getstate__(self) -> dict[str, Any]:
        """Without the records, which a process of a data loader reads for itself."""
        return {**self.__dict__, "_signals": {}}

    def __repr__(self) -> str:
        return f"MITBIH({str(self.root)!r}, {self.split}, {len(self)} {self.unit}s of {len(self._headers)} records)"
