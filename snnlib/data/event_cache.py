"""Events of a data set packed into one file, so that later epochs and runs open no recordings."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock

from snnlib.checks import warn_caller
from snnlib.data.checks import check_dataset
from snnlib.data.events import EVENT_DTYPE, Events, check_events
from snnlib.data.formats.event_file import EventFileError
from snnlib.data.packed_events import MAGIC, PackedEvents, write_packed
from snnlib.data.progress import progress_bar
from snnlib.data.samples import Samples, Transform
from snnlib.files.cache_dir import user_cache_dir

__all__ = ["EventCache"]

FOLDER = "events"
SUFFIX = ".events"
# Samples asked for at once: a batch of the simulated camera's for each of 16 threads.
TOGETHER = 1024


class EventCache(Samples):
    """Caches the `(events, label)` pairs of a data set in one file of packed events, written at first use.

    All processes map the file and share its memory, so that DataLoader workers need no memory of their own. One
    process writes the file, by a temporary file and a rename, while others wait. It holds the samples after the data
    set's own transform, which must be deterministic; pass random transforms as `transform` here. A damaged file, or a
    file whose recordings changed in name, size, label or time, or whose transform changed, is written again, with a
    warning that says why.

    Args:
        dataset: `NMNIST`, `EventFolder`, a published data set of event files or `SimulatedEvents`; with `key` any
            other data set of events and integer labels.
        folder: folder of the file; default `events` in `user_cache_dir()`.
        transform: maps the events at each access, for example `ToFrames()`.
        target_transform: maps the label at each access.
        key: name of the content of a data set without known files. The file stays valid while the key and the number
            of samples are the same.
        progress: whether to show a progress bar while writing the file.

    Attributes:
        path: the file.
        targets: labels, int64 `[S]`.

    Raises:
        TypeError: a data set without known files and without a key; a transform whose `repr` does not describe it; a
            sample that is not a pair of events and an integer.
        ValueError: events with polarities other than 0 and 1.
        OSError: the folder cannot be written.

    Example:
        >>> import tempfile
        >>> from snnlib.data import EventCache, ToFrames, as_events
        >>> samples = [(as_events([5, 9], [1, 2], [3, 3], [0, 1]), 7)]
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     cache = EventCache(samples, folder, key="two events", progress=False)
        ...     events, label = cache[0]
        >>> events.tolist(), label
        ([(5, 1, 3, 0), (9, 2, 3, 1)], 7)
    """

    def __init__(
        self,
        dataset: Any,
        folder: str | os.PathLike[str] | None = None,
        transform: Transform | None = None,
        target_transform: Transform | None = None,
        *,
        key: str | None = None,
        progress: bool = True,
    ) -> None:
        super().__init__(transform, target_transform)
        self.dataset = dataset
        about = _about(dataset, key)
        base = user_cache_dir() / FOLDER if folder is None else Path(folder)
        name = hashlib.sha256(json.dumps([MAGIC.hex(), about["key"]]).encode()).hexdigest()[:24]
        self.path = base / f"{type(dataset).__name__.lower()}-{name}{SUFFIX}"
        self._packed = _open_or_make(self.path, dataset, about, progress)
        # Long lists, which would be sent to every worker.
        self._packed.about = {}
        self.targets = torch.from_numpy(self._packed.labels)

    def sample(self, number: int) -> Events:
        """Events of a recording."""
        return self._packed[number]

    def __repr__(self) -> str:
        return f"EventCache({self.dataset!r}, {len(self)} samples in {str(self.path)!r})"


def _about(dataset: Any, key: str | None) -> dict[str, Any]:
    """Returns the key that names a cache file, and the stamps that invalidate it."""
    check_dataset("dataset", dataset)
    said = []
    for transform in (getattr(dataset, name, None) for name in ("transform", "target_transform")):
        if " at 0x" in repr(transform):
            raise TypeError(
                f"dataset: expected transforms whose repr says what they do, got {transform!r}; give it to EventCache, "
                "which applies it at each access"
            )
        said.append(None if transform is None else repr(transform))
    if key is not None:
        return {"key": [key, *said], "stamps": [[str(number), 0, 0] for number in range(len(dataset))]}
    if not hasattr(dataset, "file_stamps"):
        raise TypeError(
            f"dataset: expected one that knows its files, as NMNIST and EventFolder do, or key=, got "
            f"{type(dataset).__name__}"
        )
    root = {"root": str(dataset.root.resolve())} if hasattr(dataset, "root") else {}
    return {"key": [*dataset.cache_key(), *said], **root, "stamps": dataset.file_stamps()}


def _open_or_make(path: Path, dataset: Any, about: dict[str, Any], progress: bool) -> PackedEvents:
    with suppress(FileNotFoundError, EventFileError):
        return _opened(path, about["stamps"])
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_suffix(".lock")):
        try:
            # Another process may have made it in the meantime.
            return _opened(path, about["stamps"])
        except FileNotFoundError:
            pass
        except EventFileError as error:
            warn_caller(f"{path}: {error}; the cache is made again")
        known = {**about, "digests": []}
        write_packed(path, _samples(dataset, known["digests"], progress), known)
    return PackedEvents(path)


def _opened(path: Path, now: list[list[Any]]) -> PackedEvents:
    """Opens the file if it holds the present recordings.

    Raises:
        FileNotFoundError: there is none.
        EventFileError: a damaged file, or one of other recordings.
    """
    try:
        packed = PackedEvents(path)
    except (ValueError, KeyError) as error:
        raise EventFileError(f"a damaged cache ({error})") from error
    before = packed.about.get("stamps")
    if before == now:
        return packed
    known = {name: stamp for name, *stamp in before or ()}
    changed = [name for name, *stamp in now if known.get(name) != stamp]
    gone = sorted(set(known) - {name for name, *_ in now})
    if not changed and not gone:
        raise EventFileError("the recordings are in another order than in the cache")
    raise EventFileError(
        f"{len(changed)} recordings new, changed or relabelled and {len(gone)} gone since it was made "
        f"({', '.join((changed + gone)[:3])})"
    )


def _samples(dataset: Any, digests: list[str], progress: bool) -> Iterator[tuple[Events, int]]:
    with progress_bar(len(dataset), "caching events", "recording", progress) as done:
        for number, (events, label) in enumerate(_in_order(dataset)):
            if check_events(f"dataset[{number}]", events).dtype != EVENT_DTYPE:
                raise TypeError(
                    f"dataset[{number}]: expected events of dtype {EVENT_DTYPE}, got {events.dtype}"
                )
            if not bool(((events["p"] == 0) | (events["p"] == 1)).all()):
                # A file keeps one bit of an event's polarity: -1 would come back as 1.
                raise ValueError(
                    f"dataset[{number}]: expected events of polarity 0 or 1, got {sorted(set(events['p'].tolist()))}"
                )
            if isinstance(label, bool) or not hasattr(label, "__index__"):
                raise TypeError(f"dataset[{number}]: expected an integer label, got {label!r}")
            if hasattr(dataset, "file_digest"):
                digests.append(dataset.file_digest(number))
            yield events, label.__index__()
            done()


def _in_order(dataset: Any) -> Iterator[tuple[Any, Any]]:
    """Yields all samples in order, many at once if the data set has `__getitems__`."""
    if not hasattr(dataset, "__getitems__"):
        yield from (dataset[number] for number in range(len(dataset)))
        return
    for start in range(0, len(dataset), TOGETHER):
        yield from dataset.__getitems__(range(start, min(start + TOGETHER, len(dataset))))


def check_caches(root: Path, read_file: Callable[[str], bytes], folder: Path | None = None) -> list[str]:
    """Compares the caches of a data set's folder with its files, byte for byte; removes caches that differ.

    Args:
        root: the data set's folder.
        read_file: function from the name of a recording in the cache to its bytes.
        folder: folder of the caches; default as in `EventCache`.

    Returns:
        A sentence for each cache.
    """
    base = user_cache_dir() / FOLDER if folder is None else folder
    said = []
    for path in sorted(base.glob(f"*{SUFFIX}")):
        try:
            packed = PackedEvents(path)
        except (OSError, ValueError, KeyError):
            path.unlink(missing_ok=True)
            said.append(f"{path}: a damaged cache; removed, the next use makes it again")
            continue
        if packed.about.get("root") != str(root.resolve()):
            continue
        names = [name for name, *_ in packed.about["stamps"]]
        differing = [
            name for number, name in enumerate(names) if not _is_as_cached(packed, number, read_file)
        ]
        if differing:
            path.unlink(missing_ok=True)
            said.append(
                f"{path}: {len(differing)} recordings differ from what was cached ({', '.join(differing[:3])}); "
                "removed, the next use makes it again"
            )
        else:
            said.append(f"{path}: {len(packed)} recordings, all as they were cached")
    return said


def _is_as_cached(packed: PackedEvents, number: int, read_file: Callable[[str], bytes]) -> bool:
    name, digest = packed.about["stamps"][number][0], packed.about["digests"][number]
    try:
        return digest_of(read_file(name)) == digest and packed.is_intact(number)
    except (OSError, KeyError, EventFileError):
        return False


def digest_of(data: bytes) -> str:
    """Returns the hash by which `check_caches` compares files."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()
