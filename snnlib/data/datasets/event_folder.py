"""Your own recordings as a data set: a folder per class, or a table, with event files of any format."""

from __future__ import annotations

import os
from functools import cached_property
from typing import Any

from snnlib.data.checks import check_index, check_sensor_size
from snnlib.data.datasets.class_folders import ClassFolder, FileKind
from snnlib.data.datasets.reader_options import ReaderOptions
from snnlib.data.datasets.splits import Split
from snnlib.data.event_cache import digest_of
from snnlib.data.events import Events
from snnlib.data.formats.event_file import EventFile
from snnlib.data.formats.event_sink import EventSink
from snnlib.data.formats.registry import SUFFIXES, find_format, named_format
from snnlib.data.reading import Recording, read
from snnlib.data.samples import Transform

__all__ = ["EventFolder"]


class EventFolder(ClassFolder):
    """Event files of any known formats as `(events, label)` pairs.

    Layouts, recognised automatically:

    - `root/<class>/.../<file>`: one folder per class, named like the class;
    - `root/train/<class>/...`, `root/test/<class>/...` and optionally `root/val/<class>/...`;
    - `root/labels.csv` (or `table=`) with the columns `file`, `label` and optionally `split` (train, val or test).

    Without a given test or validation set, a hash of the file's name selects a part of each class: the same on every
    machine, in any order of files. Times start at the first event of each recording.

    Hidden files and files such as README.txt are ignored. A warning, once per process, names other files that are not
    event files, files with equal content, and classes without recordings.

    Args:
        root: the folder.
        split: `"train"`, `"val"`, `"test"`, or None for all samples.
        transform: maps the event array of a sample, for example `ToFrames(sensor_size=...)`.
        target_transform: maps the label, an int.
        table: the table's path, relative to `root`; default `labels.csv` where there is one.
        test_share: share of each class for the test set, if the folder has none.
        val_share: share of each class for the validation set, if the folder has none.
        seed: of the split by hash.
        sensor_size: `(height, width)`; default: the largest size in headers and events.
        strict: whether a truncated file raises an error; if False, its complete records are read with a warning.
        read_options: further options of `snnlib.data.read`, for files whose format has them, for example
            `{"columns": "xypt", "unit": "ms"}`; or for files with one suffix, `{".npy": {"columns": "txyp"}}`.

    Attributes:
        classes: class names, sorted; the label is the index. The same for every split.
        targets: labels of the samples, int64 `[S]`.
        files: names relative to `root`, sorted by class and name.
        sensor_size: `(height, width)`; read from files at first use.

    Raises:
        FileNotFoundError: `root` or the table is missing, or names a missing file.
        EventFileError: no recordings, or a damaged table; on access, a damaged recording.
        TypeError: an option that the format of no file has.

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

    kind = FileKind("event files", "recordings", SUFFIXES)

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
        self.strict, self.read_options = bool(strict), dict(read_options or {})
        self._options = ReaderOptions(self.read_options)
        self._given_size = None if sensor_size is None else check_sensor_size("sensor_size", sensor_size)
        super().__init__(root, split, transform, target_transform, table, test_share, val_share, seed)
        self._options.check(self.root / name for name in self.all_files)

    def sample(self, number: int) -> Events:
        """Events of a recording."""
        return self.read(number).events

    def read(self, index: int) -> Recording:
        """Returns events and header of a sample, without transforms."""
        number = check_index(index, len(self))
        path = self.root / self.files[number]
        options = {"origin": "first", "strict": self.strict, **self._options.of(path)}
        return read(path, sensor_size=self._given_size, **options)

    def options_of(self, name: str) -> dict[str, Any]:
        """Returns the `read_options` of a file, named as in `files`."""
        return self._options.of(self.root / name)

    @cached_property
    def sensor_size(self) -> tuple[int, int]:
        """Returns the given size, else the largest in the headers of all splits, else the largest in the events."""
        if self._given_size is not None:
            return self._given_size
        height = width = 0
        for name in self.all_files:
            given = self.options_of(name)
            with EventFile(self.root / name) as file:
                format = named_format(given["format"]) if "format" in given else find_format(file)
                options = {key: value for key, value in given.items() if key in format.options}
                header, _ = format.decode(file, EventSink(file), options)
            size = header.sensor_size
            if size is None:
                events = read(self.root / name, **given).events
                size = int(events["y"].max(initial=-1)) + 1, int(events["x"].max(initial=-1)) + 1
            height, width = max(height, size[0]), max(width, size[1])
        return max(height, 1), max(width, 1)

    def cache_key(self) -> list[str]:
        """Returns the options that the samples depend on, for `EventCache`."""
        options = sorted((name, repr(value)) for name, value in self.read_options.items())
        parts = (self.root.resolve(), self.split, self.strict, self._given_size, options, self.classes)
        return [type(self).__name__, *map(str, parts)]

    def file_digest(self, index: int) -> str:
        """Hash of a sample's file."""
        return digest_of((self.root / self.files[index]).read_bytes())
