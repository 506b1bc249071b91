"""Folders with files by class: which files there are, of which class, in which split."""

from __future__ import annotations

import csv
import hashlib
import os
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from snnlib.checks import check_choice
from snnlib.data.checks import check_int
from snnlib.data.datasets.splits import SPLITS, Split, some_names, split_by_hash, warn_of_foreign, warn_once
from snnlib.data.formats.event_file import EventFileError, check_regular
from snnlib.data.samples import Samples, Transform

TABLE = "labels.csv"
SPLIT_FOLDERS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("val", "valid", "validation"), "val"),
    **dict.fromkeys(("test", "testing"), "test"),
}
# Files that lie beside recordings and are none, whatever their suffix.
NOT_SAMPLES = ("readme", "license", "labels", "classes")
_DOUBLE_BYTES = 1 << 16


@dataclass(frozen=True)
class Sample:
    """A file by its name relative to the root, with its class and split."""

    name: str
    label: str
    split: Split | None


@dataclass(frozen=True)
class FileKind:
    """Kind of files that a folder is searched for.

    Args:
        name: of such files, for messages.
        noun: for what they hold.
        suffixes: of their names, in lower case.
    """

    name: str
    noun: str
    suffixes: Collection[str]


class ClassFolder(Samples):
    """The samples of a split of a folder by classes, or of a table.

    Args:
        root: the folder.
        split: `"train"`, `"val"`, `"test"`, or None for all samples.
        transform, target_transform: as of `Samples`.
        table: the table's path, relative to `root`; default `labels.csv` where there is one.
        test_share, val_share: shares of each class for these sets, where the folder gives none.
        seed: of the split by hash.

    Attributes:
        kind: of its files.
        classes: class names, sorted; the label is the index. The same for every split.
        targets: labels, int64 `[S]`.
        files: names relative to `root`, sorted by class and name.
        all_files: those of all splits.

    Raises:
        FileNotFoundError: `root` or the table is missing, or names a missing file.
        EventFileError: no samples, or a damaged table.
        ValueError: shares that leave nothing to train on.
    """

    kind: FileKind
    # Assigns the members of one class; data sets with a usual split of their own replace it.
    split_class = staticmethod(split_by_hash)

    def __init__(
        self,
        root: str | os.PathLike[str],
        split: Split | None,
        transform: Transform | None,
        target_transform: Transform | None,
        table: str | os.PathLike[str] | None,
        test_share: float,
        val_share: float,
        seed: int,
    ) -> None:
        super().__init__(transform, target_transform)
        for name, share in (("test_share", test_share), ("val_share", val_share)):
            if not 0 <= share < 1 or not test_share + val_share < 1:
                raise ValueError(f"{name}: expected a share in 0..1, both together below 1, got {share}")
        if split is not None:
            check_choice("split", split, *SPLITS)
        seed = check_int("seed", seed, 0)
        self.root, self.split = Path(root), split
        if not self.root.is_dir():
            what = "a file" if self.root.exists() else "nothing"
            raise FileNotFoundError(
                f"root {str(root)!r}: expected a folder of {self.kind.name}, found {what} there"
            )
        found = find_samples(self.root, table, self.kind)
        splits = complete_splits(found, test_share, val_share, partial(self.split_class, seed=seed))
        warn_of_doubles(self.root, found, splits)
        chosen = [sample for sample, part in zip(found, splits, strict=True) if split in (None, part)]
        if not chosen:
            raise EventFileError(
                f"{root}: expected {self.kind.noun} for the split {split!r}, found none among {len(found)}; add "
                f"{self.kind.noun}, or raise {split}_share"
            )
        self.classes: Sequence[str] = tuple(sorted({sample.label for sample in found}, key=natural))
        index = {label: number for number, label in enumerate(self.classes)}
        self.targets = torch.tensor([index[sample.label] for sample in chosen], dtype=torch.int64)
        self.files, self.all_files = [sample.name for sample in chosen], [sample.name for sample in found]

    def file_stamps(self) -> list[list[Any]]:
        """Name, size and time of change of each sample's file, and its label, which a table may change alone."""
        status = [(self.root / name).stat() for name in self.files]
        return [
            [name, found.st_size, found.st_mtime_ns, label]
            for name, found, label in zip(self.files, status, self.targets.tolist(), strict=True)
        ]

    def __repr__(self) -> str:
        what = f"{len(self)} {self.kind.noun}, {len(self.classes)} classes"
        return f"{type(self).__name__}({str(self.root)!r}, {self.split}, {what})"


