"""N-MNIST: handwritten digits seen by an event camera during three saccades."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from snnlib.checks import check_choice
from snnlib.data.datasets.published import found_or_downloaded
from snnlib.data.datasets.splits import SPLITS, Split, some_names, split_by_hash, warn_of_foreign, warn_once
from snnlib.data.event_cache import digest_of
from snnlib.data.events import Events
from snnlib.data.formats.event_file import EventFileError
from snnlib.data.formats.nmnist_bin import NMNIST_SENSOR_SIZE, read_nmnist
from snnlib.data.samples import Samples, Transform
from snnlib.data.sources import Source, find_split

__all__ = ["NMNIST"]

VAL_SHARE = 0.1


class NMNIST(Samples):
    """The N-MNIST data set (or any copy or part of it) as `(events, label)` pairs.

    Nothing is downloaded unless `download=True`. `root` holds, in any letter case, folders `Train/<digit>/<id>.bin`
    and `Test/<digit>/<id>.bin`, or `Train.zip` and `Test.zip` with those folders inside; only the requested split is
    needed, and a folder takes precedence over a zip file. Any number of samples is valid, also an empty class folder.
    Labels are the names of the class folders. Samples are ordered by class, then by name. Hidden files, `__MACOSX` and
    README files are ignored; other files that do not end in `.bin` are left out with a warning.

    Args:
        root: the folder that holds the splits. Default: the folder of `snnlib.data.download("nmnist")`, in the
            library's cache folder.
        train: `True` for `Train`, `False` for `Test`.
        transform: maps the event array of a sample, for example `ToFrames()`.
        target_transform: maps the label, an int.
        split: `"train"`, `"val"` or `"test"` in place of `train`: a tenth of each class of `Train`, by a hash of the
            file's name, is then the validation set, and the training set has the rest.
        strict: as in `read_nmnist`: `True` raises an error for a truncated file, `False` reads its complete events and
            warns.
        download: whether to download missing zip files, see `snnlib.data.download`. Default False.

    Attributes:
        classes: class names, `"0"` .. `"9"`; the label is the index.
        targets: labels of all samples, int64 `[S]`.
        files: names relative to `root`, like `Train/3/00042.bin` (inside the zip where the split is one).
        sensor_size: `(34, 34)`, height and width.

    Raises:
        DownloadError: see `snnlib.data.download`.
        FileNotFoundError: `root` or the split is missing; the message says what was expected and found.
        EventFileError: a class folder with another name than a digit, a recording outside the class folders,
            no sample at all, a damaged zip; on access, a damaged recording.

    Source: Orchard et al., "Converting Static Image Datasets to Spiking Neuromorphic Datasets Using
    Saccades", Frontiers in Neuroscience 9:437, 2015. The full set has 60000 + 10000 samples.

    Example:
        >>> import pathlib, tempfile
        >>> from snnlib.data import NMNIST, ToFrames, as_events, write_nmnist
        >>> with tempfile.TemporaryDirectory() as root:
        ...     folder = pathlib.Path(root, "Train", "7")
        ...     folder.mkdir(parents=True)
        ...     write_nmnist(folder / "00001.bin", as_events(t=[5], x=[1], y=[2], p=[1]))
        ...     frames, label = NMNIST(root, transform=ToFrames())[0]
        >>> frames.shape, label
        (torch.Size([30, 2, 34, 34]), 7)
    """

    classes: Sequence[str] = tuple("0123456789")
    sensor_size: tuple[int, int] = NMNIST_SENSOR_SIZE

    def __init__(
        self,
        root: str | os.PathLike[str] | None = None,
        train: bool = True,
        transform: Transform | None = None,
        target_transform: Transform | None = None,
        *,
        split: Split | None = None,
        strict: bool = True,
        download: bool = False,
    ) -> None:
        super().__init__(transform, target_transform)
        if split is not None:
            train = check_choice("split", split, *SPLITS) != "test"
        self.root = found_or_downloaded("nmnist", root, download)
        self.split, self.train, self.strict = split, bool(train), bool(strict)
        part = "Train" if train else "Test"
        self._source = find_split(self.root, part)
        names = self._source.names()
        samples = _label_by_folder(part, names, self.classes, self._source.describe)
        if not samples:
            where = self._source.describe(f"{part}/")
            raise EventFileError(f"{where}: expected recordings <class>/<id>.bin, found none")
        _warn_of_strays(part, names, samples, self._source)
        if split is not None and train:
            samples = _without(samples, "val" if split == "train" else "train")
        self.files = [name for _, name in samples]
        self.targets = torch.tensor([label for label, _ in samples])

    def sample(self, number: int) -> Events:
        """Events of a recording."""
        name = self.files[number]
        return read_nmnist(self._source.read(name), strict=self.strict, name=self._source.describe(name))

    def cache_key(self) -> list[str]:
        """Returns the options that the samples depend on, for `EventCache`."""
        return [type(self).__name__, *map(str, (self.root.resolve(), self.train, self.split, self.strict))]

    def file_stamps(self) -> list[list[Any]]:
        """Name, size and time of change of each sample's file."""
        return [[name, *self._source.stamp(name)] for name in self.files]

    def file_digest(self, index: int) -> str:
        """Hash of a sample's file."""
        return digest_of(self._source.read(self.files[index]))

    def __repr__(self) -> str:
        split = self.split or ("train" if self.train else "test")
        return f"{type(self).__name__}({str(self.root)!r}, {split}, {len(self)} samples)"


