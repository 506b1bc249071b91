"""Headers of stored files made field by field, each field from values that break readers: WAV, WFDB, zip and HDF5.

Changed bytes seldom meet a field. A kind is a function that makes a file from random numbers and one that reads it and
checks what was read; each knows the documented errors.
"""

from __future__ import annotations

import random
import tempfile
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from event_files import EVENTS, encoded
from small_sets import annotation, write_record

from snnlib.data import MITBIH, NMNIST, EventFileError, read, read_wav

INTEGERS = (
    0,
    1,
    2,
    3,
    8,
    16,
    24,
    32,
    36,
    40,
    64,
    0x7FFF,
    0x8000,
    0xFFFF,
    0x7FFFF000,
    0x7FFFFFFF,
    2**31,
    2**32 - 1,
)
# A byte that data of another file have, and events of these files never.
SECRET = 0x2A


def integer(rng: random.Random, size: int, usual: int) -> bytes:
    """The usual value most of the time."""
    value = usual if rng.random() < 0.93 else rng.choice(INTEGERS)
    return (value % 2 ** (8 * size)).to_bytes(size, "little")


def wav(rng: random.Random, folder: Path) -> bytes:
    coding, bits = rng.choice([(1, 8), (1, 16), (1, 24), (1, 32), (3, 32), (3, 64), (7, 8), (2, 4)])
    channels = rng.choice([1, 1, 2, 6])
    frame = channels * ((bits + 7) // 8)
    extensible = rng.random() < 0.5
    fields = [(2, 0xFFFE if extensible else coding), (2, channels), (4, 8000), (4, 8000 * frame)]
    fields += [(2, frame), (2, bits)]
    chunk = b"".join(integer(rng, size, usual) for size, usual in fields)
    if extensible:
        guid = bytes.fromhex("000000001000800000aa00389b71")
        chunk += integer(rng, 2, 22) + integer(rng, 2, bits) + integer(rng, 4, 0) + integer(rng, 2, coding)
        chunk += guid if rng.random() < 0.9 else rng.randbytes(14)
    data = rng.choice([bytes(96), rng.randbytes(96), rng.randbytes(rng.randrange(9)), b""])
    parts = [b"fmt " + integer(rng, 4, len(chunk)) + chunk, b"data" + integer(rng, 4, len(data)) + data]
    if rng.random() < 0.3:
        parts.insert(rng.randrange(3), b"LIST" + integer(rng, 4, 4) + b"INFO")
    if rng.random() < 0.05:
        parts.reverse()
    body = b"WAVE" + b"".join(parts)
    return rng.choice([b"RIFF"] * 9 + [b"RF64"]) + integer(rng, 4, len(body)) + body


def read_sound(path: Path) -> bool:
    try:
        sound, rate = read_wav(path)
    except EventFileError as error:
        assert str(error).startswith(f"{path}: byte offset ")
        return False
    assert bool(sound.isfinite().all()) and rate > 0 and 0 < len(sound) <= path.stat().st_size
    return True


GAINS = (
    "200",
    "0.2",
    "-200",
    "2e2",
    "0",
    "-0",
    "inf",
    "-inf",
    "nan",
    "1e39",
    "1e-46",
    "1e400",
    "9" * 400,
    "x",
    "1_0",
)
UNITS = ("", "/mV", "/uV", "/\u00b5V", "/V", "/nV", "/MV", "/mmHg", "/NU", "/", "/mV/mV", "/v")
NUMBERS = ("0", "1", "-1", "11", "900", "360", "1e3", "0.5", "-32768", "99999999999", "9" * 5000, "x", "")


def wfdb(rng: random.Random, folder: Path) -> bytes:
    write_record(folder, "101", [(100, 1), (300, 5)])
    lines = [line.split() for line in (folder / "101.hea").read_text().splitlines()[:3]]
    for line in lines[1:]:
        zero = rng.choice(["", "", "(0)", "(1024)", "(-5)", "(9)", f"({rng.choice(NUMBERS)})"])
        line[2] = rng.choice([*GAINS, *["200"] * 20]) + zero + rng.choice([*UNITS, *["/uV"] * 12])
    for _ in range(rng.choice([0, 0, 0, 1, 2])):
        line = rng.choice(lines)
        line[rng.randrange(len(line))] = rng.choice(NUMBERS)
    return "\n".join(" ".join(line) for line in lines).encode()


def beats(rng: random.Random, folder: Path) -> bytes:
    """Annotations with skips to and fro, and texts of any length."""
    write_record(folder, "101", [(100, 1)])
    data = b""
    for _ in range(rng.randrange(8)):
        data += annotation(
            rng.choice([1, 5, 8, 28, 49, 50, 59, 60, 61, 62, 63]), rng.choice([0, 1, 3, 200, 1023])
        )
        if rng.random() < 0.5:
            data += rng.choice([b"\0\0\x64\0", b"\xff\xff\x9c\xff", b"\xff\x7f\xff\xff", b"(N\0\0"])
    return data + rng.choice([b"\0\0", b"\0\0", b"", b"\0"])


def read_record(path: Path) -> bool:
    for suffix in (".hea", ".atr", ".dat"):
        if not (path.with_name(f"101{suffix}")).exists():
            write_record(path.parent, "101", [(100, 1), (300, 5)])
    path.with_name(f"101{path.suffix}").write_bytes(path.read_bytes())
    path.unlink()
    try:
        records = MITBIH(path.parent, None, unit="record")
        signal, labels = records[0]
    except EventFileError as error:
        assert str(error).startswith(str(path.with_name("101"))) and "byte offset " in str(error)
        return False
    assert bool(signal.isfinite().all()) and len(signal) == len(labels)
    assert bool((signal != 0).any()) and bool((np.diff(records.peaks[0]) >= 0).all())
    return True


# Place and size of the fields of a local header, a central one, and the end of the central directory.
LOCAL = ((4, 2), (6, 2), (8, 2), (14, 4), (18, 4), (22, 4), (26, 2), (28, 2))
CENTRAL = ((6, 2), (8, 2), (10, 2), (16, 4), (20, 4), (24, 4), (28, 2), (30, 2), (32, 2), (34, 2), (42, 4))
END = ((4, 2), (6, 2), (8, 2), (10, 2), (12, 4), (16, 4), (20, 2))
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)


