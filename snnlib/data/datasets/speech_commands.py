"""Spoken words: the Speech Commands data set and its archive of test files."""

from __future__ import annotations

import hashlib
import math
import os
import re
from typing import NamedTuple

import torch

from snnlib.data.datasets.published import found_or_downloaded
from snnlib.data.datasets.splits import Split, check_folds, set_of
from snnlib.data.formats.event_file import EventFileError
from snnlib.data.samples import Samples, Transform
from snnlib.data.sources import open_source
from snnlib.data.wav import decode_wav

__all__ = ["SpeechCommands"]

_FETCH = (
    "download=True downloads the data set, or fetch speech_commands_v0.02.tar.gz or "
    "speech_commands_test_set_v0.02.tar.gz from download.tensorflow.org/data and unpack it"
)
SILENCE, UNKNOWN, _NOISE = "_silence_", "_unknown_", "_background_noise_"
COMMANDS = ("yes", "no", "up", "down", "left", "right", "on", "off", "stop", "go")
# Names of words, of unknown ones in the test archive, where the word stands first, and of silence there.
_SPOKEN = re.compile(r"(?:[a-z]+_)?([0-9a-f]+)_nohash_\d+\.wav(?:\.wav)?")
_SILENT = re.compile(r"(\d+)\.wav")
# Commands for each unknown word and each piece of silence, as in the published task of twelve classes.
_EACH = 10
_LISTS: dict[Split, str] = {"test": "testing_list.txt", "val": "validation_list.txt"}
# Where the published sets lie in each recording of background noise, as shares of its length.
_NOISE_PARTS: dict[Split, tuple[float, float]] = {"train": (0.0, 0.8), "val": (0.8, 0.9), "test": (0.9, 1.0)}


class _Recording(NamedTuple):
    """A file, what is said in it, who says it, its set or fold, and for noise the part of it and the place there."""

    name: str
    label: str
    speaker: str
    group: int | Split
    low: float = 0.0
    high: float = 1.0
    place: float = 0.0


