"""Simulate the `EventDigits` recordings once and keep them as N-MNIST files.

A build goes into a hidden sibling folder that becomes the real one by a single rename, so a killed build
leaves nothing that looks complete, and two processes that build at once both end with a whole data set.
`event-digits.json`, written last, lists every file with its size and time of last change; a folder that does not agree
with it is built again, with a warning that says so.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from snnlib.checks import import_extra
from snnlib.data.camera import BATCH, EventCamera
from snnlib.data.checks import check_int
from snnlib.data.formats.nmnist_bin import encode_nmnist
from snnlib.data.progress import progress_bar
from snnlib.data.saccades import Array, saccades
from snnlib.files.atomic import sync_folder, temporary_sibling, write_bytes_atomically

__all__ = ["build_event_digits"]

# Raise it with every change that changes a byte of the files.
FORMAT_VERSION = 1
MANIFEST = "event-digits.json"
DIGITS = 1797
TEST_EVERY = 5
WHITE = 16
# scikit-learn's digits fill all of their 8 cells, MNIST's 20 of their 28 pixels: 22 pixels leave room for the saccades
# and give as many active pixels as N-MNIST has.
SHOWN = (22, 22)
# (x, y) pixels: down right, up right, back left.
SACCADES = saccades([(-3.0, -1.5), (0.0, 3.0), (3.0, -1.5)], [0, 100_000, 200_000], 75_000, 300_000)
# Set so that the recordings resemble N-MNIST's in events per sample, filled cells and events per cell. A power above a
# monitor's 2.2 thins the strokes that interpolation from 8 x 8 cells has blurred to a pen's width again.
CAMERA: dict[str, Any] = {
    "threshold_on": 0.42,
    "threshold_off": 0.42,
    "threshold_spread": 0.1,
    "refractory_us": 2_000,
    "noise_rate": 1 / 3,
    "gamma": 3.5,
    "black": 0.02,
    "step_us": 2_000,
}
# A build takes seconds; what is older was left by a killed one.
STALE_SECONDS = 3600


def build_event_digits(
    folder: str | os.PathLike[str],
    *,
    seed: int = 0,
    samples: Sequence[int] | None = None,
    progress: bool = True,
) -> Path:
    """Make sure that `folder` holds the simulated recordings, complete; build them only where it does not.

    Layout: `Train/<digit>/<id>.bin` and `Test/<digit>/<id>.bin`, id = the digit's number in scikit-learn's
    list, and `event-digits.json`. About 35 MB.

    Args:
        folder: the data set's own folder, created if missing. One that holds other things than an older or
            damaged build is never touched.
        seed: of the camera and its noise, >= 0. The same seed gives bit-identical files.
        samples: build only these digits (numbers 0..1796), for quick trials and tests; default all.
        progress: show a progress bar.

    Returns:
        `folder` as a path.

    Raises:
        ImportError: scikit-learn is missing; says how to install it.
        OSError: the folder cannot be written, the disk is full, or the folder is not a build of this function.

    Warns:
        UserWarning: the folder held a build that was changed, damaged or of another version; it is built again.

    Example:
        >>> import pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as root:
        ...     folder = build_event_digits(pathlib.Path(root, "few"), samples=[0, 1], progress=False)
        ...     sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.bin"))
        ['Test/0/00000.bin', 'Train/1/00001.bin']
    """
    target = Path(folder).absolute()
    seed = check_int("seed", seed, 0)
    wanted = range(DIGITS) if samples is None else samples
    chosen = sorted({check_int("samples", index, 0, DIGITS - 1) for index in wanted})
    if is_complete(target, seed, chosen):
        return target
    _refuse_foreign(target)
    if (target / MANIFEST).exists():
        warnings.warn(
            f"{target}: recordings were changed, damaged or made by another version; they are made again",
            stacklevel=2,
        )
    temporary = temporary_sibling(target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _remove_stale(target)
        temporary.mkdir()
        _simulate_into(temporary, seed, chosen, progress)
        _publish(temporary, target, seed, chosen)
    except OSError as error:
        raise OSError(
            f"cannot write the data set to {str(target)!r} ({error.strerror or error}); it needs about 35 MB: "
            "set SNNLIB_CACHE or root to a writable folder with that much space"
        ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return target


def is_complete(folder: Path, seed: int, chosen: Sequence[int]) -> bool:
    """Returns whether `folder` holds a whole build: the manifest fits, and every file has its listed size and time."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text())
        if [manifest["format"], manifest["seed"]] != [FORMAT_VERSION, seed]:
            return False
        files: dict[str, list[int]] = manifest["files"]
        return sorted(int(Path(name).stem) for name in files) == list(chosen) and all(
            _stamp(folder / name) == stamp for name, stamp in files.items()
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def _stamp(path: Path) -> list[int]:
    """Size in bytes and time of last change in ns."""
    status = path.stat()
    return [status.st_size, status.st_mtime_ns]


def is_test_digit(labels: Array) -> Array:
    """Returns which digits belong to the test set: bool `[S]`.

    Every fifth digit of the list ordered by class, so each class is split 4 : 1; 360 of scikit-learn's 1797.
    """
    by_class = np.argsort(labels, kind="stable")
    chosen = np.zeros(len(labels), bool)
    chosen[by_class[::TEST_EVERY]] = True
    return chosen


def _load_digits() -> tuple[Array, Array]:
    digits = import_extra("sklearn.datasets", "data", "the handwritten digits of EventDigits").load_digits()
    return digits.images, digits.target


def _simulate_into(folder: Path, seed: int, chosen: Sequence[int], progress: bool) -> None:
    images, labels = _load_digits()
    in_test = is_test_digit(labels)
    for split in ("Train", "Test"):
        for label in range(10):
            (folder / split / str(label)).mkdir(parents=True)
    stamps, camera = {}, EventCamera(**CAMERA, seed=seed)
    with progress_bar(len(chosen), "simulating EventDigits", "sample", progress) as done:
        for start in range(0, len(chosen), BATCH):
            batch = chosen[start : start + BATCH]
            pictures = images[batch].astype(np.uint8)
            recordings = camera.watch(pictures, SACCADES, size=SHOWN, white=WHITE, samples=batch)
            for index, events in zip(batch, recordings, strict=True):
                data = encode_nmnist(events)
                name = f"{'Test' if in_test[index] else 'Train'}/{labels[index]}/{index:05d}.bin"
                (folder / name).write_bytes(data)
                stamps[name] = _stamp(folder / name)
                done()
    manifest = {"format": FORMAT_VERSION, "seed": seed, "files": stamps}
    write_bytes_atomically(folder / MANIFEST, json.dumps(manifest, indent=0).encode())


def _publish(temporary: Path, target: Path, seed: int, chosen: Sequence[int]) -> None:
    # A rename onto a folder with files fails: then another process was quicker, or an old or damaged build is
    # there.
    failure: OSError | None = None
    for _ in range(3):
        try:
            temporary.rename(target)
        except OSError as error:
            failure = error
        else:
            sync_folder(target.parent)
            return
        if is_complete(target, seed, chosen):
            return
        aside = temporary_sibling(target)
        # Another process may have moved it first.
        with contextlib.suppress(FileNotFoundError):
            target.rename(aside)
            shutil.rmtree(aside, ignore_errors=True)
    raise OSError(f"cannot put the data set at {str(target)!r}: {failure}") from failure


def _refuse_foreign(folder: Path) -> None:
    """Raise rather than ever replace a folder that this module did not make."""
    if not folder.exists():
        return
    found = {path.name for path in folder.iterdir()} if folder.is_dir() else {"a file in its place"}
    if found and (MANIFEST not in found or found - {"Train", "Test", MANIFEST}):
        raise FileExistsError(
            f"folder {str(folder)!r}: expected an older build or nothing, found {', '.join(sorted(found)[:5])}; "
            "left untouched"
        )


def _remove_stale(target: Path) -> None:
    for path in target.parent.glob(f".{target.name}.*.tmp"):
        # Another process may have renamed or removed it since it was listed.
        with contextlib.suppress(FileNotFoundError):
            if time.time() - path.stat().st_mtime > STALE_SECONDS:
                shutil.rmtree(path, ignore_errors=True)
