"""`snnlib data check`: every recording read, strictly, and caches compared with the files."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from snnlib.app.read_options import open_folder
from snnlib.data import NMNIST, EventFileError, read
from snnlib.data.event_cache import check_caches
from snnlib.data.sources import Source, find_split

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
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        faults, read_bytes = _check_nmnist(path) if _is_nmnist(path) else _check_folder(path, options)
    said = [f"cache {sentence}" for sentence in check_caches(path, read_bytes)]
    print("\n".join(said) or "no caches of these recordings")
    return [
        *dict.fromkeys(str(warning.message) for warning in caught),
        *faults,
        *(sentence for sentence in said if "removed" in sentence),
    ]


def _is_nmnist(root: Path) -> bool:
    """Whether a folder has a split of N-MNIST: classes 0 to 9 of `.bin` files, or a zip file of them."""
    for train in (True, False):
        try:
            NMNIST(root, train)
        except (OSError, EventFileError):
            continue
        return True
    return False


def _check_nmnist(root: Path) -> tuple[list[str], Callable[[str], bytes]]:
    faults = []
    sources: dict[str, Source] = {}
    for train in (True, False):
        try:
            samples = NMNIST(root, train)
        except FileNotFoundError:
            continue
        faults += _faults([str(number) for number in range(len(samples))], _sample_of(samples))
        print(f"{root}: {len(samples)} recordings of the {'training' if train else 'test'} set read")
        split = samples.files[0].split("/")[0]
        sources[split] = find_split(root, split)
    return faults, lambda name: sources[name.split("/")[0]].read(name)


def _sample_of(samples: NMNIST) -> Reader:
    return lambda number: samples[int(number)]


def _check_folder(root: Path, options: dict[str, Any]) -> tuple[list[str], Callable[[str], bytes]]:
    samples = open_folder(root, options)
    wanted = {"origin": "first", "strict": True}
    faults = _faults(samples.files, lambda name: read(root / name, **{**wanted, **samples.options_of(name)}))
    print(f"{root}: {len(samples)} recordings of {len(samples.classes)} classes read")
    return faults, lambda name: (root / name).read_bytes()


def _faults(names: list[str], reader: Reader) -> list[str]:
    """What reading the files complains of."""
    faults = []
    for name in names:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", UserWarning)
            try:
                reader(name)
            except (EventFileError, OSError, ImportError) as error:
                faults.append(str(error))
        faults += [str(warning.message) for warning in caught]
    return faults
