"""Stored files with bytes changed at random: read in part, or refused with the documented error, never more.

Event files of every format with a reader of the library's own (h5py's C library is not built for hostile files), run
checkpoints, settings of runs, golden spikes and potentials, and packed events; and headers by field (fuzz_headers.py).
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import fuzz_headers
import numpy as np
import torch
from event_files import EVENT_FILES, EVENTS, read_damaged

from snnlib.app.training import CheckpointError, ConfigError, TrainConfig
from snnlib.app.training.checkpoint_io import SafeCheckpointIO
from snnlib.data import EventFileError
from snnlib.data.packed_events import PackedEvents, write_packed
from snnlib.testing import golden


@dataclass(frozen=True)
class FileCase:
    """A damaged file: its kind, how it was damaged, and its bytes."""

    kind: str
    name: str
    data: bytes


def _checkpoint(folder: Path) -> bytes:
    path = folder / "made.ckpt"
    SafeCheckpointIO().save_checkpoint({"epoch": 3, "weight": torch.arange(40.0)}, path)
    return path.read_bytes()


def _read_checkpoint(path: Path, sound: bytes) -> bool:
    """No change goes unnoticed: the digest is over all bytes."""
    try:
        SafeCheckpointIO().load_checkpoint(path)
    except CheckpointError as error:
        assert str(error).startswith(str(path))
        return False
    assert path.read_bytes() == sound
    return True


def _settings(folder: Path) -> bytes:
    path = folder / "made.json"
    TrainConfig(net="4C5-P2-10", epochs=3).save(path)
    return path.read_bytes()


def _read_settings(path: Path, sound: bytes) -> bool:
    try:
        with warnings.catch_warnings():
            # Warnings of settings that the file does not name.
            warnings.simplefilter("ignore", UserWarning)
            TrainConfig.load(path)
    except ConfigError:
        return False
    return True


def _golden(folder: Path) -> bytes:
    return golden.encode({"fc": np.random.default_rng(0).random((6, 2, 5)) < 0.3})


def _read_golden(path: Path, sound: bytes) -> bool:
    try:
        for spikes in golden.read_spikes(path).values():
            assert spikes.dtype == bool
    except golden.GoldenError as error:
        assert str(error).startswith(str(path))
        return False
    return True


def _potentials(folder: Path) -> bytes:
    return golden.encode({"fc": np.random.default_rng(0).random((6, 2, 5))})


def _read_potentials(path: Path, sound: bytes) -> bool:
    try:
        golden.read_potentials(path)
    except golden.GoldenError:
        return False
    return True


def _packed(folder: Path) -> bytes:
    path = folder / "made.events"
    write_packed(path, [(EVENTS, 1), (EVENTS[:7], 0)], {"key": "two"})
    return path.read_bytes()


def _read_packed(path: Path, sound: bytes) -> bool:
    """A recording that is called intact is the one that was written."""
    try:
        packed = PackedEvents(path)
    except EventFileError:
        return False
    for number, events in enumerate((EVENTS, EVENTS[:7])):
        if packed.is_intact(number):
            assert np.array_equal(packed[number], events)
    return True


# Kind of file: (makes a sound one in a folder, reads a damaged one).
STORED: dict[str, tuple[Callable[[Path], bytes], Callable[[Path, bytes], bool]]] = {
    "checkpoint": (_checkpoint, _read_checkpoint),
    "settings": (_settings, _read_settings),
    "golden spikes": (_golden, _read_golden),
    "golden potentials": (_potentials, _read_potentials),
    "packed events": (_packed, _read_packed),
}
KINDS = (*EVENT_FILES, *STORED, *fuzz_headers.HEADERS)


@cache
def _sound(kind: str) -> bytes:
    if kind in EVENT_FILES:
        return EVENT_FILES[kind]()
    with TemporaryDirectory() as folder:
        return STORED[kind][0](Path(folder))


def _damaged(rng: random.Random, data: bytes) -> tuple[bytes, str]:
    """Other bytes, and what was done to them; most files have their structure in front."""
    place = rng.randrange(len(data) if rng.random() < 0.5 else min(len(data), 200))
    length = rng.choice([1, 1, 2, 4, 8, 64])
    how = rng.choice(["flip", "set", "set", "cut", "remove", "repeat", "insert", "integer"])
    if how == "flip":
        return data[:place] + bytes([data[place] ^ 1 << rng.randrange(8)]) + data[place + 1 :], how
    if how == "cut":
        return data[:place], f"cut at {place}"
    if how == "remove":
        return data[:place] + data[place + length :], f"{length} bytes removed at {place}"
    if how == "repeat":
        return data[: place + length] + data[place:], f"{length} bytes twice at {place}"
    if how == "integer":
        # Sizes and offsets at their limits.
        size = rng.choice([2, 4, 8])
        value = rng.choice([0, 1, 2 ** (8 * size - 1) - 1, 2 ** (8 * size - 1), 2 ** (8 * size) - 1])
        return data[:place] + value.to_bytes(size, "little") + data[place + size :], f"{value} at {place}"
    new = rng.randbytes(length)
    kept = place + (0 if how == "insert" else length)
    return data[:place] + new + data[kept:], f"{how} {length} bytes at {place}"


def file_case(seed: int) -> FileCase:
    """A sound file with one to three places damaged."""
    rng = random.Random(seed)
    kind = KINDS[seed % len(KINDS)]
    if kind in fuzz_headers.HEADERS:
        return FileCase(kind, f"seed {seed}: {kind}", fuzz_headers.made(kind, rng))
    data, done = _sound(kind), []
    for _ in range(rng.choice([1, 1, 2, 3])):
        if data:
            data, how = _damaged(rng, data)
            done.append(how)
    return FileCase(kind, f"seed {seed}: {kind}, {'; '.join(done)}", data)


def check(case: FileCase, folder: Path) -> bool:
    """Returns whether something was read; raises if another error came than the documented one."""
    if case.kind == "mat":
        return read_damaged(case.data, "mat", polarity="signed", one_based=True)
    if case.kind in EVENT_FILES:
        return read_damaged(case.data, case.kind)
    if case.kind in fuzz_headers.HEADERS:
        return fuzz_headers.check(case.kind, case.data, folder)
    path = folder / "damaged"
    path.write_bytes(case.data)
    return STORED[case.kind][1](path, _sound(case.kind))