def find_samples(root: Path, table: str | os.PathLike[str] | None, kind: FileKind) -> list[Sample]:
    """The files of a table, of `labels.csv` where there is one, or of one folder per class; by class, then by name."""
    path = root / (table if table is not None else TABLE)
    found = from_table(path, root) if table is not None or path.is_file() else from_folders(root, kind)
    return sorted(found, key=lambda sample: (natural(sample.label), natural(sample.name)))


def complete_splits(
    samples: list[Sample],
    test_share: float,
    val_share: float,
    split_class: Callable[[list[str], float, float], list[Split]],
) -> list[Split]:
    """The given splits; where none has a test or validation set, a part of each class."""
    given = {sample.split for sample in samples}
    shares = (0.0 if "test" in given else test_share, 0.0 if "val" in given else val_share)
    result: list[Split] = [sample.split or "train" for sample in samples]
    members: dict[str, list[int]] = defaultdict(list)
    for number, sample in enumerate(samples):
        if result[number] == "train":
            members[sample.label].append(number)
    for numbers in members.values():
        parts = split_class([samples[number].name for number in numbers], *shares)
        for number, part in zip(numbers, parts, strict=True):
            result[number] = part
    return result


def natural(name: str) -> tuple[tuple[int, int | str], ...]:
    """A key that sorts 2 before 10."""
    parts: list[tuple[int, int | str]] = []
    for part in name.replace("\\", "/").split("/"):
        stem = part.split(".")[0]
        parts.append((0, int(stem)) if stem.isascii() and stem.isdigit() else (1, part))
        parts.append((2, part))
    return tuple(parts)


def from_folders(root: Path, kind: FileKind) -> list[Sample]:
    """The files of one folder per class, or of such folders within those of splits."""
    folders = sorted(path for path in root.iterdir() if path.is_dir() and not path.name.startswith("."))
    splits = [SPLIT_FOLDERS.get(path.name.lower()) for path in folders]
    # A folder of documents beside sets to train on and to test on does not make classes of them.
    by_split = bool(folders) and (None not in splits or {"train", "test"} <= set(splits))
    samples: list[Sample] = []
    foreign: list[str] = []
    empty: list[str] = []
    places: list[tuple[Path, Split | None]] = [(root, None)]
    if by_split:
        places = [(path, split) for path, split in zip(folders, splits, strict=True) if split]  # type: ignore[misc]
        foreign = [f"{path.name}/" for path, split in zip(folders, splits, strict=True) if not split]
    for place, split in places:
        for path in sorted(place.iterdir()):
            if path.name.startswith(".") or path.name == "__MACOSX" or (path in folders and by_split):
                continue
            if path.is_dir():
                count = len(samples)
                _collect(path, root, path.name, split, samples, foreign, kind)
                if len(samples) == count:
                    empty.append(path.relative_to(root).as_posix())
            elif path.name != TABLE:
                foreign.append(path.relative_to(root).as_posix())
    if not samples:
        found = ", ".join(foreign[:5]) or "an empty folder"
        raise EventFileError(
            f"{root}: expected {kind.name} in one folder per class (<class>/<file>), found {found}; known suffixes: "
            f"{' '.join(sorted(kind.suffixes))}"
        )
    warn_of_foreign(root, foreign, f"no {kind.name} in a class folder")
    if empty:
        warn_once(f"{root}: {some_names(empty)}: class folders without recordings")
    return samples


