"""A data set of one's own: a folder per class, or a table, with event files of any formats."""

from __future__ import annotations

import csv
import hashlib
import os
import warnings
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset

from snnlib.data.checks import check_choice, check_index, check_int, check_sensor_size
from snnlib.data.datasets.reader_options import ReaderOptions
from snnlib.data.datasets.splits import SPLITS, Split, some_names, split_by_hash
from snnlib.data.event_cache import digest_of
from snnlib.data.formats.base import EventFile, EventFileError, Room
from snnlib.data.formats.registry import SUFFIXES, find_format, named_format
from snnlib.data.reading import Recording, read

Transform = Callable[[Any], Any]

TABLE = "labels.csv"
SPLIT_FOLDERS = {
    "train": "train",
    "training": "train",
    "val": "val",
    "valid": "val",
    "validation": "val",
    "test": "test",
    "testing": "test",
}
# Files that lie beside recordings and are none, whatever their suffix.
NOT_EVENTS = ("readme", "license", "labels", "classes")
_DOUBLE_BYTES = 1 << 16


@dataclass(frozen=True)
class _Sample:
    name: str
    label: str
    split: Split | None


class EventFolder(Dataset[tuple[Any, Any]]):
    """Event files of any known formats as `(events, label)` pairs.

    Layouts, found by themselves:

    - `root/<class>/.../<file>`: one folder per class, named like the class;
    - `root/train/<class>/...`, `root/test/<class>/...` and perhaps `root/val/<class>/...`;
    - `root/labels.csv` (or `table=`) with the columns `file`, `label` and perhaps `split` (train, val or test).

    Where no test or validation set is given, a part of each class is taken by a hash of the file's name: the same on
    every machine, without regard to the order of files. Times start at the first event of each recording.

    Hidden files are ignored. Other files that are no event files, files with the same content and classes without
    recordings are named in a warning.

    Args:
        root: the folder.
        split: `"train"`, `"val"`, `"test"`, or None for all samples.
        transform: maps the event array of a sample, for example `ToFrames(sensor_size=...)`.
        target_transform: maps the label, an int.
        table: the table's path, relative to `root`; default `labels.csv` where there is one.
        test_share: share of each class for the test set, where the folder gives none.
        val_share: share of each class for the validation set, where the folder gives none.
        seed: of the split by hash.
        sensor_size: `(height, width)`; default: the largest of what headers say and events show.
        strict: whether a truncated file raises; else its whole records are kept with a warning.
        read_options: further options of `snnlib.data.read`, for example `{"columns": "xypt", "unit": "ms"}`, for the
            files whose format has them; or for the files of a suffix alone, `{".npy": {"columns": "txyp"}}`.

    Attributes:
        classes: class names, sorted; the label is the index. The same for every split.
        targets: labels of the samples, int64 `[S]`.
        files: names relative to `root`, sorted by class and name.
        sensor_size: `(height, width)`; found by reading files when first asked for.

    Raises:
        FileNotFoundError: `root` or the table is missing, or names a missing file.
        EventFileError: no recordings, or a damaged table; on access, a damaged recording.
        TypeError: an option that no file's format has.

    Example:
        >>> import pathlib, tempfile
        >>> from snnlib.data import as_events, write
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> for number, name in enumerate(["left/a.raw", "left/b.raw", "right/c.raw", "right/d.raw"]):
        ...     (folder / name).parent.mkdir(exist_ok=True)
        ...     write(folder / name, as_events([number], [3], [4], [1]), format="evt3", sensor_size=(48, 64))
        >>> samples = EventFolder(folder, split=None)
        >>> len(samples), samples.classes, samples.targets.tolist(), samples.sensor_size
        (4, ('left', 'right'), [0, 0, 1, 1], (48, 64))
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        split: Split | None = "train",
        transform: Transform | None = None,
        target_transform: Transform | None = None,
        *,
        table: str | os.PathLike[str] | None = None,
        test_share: float = 0.2,
        val_share: float = 0.1,
        seed: int = 0,
        sensor_size: tuple[int, int] | None = None,
        strict: bool = False,
        read_options: dict[str, Any] | None = None,
    ) -> None:
        for name, value in (("transform", transform), ("target_transform", target_transform)):
            if value is not None and not callable(value):
                raise TypeError(f"{name}: expected a callable or None, got {value!r}")
        for name, share in (("test_share", test_share), ("val_share", val_share)):
            if not 0 <= share < 1 or not test_share + val_share < 1:
                raise ValueError(f"{name}: expected a share in 0..1, both together below 1, got {share}")
        if split is not None:
            check_choice("split", split, SPLITS)
        self.root, self.split, self.strict = Path(root), split, bool(strict)
        self.transform, self.target_transform = transform, target_transform
        self.read_options = dict(read_options or {})
        self._options = ReaderOptions(self.read_options)
        self._given_size = None if sensor_size is None else check_sensor_size("sensor_size", sensor_size)
        if not self.root.is_dir():
            what = "a file" if self.root.exists() else "nothing"
            raise FileNotFoundError(
                f"root {str(root)!r}: expected a folder of event files, found {what} there"
            )
        path = self.root / (table if table is not None else TABLE)
        found = (
            _from_table(path, self.root) if table is not None or path.is_file() else _from_folders(self.root)
        )
        self.classes: Sequence[str] = tuple(sorted({sample.label for sample in found}, key=_natural))
        found.sort(key=lambda sample: (_natural(sample.label), _natural(sample.name)))
        splits = self._complete_splits(found, test_share, val_share, check_int("seed", seed, 0))
        chosen = [i for i in range(len(found)) if split is None or splits[i] == split]
        _warn_of_doubles(self.root, found, splits)
        if not chosen:
            raise EventFileError(
                f"{root}: expected recordings for the split {split!r}, found none among {len(found)}; add recordings, "
                f"or raise {split}_share"
            )
        self.files = [found[i].name for i in chosen]
        index = {label: number for number, label in enumerate(self.classes)}
        self.targets = torch.tensor([index[found[i].label] for i in chosen], dtype=torch.int64)
        self._all_files = [sample.name for sample in found]
        self._options.check(self.root / name for name in self._all_files)

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        events: Any = self.read(index).events
        label: Any = int(self.targets[index])
        if self.transform is not None:
            events = self.transform(events)
        if self.target_transform is not None:
            label = self.target_transform(label)
        return events, label

    def read(self, index: int) -> Recording:
        """Events and header of a sample, without transforms."""
        number = check_index(index, len(self))
        path = self.root / self.files[number]
        options = {"origin": "first", "strict": self.strict, **self._options.of(path)}
        return read(path, sensor_size=self._given_size, **options)

    def options_of(self, name: str) -> dict[str, Any]:
        """The `read_options` of a file, named as in `files`."""
        return self._options.of(self.root / name)

    @cached_property
    def sensor_size(self) -> tuple[int, int]:
        """The given size, else the largest that headers of all splits say; else what the events show."""
        if self._given_size is not None:
            return self._given_size
        height = width = 0
        for name in self._all_files:
            given = self.options_of(name)
            with EventFile(self.root / name) as file:
                format = named_format(given["format"]) if "format" in given else find_format(file)
                options = {key: value for key, value in given.items() if key in format.options}
                header, _ = format.decode(file, Room(file), options)
            size = header.sensor_size
            if size is None:
                events = read(self.root / name, **given).events
                size = int(events["y"].max(initial=-1)) + 1, int(events["x"].max(initial=-1)) + 1
            height, width = max(height, size[0]), max(width, size[1])
        return max(height, 1), max(width, 1)

    def cache_key(self) -> list[str]:
        """What the samples depend on beside the files, for `EventCache`."""
        options = sorted((name, repr(value)) for name, value in self.read_options.items())
        parts = (self.root.resolve(), self.split, self.strict, self._given_size, options, self.classes)
        return [type(self).__name__, *map(str, parts)]

    def file_stamps(self) -> list[list[Any]]:
        """Name, size and time of change of each sample's file, and its label, which a table may change alone."""
        status = [(self.root / name).stat() for name in self.files]
        return [
            [name, found.st_size, found.st_mtime_ns, label]
            for name, found, label in zip(self.files, status, self.targets.tolist(), strict=True)
        ]

    def file_digest(self, index: int) -> str:
        """Hash of a sample's file."""
        return digest_of((self.root / self.files[index]).read_bytes())

    def _complete_splits(
        self, samples: list[_Sample], test_share: float, val_share: float, seed: int
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
            parts = self._split_class([samples[number].name for number in numbers], *shares, seed)
            for number, part in zip(numbers, parts, strict=True):
                result[number] = part
        return result

    def _split_class(self, names: list[str], test_share: float, val_share: float, seed: int) -> list[Split]:
        """Assign the members of one class; data sets with a usual split of their own replace this."""
        return split_by_hash(names, test_share, val_share, seed)

    def __repr__(self) -> str:
        return (
            f"EventFolder({str(self.root)!r}, {self.split}, {len(self)} samples, {len(self.classes)} classes)"
        )


def _natural(name: str) -> tuple[tuple[int, int | str], ...]:
    """Sorts 2 before 10."""
    parts: list[tuple[int, int | str]] = []
    for part in name.replace("\\", "/").split("/"):
        stem = part.split(".")[0]
        parts.append((0, int(stem)) if stem.isascii() and stem.isdigit() else (1, part))
        parts.append((2, part))
    return tuple(parts)


def _from_folders(root: Path) -> list[_Sample]:
    folders = sorted(path for path in root.iterdir() if path.is_dir() and not path.name.startswith("."))
    splits = [SPLIT_FOLDERS.get(path.name.lower()) for path in folders]
    # Beside sets to train on and to test on, a folder of documents does not make classes of them.
    by_split = bool(folders) and (None not in splits or {"train", "test"} <= set(splits))
    samples: list[_Sample] = []
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
                _collect(path, root, path.name, split, samples, foreign)
                if len(samples) == count:
                    empty.append(path.relative_to(root).as_posix())
            elif path.name != TABLE:
                foreign.append(path.relative_to(root).as_posix())
    if not samples:
        found = ", ".join(foreign[:5]) or "an empty folder"
        raise EventFileError(
            f"{root}: expected event files in one folder per class (<class>/<file>), found {found}; known suffixes: "
            f"{' '.join(sorted(SUFFIXES))}"
        )
    if foreign:
        warnings.warn(
            f"{root}: {some_names(foreign)} left out: no event files in a class folder", stacklevel=4
        )
    if empty:
        warnings.warn(f"{root}: {some_names(empty)}: class folders without recordings", stacklevel=4)
    return samples


def _collect(
    folder: Path, root: Path, label: str, split: Split | None, samples: list[_Sample], foreign: list[str]
) -> None:
    """The event files below a class folder; links are followed, but not to a folder above."""
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
            if Path(name).suffix.lower() in SUFFIXES and not name.lower().startswith(NOT_EVENTS):
                samples.append(_Sample(relative, label, split))
            else:
                foreign.append(relative)


def _from_table(path: Path, root: Path) -> list[_Sample]:
    if not path.is_file():
        raise FileNotFoundError(
            f"table {str(path)!r}: expected a CSV file with the columns file and label, found none"
        )
    samples: list[_Sample] = []
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
                    raise EventFileError(f"{path}: line {number}: {name} stands in line {seen[name]} already")
                if not (root / name).is_file():
                    raise FileNotFoundError(
                        f"{path}: line {number}: expected the file {root / name}, found none"
                    )
                seen[name] = number
                samples.append(_Sample(name, label, SPLIT_FOLDERS[given] if given else None))  # type: ignore[arg-type]
        except (csv.Error, UnicodeDecodeError) as error:
            raise EventFileError(f"{path}: expected a CSV table, found a damaged one ({error})") from error
    if not samples:
        raise EventFileError(f"{path}: expected rows of files and labels, found none")
    return samples


def _warn_of_doubles(root: Path, samples: list[_Sample], splits: list[Split]) -> None:
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
        warnings.warn(
            f"{root}: files of equal content: {some_names(doubles)}"
            + (
                f"; {across} of these pairs lie in different splits, so the test is too easy"
                if across
                else ""
            ),
            stacklevel=4,
        )