def packed(rng: random.Random, folder: Path) -> bytes:
    path = folder / "made.zip"
    with zipfile.ZipFile(path, "w", rng.choice(METHODS)) as archive:
        for digit in "34":
            archive.writestr(f"Train/{digit}/00001.bin", encoded("nmnist", EVENTS))
    data = bytearray(path.read_bytes())
    path.unlink()
    for _ in range(rng.choice([1, 1, 2])):
        mark, fields = rng.choice([(b"PK\3\4", LOCAL), (b"PK\1\2", CENTRAL), (b"PK\5\6", END)])
        place, size = rng.choice(fields)
        begin = data.index(mark) + place
        old = int.from_bytes(data[begin : begin + size], "little")
        value = rng.choice([*INTEGERS, 9, 12, 14, 93, 95, 99, old + 1, old ^ 1 << rng.randrange(8 * size)])
        data[begin : begin + size] = (value % 2 ** (8 * size)).to_bytes(size, "little")
    return bytes(data)


def read_archive(path: Path) -> bool:
    path.rename(path.with_name("Train.zip"))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            samples = NMNIST(path.parent)
            sizes = [len(events) for events, _ in samples]
    except EventFileError as error:
        assert str(error).startswith(str(path.parent))
        return False
    # A recording that is called whole is the one that was written.
    assert set(sizes) <= {len(EVENTS)}
    return True


def hdf5(rng: random.Random, folder: Path) -> bytes:
    import h5py  # noqa: PLC0415 - an extra

    path = folder / "made.h5"
    with h5py.File(path, "w", userblock_size=rng.choice([0, 0, 512])) as file:
        place = rng.choice(["", "events/", "CD/", "left/"])
        if rng.random() < 0.2:
            kind, columns = rng.choice(["u4", "i8", "f8"]), rng.choice([3, 4, 5])
            _data(h5py, rng, file, f"{place}events", (5, columns), kind, folder)
        for name in "txyp":
            shape = rng.choice([(5,)] * 50 + [(1, 5), (5, 1), (), (0,), (2**40,), (5, 5)])
            kind = rng.choice(["i8"] * 40 + ["u2", "f4", "f8", "S3", "?", "c8"])
            _data(h5py, rng, file, f"{place}{name}", shape, kind, folder)
        if rng.random() < 0.2:
            _data(
                h5py,
                rng,
                file,
                "t_offset",
                rng.choice([(), (1,), (2,)]),
                rng.choice(["i8", "f8", "S2"]),
                folder,
            )
    data = path.read_bytes()
    path.unlink()
    return data


