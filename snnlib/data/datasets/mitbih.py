"""Heart beats: the MIT-BIH Arrhythmia Database."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from snnlib.checks import check_choice
from snnlib.data.checks import check_int
from snnlib.data.datasets.published import found_or_downloaded
from snnlib.data.datasets.splits import Split, check_folds, set_of
from snnlib.data.formats.wfdb import read_annotations, read_header, read_signals
from snnlib.data.ragged import NO_LABEL
from snnlib.data.samples import Samples, Transform

__all__ = ["MITBIH"]

_FETCH = (
    "download=True downloads it, or fetch mit-bih-arrhythmia-database-1.0.0.zip from physionet.org/content/mitdb and "
    "unpack it"
)
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


RATE, LEADS = 360, 2


class Record:
    """The files of a record: reads beats at once, samples at first use.

    Args:
        path: path without the suffixes `.hea`, `.dat` and `.atr`.

    Attributes:
        samples: number of samples of the record.
        peaks, codes: R peaks of all beats, and their annotation codes, int64.

    Raises:
        FileNotFoundError: one of the files is missing.
        EventFileError: a damaged file, or a format other than 212, other leads or another rate.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._header = read_header(self._file(".hea"), LEADS, RATE)
        self.samples = self._header.samples
        times, codes = read_annotations(self._file(".atr"), self.samples)
        beats = np.isin(codes, [number for numbers in _CODES.values() for number in numbers])
        self.peaks, self.codes = times[beats], codes[beats]

    def millivolts(self, window: Any = slice(None)) -> torch.Tensor:
        """Returns the signal, float32 `[samples, 2]`, or a part of it."""
        gains, zeros = (np.array(values, np.float32) for values in (self._header.gains, self._header.zeros))
        return torch.from_numpy((self._stored[window] - zeros) / gains)

    @cached_property
    def _stored(self) -> np.ndarray[Any, Any]:
        return read_signals(self._file(".dat"), self._header)

    def _file(self, suffix: str) -> Path:
        file = self.path.with_name(f"{self.path.name}{suffix}")
        if not file.is_file():
            raise FileNotFoundError(f"{file}: expected a file of the record, found none; {_FETCH}")
        return file

    def __getstate__(self) -> dict[str, Any]:
        """Returns the state without samples, which each process of a data loader reads itself."""
        return {name: value for name, value in self.__dict__.items() if name != "_stored"}


