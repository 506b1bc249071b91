"""N-TIDIGITS: spoken digits through a silicon cochlea, one HDF5 file."""

from __future__ import annotations

import os
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch

from snnlib.checks import check_choice
from snnlib.data.datasets.splits import SPLITS, Split, some_names, warn_of_foreign
from snnlib.data.events import Events, channel_events
from snnlib.data.formats.event_file import EventFileError
from snnlib.data.formats.event_sink import in_order
from snnlib.data.formats.hdf5 import shared_file
from snnlib.data.samples import Samples, Transform
from snnlib.files.hdf5 import DAMAGED, check_dataset

__all__ = ["NTIDIGITS"]

CHANNELS = 64
FILE = "n-tidigits.hdf5"
_FETCH = "fetch n-tidigits.hdf5 (docs.google.com, linked from sensors.ini.uzh.ch/databases) and put it there"
# Sex, speaker, digits ("z" zero, "o" oh), production: man-ae-1z4-a.
_NAME = re.compile(r"([a-z]+-[a-z0-9]+)-([1-9oz]+)-?([a-z0-9]*)")
_LABELS = {"z": 0, **{str(digit): digit for digit in range(1, 10)}, "o": 10}
# Every eighth training speaker, the last by name, validates.
_VAL_SPEAKERS = 8


class NTIDIGITS(Samples):
    """Spoken digits as spikes of 64 channels of a silicon cochlea: `(events, label)`, 11 classes.

    Layout: `root/n-tidigits.hdf5`, or `root` is the file, with the groups `train_addresses`, `train_timestamps`,
    `test_addresses` and `test_timestamps`, which hold an array per recording, named like `man-ae-1-a`: sex and
    speaker, the spoken digits, and the production. Events have x = channel, y = 0 and p = 1; times are converted from
    seconds and start at the first event of each recording.

    The test groups are the published split, with other speakers. The validation set is the last eighth of the training
    speakers by name.

    Args:
        root: the folder of the file, or the file.
        split: `"train"`, `"val"` or `"test"`.
        transform: maps the event array of a sample.
        target_transform: maps the label.
        connected: whether to include recordings of several digits. All labels are then int64 `[digits]`, for losses on
            sequences.

    Attributes:
        classes: `"zero"`, `"1"` to `"9"`, `"oh"`.
        targets: labels, int64 `[S]`; with `connected` a list of tensors.
        speakers: sex and speaker of each sample.
        files: names of the recordings, sorted.
        sensor_size: `(1, 64)`.

    Raises:
        FileNotFoundError: the file is missing; the message says what to download.
        EventFileError: a file with other contents.
        ImportError: the package h5py is missing.

    Warns:
        UserWarning: recordings with other names, which are left out, or in both sets.

    Source: Anumula et al., "Feature Representations for Neuromorphic Audio Spike Streams", Frontiers in Neuroscience
    12:23, 2018; digits of Leonard and Doddington, TIDIGITS, 1993.
    """

    classes = ("zero", *"123456789", "oh")
    sensor_size = (1, CHANNELS)

    def __init__(
        self,
        root: str | os.PathLike[str],
        split: Split = "train",
        transform: Transform | None = None,
        target_transform: Transform | None = None,
        *,
        connected: bool = False,
    ) -> None:
        super().__init__(transform, target_transform)
        self.split = check_choice("split", split, *SPLITS)
        self.connected = bool(connected)
        place = Path(root)
        self.path = place if place.is_file() else place / FILE
        if not self.path.is_file():
            raise FileNotFoundError(f"{self.path}: expected the file of N-TIDIGITS, found none; {_FETCH}")
        self._file = shared_file(self.path)
        found = {part: self._names(part) for part in ("train", "test")}
        both = sorted(set(found["train"]) & set(found["test"]))
        if both:
            warnings.warn(
                f"{self.path}: recordings in the training and in the test set: {some_names(both)}",
                stacklevel=2,
            )
        self._part = "test" if split == "test" else "train"
        names = {name: match for name, match in found[self._part].items() if connected or len(match[2]) == 1}
        if split != "test":
            speakers = sorted({match[1] for match in names.values()})
            held = set(speakers[len(speakers) - max(len(speakers) // _VAL_SPEAKERS, 1) :])
            names = {name: match for name, match in names.items() if (match[1] in held) == (split == "val")}
        if not names:
            raise EventFileError(
                f"{self.path}: expected recordings for the split {split!r}, found none; {_FETCH}"
            )
        self.files = sorted(names)
        self.speakers = [names[name][1] for name in self.files]
        labels = [torch.tensor([_LABELS[digit] for digit in names[name][2]]) for name in self.files]
        self.targets: torch.Tensor | list[torch.Tensor] = labels if connected else torch.cat(labels)

    def sample(self, number: int) -> Events:
        """Spikes of a recording."""
        name, file = self.files[number], self._file.open()
        try:
            parts = [file[f"{self._part}_{kind}"][name] for kind in ("timestamps", "addresses")]
            for part in parts:
                check_dataset(part, self.path.stat().st_size)
            times, channels = np.asarray(parts[0], np.float64), np.asarray(parts[1])
            events = channel_events(times, channels, CHANNELS, "first")
        except DAMAGED as error:
            raise EventFileError(f"{self.path}: recording {name}: {error}") from error
        return in_order(events, f"{self.path}: recording {name}")

    def label(self, number: int) -> Any:
        """The digit, or the digits."""
        return self.targets[number] if self.connected else super().label(number)

    def _names(self, part: str) -> dict[str, re.Match[str]]:
        """The recordings of a published set; those with names that say no digits are named and left out."""
        try:
            file = self._file.open()
            times, addresses = set(file[f"{part}_timestamps"]), set(file[f"{part}_addresses"])
        except DAMAGED as error:
            raise EventFileError(
                f"{self.path}: expected the groups {part}_timestamps and {part}_addresses, found another or a damaged "
                f"file ({error})"
            ) from error
        alone = sorted(times ^ addresses)
        if alone:
            raise EventFileError(
                f"{self.path}: expected times and addresses of each recording, lacks one of {some_names(alone)}"
            )
        found = {name: _NAME.fullmatch(name) for name in sorted(times)}
        foreign = [name for name, match in found.items() if match is None]
        warn_of_foreign(self.path, foreign, "no names of recordings")
        return {name: match for name, match in found.items() if match is not None}

    def __repr__(self) -> str:
        return f"NTIDIGITS({str(self.path)!r}, {self.split}, {len(self)} recordings)"
