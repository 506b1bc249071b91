"""Simulate the `EventDigits` recordings once and keep them as N-MNIST files in two archives.

Each archive is written whole or not at all, by one process while others wait. It states in its comment what made it; a
folder with archives that do not agree with that, or are damaged, is built again, with a warning that says so.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock

from snnlib.checks import import_extra, warn_caller
from snnlib.data.camera import BATCH, EventCamera
from snnlib.data.checks import check_int
from snnlib.data.formats.nmnist_bin import encode_nmnist
from snnlib.data.progress import progress_bar
from snnlib.data.saccades import Array, saccades
from snnlib.data.sources import DAMAGED_ZIP
from snnlib.files.atomic import whole_or_absent

__all__ = ["build_event_digits"]

# Raise it with every change that changes a byte of the files.
FORMAT_VERSION = 2
PARTS = ("Train", "Test")
# Tells a folder that this module made.
MARKER = "event-digits"
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


def build_event_digits(
    folder: str | os.PathLike[str],
    *,
    seed: int = 0,
    samples: Sequence[int] | None = None,
    progress: bool = True,
) -> Path:
    """Make sure that `folder` holds the simulated recordings, complete; build them only where it does not.

    Layout: `Train.zip` and `Test.zip` with `Train/<digit>/<id>.bin` and `Test/<digit>/<id>.bin`, id = the digit's
    number in scikit-learn's list. About 35 MB.

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
        >>> import pathlib, tempfile, zipfile
        >>> with tempfile.TemporaryDirectory() as root:
        ...     folder = build_event_digits(pathlib.Path(root, "few"), samples=[0, 1], progress=False)
        ...     [zipfile.ZipFile(folder / name).namelist() for name in ("Train.zip", "Test.zip")]
        [['Train/1/00001.bin'], ['Test/0/00000.bin']]
    """
    target = Path(folder).absolute()
    seed = check_int("seed", seed, 0)
    wanted = range(DIGITS) if samples is None else samples
    chosen = sorted({check_int("samples", index, 0, DIGITS - 1) for index in wanted})
    comment = f"EventDigits {FORMAT_VERSION}, seed {seed}".encode()
    if is_complete(target, comment, chosen):
        return target
    _refuse_foreign(target)
    try:
        target.mkdir(parents=True, exist_ok=True)
        (target / MARKER).touch()
        with FileLock(target / ".lock"):
            if not is_complete(target, comment, chosen):
                _simulate_into(target, comment, seed, chosen, progress)
    except OSError as error:
        raise OSError(
            f"cannot write the data set to {str(target)!r} ({error.strerror or error}); it needs about 35 MB: "
            "set SNNLIB_CACHE or root to a writable folder with that much space"
        ) from error
    return target


def is_complete(folder: Path, comment: bytes, chosen: Sequence[int]) -> bool:
    """Returns whether `folder` holds a whole build: undamaged archives with this comment, of the chosen digits."""
    found: list[int] = []
    try:
        for part in PARTS:
            with zipfile.ZipFile(folder / f"{part}.zip") as archive:
                if archive.comment != comment or archive.testzip() is not None:
                    return False
                found += [int(Path(name).stem) for name in archive.namelist()]
    except DAMAGED_ZIP:
        return False
    return sorted(found) == list(chosen)


def is_test_digit(labels: Array) -> Array:
    """Returns which digits belong to the test set: bool `[S]`.

    Every fifth digit of the list ordered by class, so each class is split 4 : 1; 360 of scikit-learn's 1797.
    """
    by_class = np.argsort(labels, kind="stable")
    chosen = np.zeros(len(labels), bool)
    chosen[by_class[::TEST_EVERY]] = True
    return chosen


def _simulate_into(folder: Path, comment: bytes, seed: int, chosen: Sequence[int], progress: bool) -> None:
    if any(folder.glob("*.zip")):
        warn_caller(
            f"{folder}: recordings were changed, damaged or made by another version; they are made again"
        )
    for left in folder.glob(".*.tmp"):
        # Files of a killed build.
        left.unlink()
    digits = import_extra("sklearn.datasets", "data", "the handwritten digits of EventDigits").load_digits()
    in_test, camera = is_test_digit(digits.target), EventCamera(**CAMERA, seed=seed)
    with ExitStack() as stack:
        done = stack.enter_context(progress_bar(len(chosen), "simulating EventDigits", "sample", progress))
        archives = {}
        for part in PARTS:
            file = stack.enter_context(whole_or_absent(folder / f"{part}.zip"))
            archives[part] = stack.enter_context(zipfile.ZipFile(file, "w"))
            archives[part].comment = comment
        for start in range(0, len(chosen), BATCH):
            batch = chosen[start : start + BATCH]
            pictures = digits.images[batch].astype(np.uint8)
            recordings = camera.watch(pictures, SACCADES, size=SHOWN, white=WHITE, samples=batch)
            for index, events in zip(batch, recordings, strict=True):
                part = "Test" if in_test[index] else "Train"
                # A ZipInfo has a fixed date, so that equal recordings make equal archives.
                name = zipfile.ZipInfo(f"{part}/{digits.target[index]}/{index:05d}.bin")
                archives[part].writestr(name, encode_nmnist(events))
                done()


def _refuse_foreign(folder: Path) -> None:
    """Raise rather than ever replace what this module did not make."""
    found = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    if found and MARKER not in found:
        raise FileExistsError(
            f"folder {str(folder)!r}: expected an older build or nothing, found {', '.join(found[:5])}; left untouched"
        )
