"""Spiking Heidelberg Digits and Spiking Speech Commands: speech through a model of the cochlea, HDF5 files."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import torch

from snnlib.checks import check_choice
from snnlib.data.datasets.published import found_or_downloaded
from snnlib.data.datasets.splits import SPLITS, Split, split_by_hash
from snnlib.data.events import Events, channel_events
from snnlib.data.formats.event_file import EventFileError
from snnlib.data.formats.event_sink import in_order
from snnlib.data.formats.hdf5 import shared_file
from snnlib.data.samples import Samples, Transform
from snnlib.files.hdf5 import DAMAGED, check_dataset, read_element

__all__ = ["SHD", "SSC"]

UNITS = 700
_FETCH = "download=True downloads it, or fetch it from zenkelab.org/datasets and unpack it"


class SHD(Samples):
    """Spoken digits, English and German, as spikes of 700 cochlear channels: `(events, label)`, 20 classes.

    Layout: `root/shd_train.h5` and `root/shd_test.h5`. Events have x = channel (0 to 699), y = 0 and p = 1, so
    `sensor_size` is `(1, 700)` and `ToFrames(sensor_size=(1, 700))` gives `[T, 2, 1, 700]`. Times are the file's
    seconds (float16: steps of 0.5 ms above 0.5 s), rounded to microseconds.

    The test file is the published split, with two speakers that are not in the training file. The validation set is
    the last speaker by number of the training file; in a copy without speakers, a tenth of each class by a hash of the
    sample's index.

    Published copies differ in their number of samples.

    Args:
        root: the folder of the files. Default: the folder of `snnlib.data.download`, in the library's cache folder.
        split: `"train"`, `"val"` or `"test"`.
        transform: maps the event array of a sample.
        target_transform: maps the label.
        download: whether to download missing files, see `snnlib.data.download`. Default False.

    Attributes:
        classes: names of the classes, from the file (`extra/keys`) if it has them.
        targets: labels, int64 `[S]`.
        speakers: speaker of each sample `[S]`, or None.

    Raises:
        FileNotFoundError: a file is missing; the message says what to download.
        DownloadError: see `snnlib.data.download`.
        EventFileError: a file with other contents; on access, a damaged sample.
        ImportError: the package h5py is missing.

    Source: Cramer et al., "The Heidelberg Spiking Data Sets for the Systematic Evaluation of Spiking Neural Networks",
    IEEE TNNLS 33(7), 2022.
    """

    prefix = "shd"
    classes: tuple[str, ...] = tuple(
        [f"English {digit}" for digit in range(10)] + [f"German {digit}" for digit in range(10)]
    )
    sensor_size = (1, UNITS)
    # The file of the validation set, where one is published.
    val_file: str | None = None

    def __init__(
        self,
        root: str | os.PathLike[str] | None = None,
        split: Split = "train",
        transform: Transform | None = None,
        target_transform: Transform | None = None,
        *,
        download: bool = False,
    ) -> None:
        super().__init__(transform, target_transform)
        self.split = check_choice("split", split, *SPLITS)
        part = {"train": "train", "val": self.val_file or "train", "test": "test"}[split]
        self.path = found_or_downloaded(self.prefix, root, download) / f"{self.prefix}_{part}.h5"
        if not self.path.is_file():
            raise FileNotFoundError(
                f"{self.path}: expected a file of {type(self).__name__}, found none; {_FETCH}"
            )
        self._file = shared_file(self.path)
        self._size = self.path.stat().st_size
        try:
            file = self._file.open()
            extra = [name for name in ("extra/speaker", "extra/keys") if name in file]
            for name in ("labels", "spikes/times", "spikes/units", *extra):
                check_dataset(file[name], self._size)
            labels = np.asarray(file["labels"], np.int64)
            speakers = np.asarray(file["extra/speaker"], np.int64) if "extra/speaker" in extra else None
            if "extra/keys" in extra and len(file["extra/keys"]) == len(self.classes):
                self.classes = tuple(_text(key) for key in file["extra/keys"])
            lengths = {file["spikes/times"].shape, file["spikes/units"].shape, labels.shape}
        except DAMAGED as error:
            raise EventFileError(
                f"{self.path}: expected spikes/times, spikes/units and labels, found another or a damaged file "
                f"({error})"
            ) from error
        if len(lengths) != 1 or (len(labels) and not 0 <= labels.min() <= labels.max() < len(self.classes)):
            raise EventFileError(
                f"{self.path}: expected as many labels in 0..{len(self.classes) - 1} as samples, found shapes {lengths}"
            )
        chosen = np.arange(len(labels))
        if self.val_file is None and split != "test":
            chosen = chosen[self._held_out(labels, speakers) == (split == "val")]
        self._places = chosen
        self.targets = torch.from_numpy(labels[chosen])
        self.speakers = None if speakers is None else speakers[chosen]

    def _held_out(
        self, labels: np.ndarray[Any, Any], speakers: np.ndarray[Any, Any] | None
    ) -> np.ndarray[Any, Any]:
        """Returns which samples of the training file validate."""
        if speakers is not None and len(np.unique(speakers)) > 1:
            return np.asarray(speakers == speakers.max())
        held = np.zeros(len(labels), bool)
        for label in np.unique(labels):
            members = np.flatnonzero(labels == label)
            split = split_by_hash([str(member) for member in members], 0.0, 0.1, 0)
            held[members] = [part == "val" for part in split]
        return held

    def sample(self, number: int) -> Events:
        """Spikes of a recording."""
        place = int(self._places[number])
        try:
            file = self._file.open()
            times, units = (
                read_element(file[f"spikes/{name}"], place, self._size) for name in ("times", "units")
            )
            events = channel_events(times, units, UNITS)
        except DAMAGED as error:
            raise EventFileError(f"{self.path}: sample {place}: {error}") from error
        return in_order(events, f"{self.path}: sample {place}")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.path.parent)!r}, {self.split}, {len(self)} samples)"


class SSC(SHD):
    """Spoken commands as spikes of 700 cochlear channels: 35 classes, with a published validation set.

    Layout: `root/ssc_train.h5`, `root/ssc_valid.h5` and `root/ssc_test.h5`. Otherwise as `SHD`.
    """

    prefix = "ssc"
    val_file = "valid"
    # The file names them; without that only their numbers are certain.
    classes = tuple(map(str, range(35)))


def _text(key: Any) -> str:
    return key.decode() if isinstance(key, bytes) else str(key)