class MITBIH(Samples):
    """Electrocardiograms of 44 records, two leads in millivolts, 360 samples a second, with a label for every beat.

    Layout: `root/{record}.hea`, `.dat` and `.atr`, as published. Records of patients with a pacemaker are left out.

    `unit="beat"`: `(signal, label)` for each beat, float32 `[before + after, 2]` around its annotated R peak, which is
    sample `before`; beyond the ends of the record its first or last sample is repeated. `unit="record"`:
    `(signal [T, 2], labels [T])` of each whole record. The int64 label of a beat is at the last sample of its window,
    `after` samples after its R peak; other samples have -1. A beat that ends after the record has no label.

    The training set is DS1 and the test set DS2 of de Chazal. With `fold`, DS1 is divided: record i by number is in
    fold i % `folds`; fold `fold` is the test set, the other folds are the training set. No patient is in two sets.

    Args:
        root: the folder. Default: that of `snnlib.data.download("mitbih")`, in the library's cache folder.
        split: `"train"`, `"test"`, or None for all records in the folder.
        transform: maps the signal.
        target_transform: maps the label or labels.
        unit: `"beat"` or `"record"`. Default `"beat"`.
        before, after: samples of a beat before and from its R peak. Default 90 and 150: a quarter of a second, and
            0.42 s, in which the T wave ends.
        labels: classes with labels; beats of other classes are left out, and have -1 in whole records. Default all
            five.
        folds: number of folds. Default 5.
        fold: the test fold. Default None: DS2 is the test set.
        download: whether to download missing files, see `snnlib.data.download`. Default False.

    Attributes:
        classes: names of the labels, among N (normal), S (supraventricular), V (ventricular), F (fusion), Q (unknown).
        targets: labels, int64 `[S]`; for whole records a list of `[T]`.
        records: record of each sample.
        peaks: sample of the R peak of each beat; for whole records an array per record.
        sample_rate: 360.

    Raises:
        DownloadError: see `snnlib.data.download`.
        FileNotFoundError: no records, none of a set, or a missing file; the message says what to download.
        ValueError: an option out of its range.
        EventFileError: a damaged file, a format other than 212 or another rate; the message names file and byte.

    Source: Moody and Mark, "The impact of the MIT-BIH Arrhythmia Database", 2001; PhysioNet, ODC-BY 1.0.

    >>> beats = snnlib.data.MITBIH("mitdb", "test", fold=0)  # doctest: +SKIP
    >>> signal, label = beats[0]  # doctest: +SKIP
    """

    sample_rate, channels = RATE, LEADS

    def __init__(
        self,
        root: str | os.PathLike[str] | None = None,
        split: Split | None = "train",
        transform: Transform | None = None,
        target_transform: Transform | None = None,
        *,
        unit: Literal["beat", "record"] = "beat",
        before: int = 90,
        after: int = 150,
        labels: Sequence[str] = CLASSES,
        folds: int = 5,
        fold: int | None = None,
        download: bool = False,
    ) -> None:
        super().__init__(transform, target_transform)
        check_folds(split, folds, fold)
        self.split = split
        self.unit = check_choice("unit", unit, "beat", "record")
        self.before, self.after = check_int("before", before, 0), check_int("after", after, 1)
        self.classes = tuple(check_choice("labels", name, *CLASSES) for name in labels)
        if not self.classes or len(set(self.classes)) < len(self.classes):
            raise ValueError(f"labels: expected classes, each once, got {list(labels)}")
        self.root = found_or_downloaded("mitbih", root, download)
        found = sorted(path.stem for path in self.root.glob("*.hea"))
        parts: dict[str, Split] = {str(name): set_of(i % folds, fold) for i, name in enumerate(DS1)}
        if fold is None:
            parts |= dict.fromkeys(map(str, DS2), "test")
        chosen = [name for name in found if name in parts and split in (None, parts[name])]
        if not chosen:
            raise FileNotFoundError(
                f"root {str(root)!r}: expected records ({{record}}.hea, .dat and .atr) for split {split!r}, found "
                f"{', '.join(found[:5]) or 'none'}; {_FETCH}"
            )
        self._records = {name: Record(self.root / name) for name in chosen}
        # The label of each code.
        labels_of = np.full(64, NO_LABEL)
        for label, name in enumerate(self.classes):
            labels_of[list(_CODES[name])] = label
        of_beats = {name: labels_of[record.codes] for name, record in self._records.items()}
        if self.unit == "record":
            self.records = chosen
            self.peaks: Any = [self._records[name].peaks for name in chosen]
            self.targets = [self._over_time(self._records[name], of_beats[name]) for name in chosen]
        else:
            kept = {name: found != NO_LABEL for name, found in of_beats.items()}
            self.records = [name for name in chosen for _ in range(kept[name].sum())]
            self.peaks = np.concatenate([self._records[name].peaks[kept[name]] for name in chosen])
            targets = np.concatenate([of_beats[name][kept[name]] for name in chosen])
            self.targets = torch.from_numpy(targets)

    def sample(self, number: int) -> torch.Tensor:
        """The signal in millivolts."""
        record = self._records[self.records[number]]
        if self.unit == "record":
            return record.millivolts()
        window = self.peaks[number] + np.arange(-self.before, self.after)
        return record.millivolts(window.clip(0, record.samples - 1))

    def label(self, number: int) -> Any:
        """The class, or one for every sample of the record."""
        return self.targets[number].clone() if self.unit == "record" else super().label(number)

    def _over_time(self, record: Record, labels: np.ndarray[Any, Any]) -> torch.Tensor:
        over_time, ends = np.full(record.samples, NO_LABEL), record.peaks + self.after - 1
        over_time[ends[ends < record.samples]] = labels[ends < record.samples]
        return torch.from_numpy(over_time)

    def __repr__(self) -> str:
        return f"MITBIH({str(self.root)!r}, {self.split}, {len(self)} {self.unit}s of {len(self._records)} records)"
