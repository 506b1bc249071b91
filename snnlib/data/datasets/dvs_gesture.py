"""DVS Gesture: eleven gestures of 29 people before a DVS128, as published or exported."""

from __future__ import annotations

import csv
import os
import re
from pathlib import Path

import numpy as np
import torch

from snnlib.checks import check_choice
from snnlib.data.datasets.splits import SPLITS, Split
from snnlib.data.events import Events
from snnlib.data.formats.event_file import EventFileError, check_regular
from snnlib.data.reading import read
from snnlib.data.samples import Samples, Transform

__all__ = ["DVSGesture"]

GESTURES = (
    *(
        "hand clapping",
        "right hand wave",
        "left hand wave",
        "right arm clockwise",
        "right arm counter clockwise",
    ),
    *("left arm clockwise", "left arm counter clockwise"),
    *("arm roll", "air drums", "air guitar", "other gestures"),
)
_FETCH = "fetch DvsGesture.tar.gz (research.ibm.com/interactive/dvsgesture, ibm.box.com) and unpack it"
# Every eighth training person, the last by number, validates.
_VAL_PEOPLE = 8


class DVSGesture(Samples):
    """Gestures as `(events, label)`, labels 0 to 10; split by person.

    Two layouts are recognised, in `root` or in `root/DvsGesture`:

    - as published: `userNN_<light>.aedat` (3.1) with `userNN_<light>_labels.csv` (`class,startTime_usec,endTime_usec`,
      classes 1 to 11), and `trials_to_train.txt` and `trials_to_test.txt`, which list the recordings of each split. A
      sample is the part of a recording between the two times; a class may appear more than once;
    - exported: `ibmGestureTrain/userNN_<light>/<label>.npy` and `ibmGestureTest/...`, columns x, y, p, t in
      milliseconds, labels 0 to 10.

    The validation set is the last eighth of the training people by number (users 21 to 23 of 23); the people of the
    test set are in neither. Times start at the first event of a sample.

    Args:
        root: the folder.
        split: `"train"`, `"val"` or `"test"`.
        transform: maps the event array of a sample.
        target_transform: maps the label.

    Attributes:
        classes: names of the gestures.
        targets: labels, int64 `[S]`.
        sensor_size: `(128, 128)`.

    Raises:
        FileNotFoundError: neither layout, or a listed recording is missing.
        EventFileError: a damaged label file.

    Source: Amir et al., "A Low Power, Fully Event-Based Gesture Recognition System", CVPR 2017.
    """

    classes = GESTURES
    sensor_size = (128, 128)

    def __init__(
        self,
        root: str | os.PathLike[str],
        split: Split = "train",
        transform: Transform | None = None,
        target_transform: Transform | None = None,
    ) -> None:
        super().__init__(transform, target_transform)
        check_choice("split", split, *SPLITS)
        self.split = split
        place = Path(root)
        self.root = place / "DvsGesture" if (place / "DvsGesture").is_dir() else place
        listed = self.root / f"trials_to_{'test' if split == 'test' else 'train'}.txt"
        exported = self.root / f"ibmGesture{'Test' if split == 'test' else 'Train'}"
        # File, label, and the times between which the sample lies (None: all of it).
        self._samples: list[tuple[Path, int, tuple[int, int] | None]]
        if listed.is_file():
            check_regular(listed)
            names = [line.strip() for line in listed.read_text().splitlines() if line.strip()]
            self._samples = [
                sample for name in _of_split(names, split) for sample in _published(self.root / name)
            ]
        elif exported.is_dir():
            names = sorted(path.name for path in exported.iterdir() if path.is_dir())
            self._samples = [
                sample for name in _of_split(names, split) for sample in _exported(exported / name)
            ]
        else:
            raise FileNotFoundError(
                f"root {str(root)!r}: expected {listed.name} or {exported.name}/ in it, found neither; {_FETCH}"
            )
        if not self._samples:
            raise EventFileError(
                f"{self.root}: expected samples for the split {split!r}, found none; {_FETCH}"
            )
        self.targets = torch.tensor([label for _, label, _ in self._samples], dtype=torch.int64)

    def sample(self, number: int) -> Events:
        """Events of a gesture."""
        path, _, times = self._samples[number]
        if times is None:
            return read(path, columns="xypt", unit="ms", origin="first", sensor_size=(128, 128)).events
        events = read(path, origin=0, sensor_size=(128, 128)).events
        first, last = np.searchsorted(np.ascontiguousarray(events["t"]), times)
        events = events[first:last].copy()
        if len(events):
            events["t"] -= events["t"][0]
        return events

    def __repr__(self) -> str:
        return f"DVSGesture({str(self.root)!r}, {self.split}, {len(self)} samples)"


def _person(name: str) -> int:
    found = re.match(r"user(\d+)", name)
    if found is None:
        raise EventFileError(f"expected recordings named userNN_<light>, found {name!r}")
    return int(found[1])


def _of_split(names: list[str], split: Split) -> list[str]:
    """The recordings of a split: the validation people are taken from the training list."""
    if split == "test":
        return sorted(names)
    people = sorted({_person(name) for name in names})
    held = set(people[len(people) - len(people) // _VAL_PEOPLE :])
    return sorted(name for name in names if (_person(name) in held) == (split == "val"))


def _published(path: Path) -> list[tuple[Path, int, tuple[int, int] | None]]:
    if not path.is_file():
        raise FileNotFoundError(
            f"{path}: expected a recording that the list of trials names, found none; {_FETCH}"
        )
    table = path.with_name(f"{path.stem}_labels.csv")
    if not table.is_file():
        raise FileNotFoundError(f"{table}: expected the labels of {path.name}, found none; {_FETCH}")
    check_regular(table)
    samples: list[tuple[Path, int, tuple[int, int] | None]] = []
    with table.open(newline="") as file:
        for number, row in enumerate(csv.DictReader(file), 2):
            try:
                label = int(row["class"]) - 1
                times = int(row["startTime_usec"]), int(row["endTime_usec"])
            except (KeyError, TypeError, ValueError):
                raise EventFileError(
                    f"{table}: line {number}: expected class,startTime_usec,endTime_usec, found {row}"
                ) from None
            if not 0 <= label < len(GESTURES) or times[0] > times[1]:
                raise EventFileError(
                    f"{table}: line {number}: expected a class in 1..11 and rising times, found {row}"
                )
            samples.append((path, label, times))
    return samples


def _exported(folder: Path) -> list[tuple[Path, int, tuple[int, int] | None]]:
    samples: list[tuple[Path, int, tuple[int, int] | None]] = []
    for path in sorted(folder.glob("*.npy"), key=lambda path: (len(path.stem), path.stem)):
        if not path.stem.isdigit() or int(path.stem) >= len(GESTURES):
            raise EventFileError(f"{path}: expected a file named like its label, 0.npy to 10.npy")
        samples.append((path, int(path.stem), None))
    return samples