def _warn_of_strays(part: str, names: Iterable[str], samples: list[tuple[int, str]], source: Source) -> None:
    """Name files that are no recordings, and recordings that lie in several classes under one name."""
    where = source.describe(f"{part}/")
    foreign = sorted(name for name in names if not name.endswith("/") and not name.lower().endswith(".bin"))
    warn_of_foreign(where, foreign, "no .bin files")
    by_name = defaultdict(list)
    for _, name in samples:
        by_name[name.rsplit("/", 1)[1]].append(name)
    doubles = []
    for first, *others in by_name.values():
        # Copies that number each class from 1 on have equal names of different recordings.
        size = source.stamp(first)[0] if others else 0
        doubles += [
            f"{first} = {other}"
            for other in others
            if size and source.stamp(other)[0] == size and source.read(other) == source.read(first)
        ]
    if doubles:
        warn_once(f"{where}: recordings in several classes: {some_names(doubles)}")


def _without(samples: list[tuple[int, str]], other: Split) -> list[tuple[int, str]]:
    """The samples that the split by hash does not give to the `other` set."""
    kept = []
    for label in sorted({label for label, _ in samples}):
        members = [sample for sample in samples if sample[0] == label]
        ids = [name.rsplit("/", 1)[1] for _, name in members]
        parts = split_by_hash(ids, 0.0, VAL_SHARE, 0)
        kept += [sample for sample, part in zip(members, parts, strict=True) if part != other]
    return kept


def _label_by_folder(
    split: str, names: Iterable[str], classes: Sequence[str], describe: Callable[[str], str]
) -> list[tuple[int, str]]:
    """Sorted `(label, name)` of the recordings `<split>/<class>/<id>.bin` among `names`; folders end in `/`."""
    labels = {name: index for index, name in enumerate(classes)}
    samples = []
    for name in names:
        parts = name.rstrip("/").split("/")
        recording = name.lower().endswith(".bin")
        if recording and (len(parts) != 3 or parts[0].lower() != split.lower()):
            raise EventFileError(f"{describe(name)}: expected recordings at {split}/<class>/<id>.bin only")
        is_class_folder = len(parts) >= 3 or (len(parts) == 2 and name.endswith("/"))
        if is_class_folder and parts[1] not in labels:
            raise EventFileError(
                f"{describe('/'.join(parts[:2]))}: unknown class folder {parts[1]!r}, expected one of "
                f"{', '.join(classes)}"
            )
        if recording:
            samples.append((labels[parts[1]], name))
    return sorted(samples)
