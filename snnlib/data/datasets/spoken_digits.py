"""Spoken digits: the Free Spoken Digit Dataset."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import torch

from snnlib.checks import check_choice
from snnlib.data.checks import check_int
from snnlib.data.datasets.splits import SPLITS, Split, some_names, warn_of_foreign
from snnlib.data.formats.event_file import EventFileError
from snnlib.data.samples import Samples, Transform
from snnlib.data.sources import open_source
from snnlib.data.wav import decode_wav

__all__ = ["SpokenDigits"]

_FETCH = "fetch the recordings from github.com/Jakobovski/free-spoken-digit-dataset"
_NAME = re.compile(r"(\d)_([A-Za-z]+)_(\d+)\.wav")


class SpokenDigits(Samples):
    """Spoken digits as `(waveform, label)`: float32 `[samples]` in -1..1 at `sample_rate`, labels 0 to 9.

    Layout: `root/recordings/{digit}_{speaker}_{index}.wav`, those files in `root` itself, or `root/recordings.zip`;
    `root` may be the zip file. Splits are by speaker, so that accuracy is for new voices: by default the test set is
    the last speaker by name, and the validation set the one before.

    Args:
        root: the folder or zip file.
        split: `"train"`, `"val"` or `"test"`.
        transform: maps the waveform, for example to spikes.
        target_transform: maps the label.
        test_speakers: names of the speakers of the test set; default the last by name.
        val_speakers: names of the speakers of the validation set; default the last of the other speakers, or none with
            `fold`.
        fold: index by name of the test speaker, in place of `test_speakers`. Default None.

    Attributes:
        classes: `"0"` to `"9"`.
        targets: labels, int64 `[S]`.
        speakers: speaker of each sample.
        files: names of the files, sorted by label, speaker and index.
        sample_rate: samples per second of all files.

    Raises:
        FileNotFoundError: no recordings; the message says what to download.
        ValueError: a missing speaker, or a speaker in two splits.
        EventFileError: a damaged file, or another sample rate.

    Source: Z. Jackson et al., "Free Spoken Digit Dataset", CC BY-SA 4.0.
    """

    classes = tuple("0123456789")

    def __init__(
        self,
        root: str | os.PathLike[str],
        split: Split = "train",
        transform: Transform | None = None,
        target_transform: Transform | None = None,
        *,
        test_speakers: Sequence[str] | None = None,
        val_speakers: Sequence[str] | None = None,
        fold: int | None = None,
    ) -> None:
        super().__init__(transform, target_transform)
        self.split = check_choice("split", split, *SPLITS)
        inner = [Path(root, name) for name in ("recordings", "recordings.zip")]
        self._source = open_source(next((place for place in inner if place.exists()), Path(root)))
        names = [name for name in self._source.names() if not name.endswith("/")]
        found = {name: match for name in names if (match := _NAME.fullmatch(name.rsplit("/", 1)[-1]))}
        if not found:
            raise FileNotFoundError(
                f"root {str(root)!r}: expected recordings/{{digit}}_{{speaker}}_{{index}}.wav, found none; {_FETCH}"
            )
        foreign = sorted(set(names) - set(found))
        warn_of_foreign(root, foreign, "no names of recordings")
        doubles = [
            name for name, count in Counter(name.rsplit("/", 1)[-1] for name in found).items() if count > 1
        ]
        if doubles:
            raise EventFileError(
                f"{root}: expected each recording once, found {some_names(doubles)} in several folders"
            )
        speakers = sorted({match[2] for match in found.values()})
        if fold is not None:
            check_int("fold", fold, 0, len(speakers) - 1)
            test_speakers, val_speakers = speakers[fold : fold + 1], val_speakers or ()
        tests = _named("test_speakers", test_speakers, speakers, speakers[-1:])
        others = [speaker for speaker in speakers if speaker not in tests]
        vals = _named("val_speakers", val_speakers, speakers, others[-1:] if len(others) > 1 else [])
        if set(tests) & set(vals):
            raise ValueError(f"val_speakers: expected none of the test speakers, got {', '.join(vals)}")
        sets = {"test": tests, "val": vals, "train": set(speakers) - set(tests) - set(vals)}
        wanted = sets[split]
        self.files = sorted(
            (name for name, match in found.items() if match[2] in wanted),
            key=lambda name: (found[name][1], found[name][2], int(found[name][3])),
        )
        if not self.files:
            raise ValueError(
                f"split: expected recordings for {split!r}, got none of the speakers {', '.join(speakers)}"
            )
        self.speakers = [found[name][2] for name in self.files]
        self.targets = torch.tensor([int(found[name][1]) for name in self.files], dtype=torch.int64)
        self.sample_rate = self._read(0)[1]

    def sample(self, number: int) -> torch.Tensor:
        """The sound."""
        return self._read(number, self.sample_rate)[0]

    def _read(self, number: int, rate: int | None = None) -> tuple[torch.Tensor, int]:
        name = self.files[number]
        return decode_wav(self._source.read(name), self._source.describe(name), rate)

    def __repr__(self) -> str:
        return (
            f"SpokenDigits({self.split}, {len(self)} recordings of {', '.join(sorted(set(self.speakers)))})"
        )


def _named(name: str, given: Sequence[str] | None, speakers: list[str], default: list[str]) -> list[str]:
    chosen = default if given is None else list(given)
    unknown = sorted(set(chosen) - set(speakers))
    if unknown:
        raise ValueError(f"{name}: expected speakers among {', '.join(speakers)}, got {', '.join(unknown)}")
    return chosen
