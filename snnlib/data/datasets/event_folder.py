"""A data set of one's own: a folder per class, or a table, with event files of any formats."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset

from snnlib.data.checks import check_index, check_int, check_sensor_size, check_transforms
from snnlib.data.datasets.class_folders import (
    FileKind,
    check_folder,
    check_shares,
    complete_splits,
    find_samples,
    natural,
    warn_of_doubles,
)
from snnlib.data.datasets.reader_options import ReaderOptions
from snnlib.data.datasets.splits import Split, split_by_hash
from snnlib.data.event_cache import digest_of
from snnlib.data.formats.event_file import EventFile, EventFileError
from snnlib.data.formats.registry import SUFFIXES, find_format, named_format
from snnlib.data.formats.room import Room
from snnlib.data.reading import Recording, read

Transform = Callable[[Any], Any]

_EVENT_FILES = FileKind("event files", SUFFIXES)


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
        check_transforms(transform, target_transform)
        check_shares(split, test_share, val_share)
        self.root, self.split, self.strict = Path(root), split, bool(strict)
        self.transform, self.target_transform = transform, target_transform
        self.read_options = dict(read_options or {})
        self._options = ReaderOptions(self.read_options)
        self._given_size = None if sensor_size is None else check_sensor_size("sensor_size", sensor_size)
        check_folder(self.root, _EVENT_FILES)
        found = find_samples(self.root, table, _EVENT_FILES)
        self.classes: Sequence[str] = tuple(sorted({sample.label for sample in found}, key=natural))
        seed = check_int("seed", seed, 0)
        splits = complete_splits(found, test_share, val_share, partial(self._split_class, seed=seed))
        chosen = [i for i in range(len(found)) if split is None or splits[i] == split]
        warn_of_doubles(self.root, found, splits)
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
        """Returns what the samples depend on beside the files, for `EventCache`."""
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

    def _split_class(self, names: list[str], test_share: float, val_share: float, seed: int) -> list[Split]:
        """Assign the members of one class; data sets with a usual split of their own replace this."""
        return split_by_hash(names, test_share, val_share, seed)

    def __repr__(self) -> str:
        return (
            f"EventFolder({str(self.root)!r}, {self.split}, {len(self)} samples, {len(self.classes)} classes)"
        )