class SpeechCommands(Samples):
    """Spoken words as `(waveform, label)`: float32 `[samples]` in -1..1, 16,000 samples a second, about a second long.

    Two layouts, each a folder, a zip file, or a folder that holds one zip file. **The data set**:
    `root/{word}/{speaker}_nohash_{number}.wav` with `testing_list.txt`, `validation_list.txt` and
    `_background_noise_`: 35 words, or twelve classes, which are ten commands, other words ("unknown") and silence.
    **The archive of test files** of the twelve classes, which also has folders `_unknown_` and `_silence_`.

    The splits are the published ones, which share no speakers; the archive is the test set. With `fold`, splits follow
    folds by speaker: the speaker's name is a number in base 16, and its remainder by `folds` is the fold (for silence
    in the archive, the remainder of the file's number). Fold `fold` is the test set, the other folds are the training
    set.

    With twelve classes of the data set there is one unknown word and one silence per ten commands, rounded up, as in
    the published task: the unknown words with the smallest hash, and evenly spaced pieces of background noise, from a
    part of each recording that no other split uses.

    Args:
        root: the folder or zip file. Default: the folder of `snnlib.data.download("speech-commands")`.
        split: `"train"`, `"val"`, `"test"`, or None for all samples.
        transform: maps the waveform, for example to spikes.
        target_transform: maps the label.
        num_classes: 35 or 12. Default: 12 for the archive, 35 for the data set.
        folds: number of folds. Default 5.
        fold: the test fold. Default None: the published splits.
        download: whether to download the data set (2.4 GB) if it is missing, see `snnlib.data.download`. Default
            False.

    Attributes:
        classes: names of the labels, the words in alphabetical order; with twelve classes silence, unknown, then the
            commands.
        targets: labels, int64 `[S]`.
        speakers: speaker of each sample; for silence the number.
        files: names of the files, sorted.
        sample_rate: 16000.

    Raises:
        FileNotFoundError: no recordings; the message says what to download.
        DownloadError: see `snnlib.data.download`.
        ValueError: an option out of its range, or a split without samples.
        EventFileError: several zip files in a folder, a damaged file, another sample rate, stereo, or a missing list.

    Source: P. Warden, "Speech Commands: A Dataset for Limited-Vocabulary Speech Recognition", 2018, CC BY 4.0.

    >>> test = snnlib.data.SpeechCommands("speech_commands_test.zip", "test", fold=0)  # doctest: +SKIP
    >>> waveform, label = test[0]  # doctest: +SKIP
    """

    sample_rate = 16_000

    def __init__(
        self,
        root: str | os.PathLike[str] | None = None,
        split: Split | None = "train",
        transform: Transform | None = None,
        target_transform: Transform | None = None,
        *,
        num_classes: int | None = None,
        folds: int = 5,
        fold: int | None = None,
        download: bool = False,
    ) -> None:
        super().__init__(transform, target_transform)
        check_folds(split, folds, fold)
        self.split, self.folds, self.fold = split, folds, fold
        root = found_or_downloaded("speech-commands", root, download)
        self._source = open_source(root)
        names = self._source.names()
        paths = {name: name.split("/")[-2:] for name in names if name.endswith(".wav") and "/" in name}
        if not any(folder != _NOISE for folder, _ in paths.values()):
            raise FileNotFoundError(
                f"root {str(root)!r}: expected {{word}}/{{speaker}}_nohash_{{number}}.wav, found none; {_FETCH}"
            )
        archive = any(folder in (SILENCE, UNKNOWN) for folder, _ in paths.values())
        self.num_classes = (12 if archive else 35) if num_classes is None else num_classes
        if self.num_classes not in ((12,) if archive else (12, 35)):
            wanted = "12 for the archive of test files" if archive else "12 or 35"
            raise ValueError(f"num_classes: expected {wanted}, got {num_classes}")
        found = self._recordings(str(root), names, paths, archive)
        self.classes: tuple[str, ...] = (SILENCE, UNKNOWN, *COMMANDS)
        if self.num_classes == 35:
            self.classes = tuple(sorted({recording.label for recording in found}))
        elif not archive:
            found = self._twelve(found, [name for name, (folder, _) in paths.items() if folder == _NOISE])
        chosen = [one for one in found if split in (None, set_of(one.group, fold))]
        if not chosen:
            only = "; the archive of test files is a test set: fold=0 makes folds of it" if archive else ""
            raise ValueError(f"split: expected recordings for {split!r} in {str(root)!r}, got none{only}")
        self._chosen = sorted(chosen)
        self.files = [recording.name for recording in self._chosen]
        self.speakers = [recording.speaker for recording in self._chosen]
        labels = [self.classes.index(recording.label) for recording in self._chosen]
        self.targets = torch.tensor(labels, dtype=torch.int64)

    def _recordings(
        self, root: str, names: list[str], paths: dict[str, list[str]], archive: bool
    ) -> list[_Recording]:
        """All files of words, and of silence in the archive, with their sets or folds."""
        lists = {} if archive or self.fold is not None else self._lists(root, names)
        recordings = []
        for name, (folder, file) in paths.items():
            match = (_SILENT if folder == SILENCE else _SPOKEN).fullmatch(file)
            if folder == _NOISE or (archive and folder not in (SILENCE, UNKNOWN, *COMMANDS)):
                continue
            if match is None:
                raise EventFileError(
                    f"{root}: expected names like {{speaker}}_nohash_{{number}}.wav, found {name}"
                )
            group: int | Split = "test" if archive else lists.get(f"{folder}/{file}", "train")
            if self.fold is not None:
                group = int(match[1], 10 if folder == SILENCE else 16) % self.folds
            recordings.append(_Recording(name, folder, match[1], group))
        return recordings

    def _lists(self, root: str, names: list[str]) -> dict[str, Split]:
        """The published set of each file that one of the two lists names."""
        sets: dict[str, Split] = {}
        for part, file in _LISTS.items():
            found = [name for name in names if name.split("/")[-1] == file]
            if len(found) != 1:
                raise EventFileError(
                    f"{root}: expected one file {file}, found {len(found)}; without it fold=0 makes folds by speaker"
                )
            sets |= dict.fromkeys(self._source.read(found[0]).decode(errors="replace").split(), part)
        return sets

    def _twelve(self, found: list[_Recording], noise: list[str]) -> list[_Recording]:
        """Commands, and for each set or fold a tenth as many unknown words and pieces of background noise."""
        chosen = []
        for group in {one.group: None for one in found}:
            commands = [one for one in found if one.group == group and one.label in COMMANDS]
            others = [one for one in found if one.group == group and one.label not in COMMANDS]
            count = math.ceil(len(commands) / _EACH)
            others.sort(
                key=lambda one: hashlib.sha256(f"{one.label}/{one.name.split('/')[-1]}".encode()).digest()
            )
            chosen += commands + [one._replace(label=UNKNOWN) for one in others[:count]]
            folds = self.folds
            low, high = (
                _NOISE_PARTS[group] if isinstance(group, str) else (group / folds, (group + 1) / folds)
            )
            for number in range(count if noise else 0):
                round_, file = divmod(number, len(noise))
                place = round_ * len(noise) / count
                chosen.append(_Recording(sorted(noise)[file], SILENCE, str(number), group, low, high, place))
        return chosen

    def sample(self, number: int) -> torch.Tensor:
        """The sound."""
        recording = self._chosen[number]
        name = self._source.describe(recording.name)
        sound, _ = decode_wav(self._source.read(recording.name), name, self.sample_rate, channels=1)
        if recording.name.split("/")[-2] == _NOISE:
            room = max((recording.high - recording.low) * len(sound) - self.sample_rate, 0)
            first = int(recording.low * len(sound) + recording.place * room)
            sound = sound[first : first + self.sample_rate]
        return sound

    def __repr__(self) -> str:
        return f"SpeechCommands({self.split}, {len(self)} recordings, {len(self.classes)} classes)"
