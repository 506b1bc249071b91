"""EventDigits: the embedded data set, real handwritten digits seen by a simulated event camera."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from snnlib.data.checks import check_int
from snnlib.data.datasets.digits_build import FORMAT_VERSION, build_event_digits
from snnlib.data.datasets.nmnist import NMNIST
from snnlib.data.formats.event_file import EventFileError
from snnlib.data.samples import Transform
from snnlib.files.cache_dir import user_cache_dir

__all__ = ["EventDigits"]


class EventDigits(NMNIST):
    """1797 handwritten digits as N-MNIST-like event recordings, simulated on this computer without network.

    scikit-learn's `load_digits` (8 x 8 pixels, 17 grey levels) are shown to a simulated event camera of 34 x
    34 pixels that makes N-MNIST's three saccades; `EventCamera` states the model and its sources. The recordings
    are N-MNIST `.bin` files in two zips, made once (seconds, with a progress bar) and kept (35 MB).

    The split takes every fifth digit of the list ordered by class as test set: 1437 training and 360 test samples,
    each class split 4 : 1, the same for every seed. The digits come from 13 writers who are in both parts, so test
    accuracy measures new samples of known writers.

    Args:
        root: folder to keep the data in; default `SNNLIB_CACHE`, else the user's cache folder
            (`user_cache_dir`). The data lies in its subfolder `event-digits-v<format>-seed<seed>`.
        train: `True` for the training set, `False` for the test set.
        transform: maps the event array of a sample, for example `ToFrames()`.
        target_transform: maps the label, an int.
        seed: of the camera's threshold pattern and noise; the same seed gives bit-identical files.
        progress: show a progress bar while the data is made.

    Attributes:
        classes, targets, files, sensor_size: as in `NMNIST`.

    Raises:
        ImportError: scikit-learn is missing when the data must be made (`pip install snnlib[data]`).
        OSError: the folder cannot be written.
        EventFileError: on access, a recording that was changed or removed; says which folder to remove.

    Sources: UCI "Optical Recognition of Handwritten Digits" (E. Alpaydin, C. Kaynak, 1998), the part in
    scikit-learn; Orchard et al., Frontiers in Neuroscience 9:437, 2015; Rebecq et al., CoRL 2018.

    Example:
        >>> from snnlib.data import EventDigits, ToFrames
        >>> train = EventDigits(transform=ToFrames(), progress=False)  # doctest: +SKIP
        >>> len(train), train[0][0].shape  # doctest: +SKIP
        (1437, torch.Size([30, 2, 34, 34]))
    """

    def __init__(
        self,
        root: str | os.PathLike[str] | None = None,
        train: bool = True,
        transform: Transform | None = None,
        target_transform: Transform | None = None,
        seed: int = 0,
        progress: bool = True,
    ) -> None:
        self.seed = check_int("seed", seed, 0)
        base = user_cache_dir() if root is None else Path(root)
        folder = base / f"event-digits-v{FORMAT_VERSION}-seed{self.seed}"
        build_event_digits(folder, seed=self.seed, progress=progress)
        super().__init__(folder, train, transform, target_transform)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        try:
            return super().__getitem__(index)
        except (EventFileError, FileNotFoundError) as error:
            raise EventFileError(
                f"{error}; the recordings were changed since they were opened: remove the folder {str(self.root)!r}, "
                "and they are built again"
            ) from error