def _data(
    h5py: object, rng: random.Random, file: object, name: str, shape: tuple[int, ...], kind: str, folder: Path
) -> None:
    """A data set that is stored plainly, packed by some filter, or elsewhere."""
    how = rng.choice(["plain"] * 40 + ["gzip", "filter", "external", "virtual", "link", "soft"])
    small = max(shape, default=0) < 2**20
    if how == "external" and shape:
        secret = folder.parent / "secret.bin"
        secret.write_bytes(bytes([SECRET]) * 400)
        file.create_dataset(name, shape, kind, external=[(str(secret), 0, h5py.h5f.UNLIMITED)])
    elif how == "virtual" and shape:
        layout = h5py.VirtualLayout(shape, kind)
        layout[...] = h5py.VirtualSource("other.h5", "data", shape)
        file.create_virtual_dataset(name, layout)
    elif how == "link":
        file[name] = h5py.ExternalLink("other.h5", "data")
    elif how == "soft":
        file[name] = h5py.SoftLink(rng.choice(["/", "/t", "/events", "/nothing"]))
    elif how == "filter" and shape and small and shape[0]:
        properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        properties.set_chunk(shape)
        properties.set_filter(rng.choice([400, 32001, 32015, 0x8ECF]), h5py.h5z.FLAG_OPTIONAL, ())
        place = file.require_group(name.rpartition("/")[0] or "/")
        space, stored = h5py.h5s.create_simple(shape), h5py.h5t.py_create(np.dtype(kind))
        data = h5py.h5d.create(place.id, name.rpartition("/")[2].encode(), stored, space, properties)
        count = int(np.prod(shape)) * np.dtype(kind).itemsize
        data.write_direct_chunk((0,) * len(shape), bytes(count), filter_mask=rng.choice([0, 1]))
    elif how == "gzip" and shape and shape[0]:
        file.create_dataset(
            name, shape, kind, compression="gzip", chunks=tuple(min(n, 8) or 1 for n in shape)
        )
    elif small:
        file.create_dataset(name, data=np.ones(shape).astype(kind))
    else:
        file.create_dataset(name, shape, kind, chunks=True)


def read_hdf5(path: Path) -> bool:
    options = random.Random(path.stat().st_size).choice([{}, {}, {"unit": "us"}, {"columns": "txyp"}])
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            events = read(path, format="hdf5", origin=0, **options).events
    except (EventFileError, ImportError) as error:
        assert str(error).startswith(str(path))
        assert isinstance(error, EventFileError) or "HDF5 filter" in str(error)
        return False
    assert len(events) <= 5 and not bool(np.isin(events["x"], [SECRET, SECRET * 257]).any())
    return True


# Kind of file: (makes one in a folder, reads it).
HEADERS: dict[str, tuple[Callable[[random.Random, Path], bytes], Callable[[Path], bool]]] = {
    "wav": (wav, read_sound),
    "wfdb header": (wfdb, read_record),
    "wfdb annotations": (beats, read_record),
    "zip": (packed, read_archive),
    "hdf5": (hdf5, read_hdf5),
}
SUFFIXES = {"wfdb header": ".hea", "wfdb annotations": ".atr", "hdf5": ".h5"}


def made(kind: str, rng: random.Random) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        inner = Path(folder, "inner")
        inner.mkdir()
        return HEADERS[kind][0](rng, inner)


def check(kind: str, data: bytes, folder: Path) -> bool:
    """Returns True if something was read."""
    inner = Path(tempfile.mkdtemp(dir=folder))
    path = inner / f"damaged{SUFFIXES.get(kind, '')}"
    path.write_bytes(data)
    return HEADERS[kind][1](path)
