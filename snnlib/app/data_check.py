"""`snnlib data check`: every recording read, strictly, and caches compared with the files."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from snnlib.app.read_options import open_folder
from snnlib.data import NMNIST, EventFileError, read
from snnlib.data.event_cache import check_caches
from snnlib.data.events import Events
from snnlib.data.sources import Source, find_split

# Units of time differ by this; in ms, the shortest duration that counts and the longest that cameras record.
_UNITS, _SHORTEST, _DAY = 1000, 1e-3, 86.4e6
_FEW = 10
# A recording, by its name.
Reader = Callable[[str], object]


def check_data(path: Path, options: dict[str, Any]) -> list[str]:
    """Print what was looked at, and return what is wrong with it.

    Raises:
        FileNotFoundError: nothing there.
    """
    if not path.exists():
        raise FileNotFoundError(f"{path}: expected an event file or a folder of them, found nothing there")
    if path.is_file():
        faults = _faults([path.name], lambda _: read(path, **{"strict": True, **options}))
        print(f"{path}: read")
        return faults
    with collected_warnings() as said:
        faults, read_bytes = _check_nmnist(path) or _check_folder(path, options)
    caches = [f"cache {sentence}" for sentence in check_caches(path, read_bytes)]
    print("\n".join(caches) or "no caches of these recordings")
    return [*dict.fromkeys(said), *faults, *(sentence for sentence in caches if "removed" in sentence)]


def duration_of(events: Events) -> float:
    """Returns the time of the last event in ms; recordings start at 0."""
    return int(events["t"].max(initial=0)) / 1000


def check_durations(recordings: Iterable[tuple[str, int, float]]) -> list[str]:
    """Returns a fault where times of a folder are in several units: a duration far above others, or above a day.

    Units differ by 1000 or more, and most often from suffix to suffix. Recordings of few events may be short.

    Args:
        recordings: names, numbers of events, and durations in ms.
    """
    by_suffix: dict[str, list[float]] = {}
    lengths = {name: length for name, count, length in recordings if count >= _FEW}
    for name, length in lengths.items():
        by_suffix.setdefault(Path(name).suffix.lower(), []).append(length)
    usual = max(min(map(median, by_suffix.values()), default=0.0), _SHORTEST)
    longest = max(lengths, key=lengths.__getitem__, default="")
    if lengths.get(longest, 0.0) < min(_UNITS * usual, _DAY):
        return []
    return [
        f"{longest}: lasts {lengths[longest]:.6g} ms, others {usual:.6g} ms: is the unit of its times another? "
        "--reader-options .csv:unit=us gives one for a suffix"
    ]


@contextmanager
def collected_warnings() -> Iterator[list[str]]:
    """The texts of the warnings of a `with` block, when it has ended."""
    said: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        yield said
    said += [str(warning.message) for warning in caught]


def _check_nmnist(root: Path) -> tuple[list[str], Callable[[str], bytes]] | None:
    """Returns the file names of N-MNIST's splits (classes 0 to 9, or a zip file) and their reader, or None."""
    splits: dict[str, NMNIST] = {}
    faults = []
    for name, train in (("training", True), ("test", False)):
        try:
            splits[name] = NMNIST(root, train)
        except FileNotFoundError:
            continue
        except (OSError, EventFileError) as error:
            faults.append(str(error))
    if not splits:
        return None
    sources: dict[str, Source] = {}
    for name, samples in splits.items():
        faults += _faults([str(number) for number in range(len(samples))], _sample_of(samples))
        print(f"{root}: {len(samples)} recordings of the {name} set read")
        folder = samples.files[0].split("/")[0]
        sources[folder] = find_split(root, folder)
    return faults, lambda name: sources[name.split("/")[0]].read(name)


def _sample_of(samples: NMNIST) -> Reader:
    return lambda number: samples[int(number)]


def _check_folder(root: Path, options: dict[str, Any]) -> tuple[list[str], Callable[[str], bytes]]:
    samples = open_folder(root, options)
    wanted = {"origin": "first", "strict": True}
    found: list[tuple[str, int, float]] = []

    def reader(name: str) -> None:
        events = read(root / name, **{**wanted, **samples.options_of(name)}).events
        found.append((name, len(events), duration_of(events)))

    faults = _faults(samples.files, reader)
    faults += check_durations(found)
    print(f"{root}: {len(samples)} recordings of {len(samples.classes)} classes read")
    return faults, lambda name: (root / name).read_bytes()


def _faults(names: list[str], reader: Reader) -> list[str]:
    """Returns the errors of reading the files."""
    faults = []
    for name in names:
        with collected_warnings() as said:
            try:
                reader(name)
            except (EventFileError, OSError, ImportError) as error:
                faults.append(str(error))
        faults += said
    return faults