def _collect(
    folder: Path,
    root: Path,
    label: str,
    split: Split | None,
    samples: list[Sample],
    foreign: list[str],
    kind: FileKind,
) -> None:
    """The files below a class folder; links are followed, but not to a folder above."""
    for path, folders, files in os.walk(folder, followlinks=True):
        here = Path(path)
        above = {here.resolve(), *here.resolve().parents}
        folders[:] = sorted(
            name for name in folders if not name.startswith(".") and (here / name).resolve() not in above
        )
        for name in sorted(files):
            if name.startswith("."):
                continue
            relative = (here / name).relative_to(root).as_posix()
            if Path(name).suffix.lower() in kind.suffixes and not name.lower().startswith(NOT_SAMPLES):
                samples.append(Sample(relative, label, split))
            else:
                foreign.append(relative)


def from_table(path: Path, root: Path) -> list[Sample]:
    """The files that a table names."""
    if not path.is_file():
        raise FileNotFoundError(
            f"table {str(path)!r}: expected a CSV file with the columns file and label, found none"
        )
    check_regular(path)
    samples: list[Sample] = []
    seen: dict[str, int] = {}
    with path.open(newline="", encoding="utf-8-sig") as file:
        try:
            rows = csv.DictReader(file)
            names = {(name or "").strip().lower(): name for name in rows.fieldnames or ()}
            if "file" not in names or "label" not in names:
                raise EventFileError(
                    f"{path}: expected the columns file and label, found {', '.join(names) or 'none'}"
                )
            for number, row in enumerate(rows, 2):
                name, label = (row[names["file"]] or "").strip(), (row[names["label"]] or "").strip()
                given = (row[names["split"]] or "").strip().lower() if "split" in names else ""
                if not name or not label or (given and given not in SPLIT_FOLDERS):
                    raise EventFileError(
                        f"{path}: line {number}: expected a file, a label and perhaps train, val or test, found {row}"
                    )
                if name in seen:
                    raise EventFileError(f"{path}: line {number}: {name} is already in line {seen[name]}")
                if not (root / name).is_file():
                    raise FileNotFoundError(
                        f"{path}: line {number}: expected the file {root / name}, found none"
                    )
                seen[name] = number
                samples.append(Sample(name, label, SPLIT_FOLDERS[given] if given else None))  # type: ignore[arg-type]
        except (csv.Error, UnicodeDecodeError) as error:
            raise EventFileError(f"{path}: expected a CSV table, found a damaged one ({error})") from error
    if not samples:
        raise EventFileError(f"{path}: expected rows of files and labels, found none")
    return samples


def warn_of_doubles(root: Path, samples: list[Sample], splits: list[Split]) -> None:
    """Name files of equal content; worst where one of them is in the test set."""
    by_size: dict[int, list[int]] = defaultdict(list)
    for number, sample in enumerate(samples):
        by_size[(root / sample.name).stat().st_size].append(number)
    doubles: list[str] = []
    across = 0
    for size, numbers in by_size.items():
        if len(numbers) < 2 or size == 0:
            continue
        first: dict[bytes, int] = {}
        for number in numbers:
            with (root / samples[number].name).open("rb") as file:
                head, end = file.read(_DOUBLE_BYTES), b""
                if size > 2 * _DOUBLE_BYTES:
                    file.seek(-_DOUBLE_BYTES, os.SEEK_END)
                    end = file.read()
            key = hashlib.sha256(head + end).digest()
            before = first.setdefault(key, number)
            if before != number:
                doubles.append(f"{samples[before].name} = {samples[number].name}")
                across += splits[before] != splits[number]
    if doubles:
        easy = f"; {across} of these pairs lie in different splits, so the test is too easy" if across else ""
        warn_once(f"{root}: files of equal content: {some_names(doubles)}{easy}")
