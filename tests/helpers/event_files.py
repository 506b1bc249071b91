"""Small event files of every format, for the tests of readers."""

from __future__ import annotations

import io
import struct
import tracemalloc
import warnings
from functools import partial

import numpy as np

from snnlib.data import EVENT_DTYPE, EventFileError, read, write
from snnlib.data.formats.event_sink import Header
from snnlib.data.formats.registry import FORMATS

SIZES = {"aedat2": (180, 240), "nmnist": (34, 34)}
WRITABLE = [name for name, item in FORMATS.items() if item.encode is not None]


def random_events(count, sensor_size=(48, 64), last_us=2_000_000, seed=0):
    rng = np.random.default_rng(seed)
    events = np.empty(count, EVENT_DTYPE)
    events["t"] = np.sort(rng.integers(0, last_us + 1, count))
    events["x"], events["y"] = rng.integers(0, sensor_size[1], count), rng.integers(0, sensor_size[0], count)
    events["p"] = rng.integers(0, 2, count)
    return events


def encoded(name, events, sensor_size=None):
    return FORMATS[name].encode(events, Header(name, sensor_size=sensor_size or SIZES.get(name)), {})


def write_event_folder(root):
    """Writes four recordings of two classes, in three formats; returns their folder."""
    for number, name in enumerate(("clap/a.dat", "clap/b.dat", "wave/c.raw", "wave/d.npy")):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        options = {"format": "evt3"} if path.suffix == ".raw" else {}
        write(path, random_events(50 + number, (40, 400), seed=number), **options)
    return root


def assert_same_events(cache, samples):
    assert len(cache) == len(samples) and cache.targets.tolist() == samples.targets.tolist()
    for number in range(len(samples)):
        (events, label), (expected, wanted) = cache[number], samples[number]
        assert np.array_equal(events, expected) and events.dtype == expected.dtype and label == wanted


def evt21_file(legacy=False):
    """Three words with events after a TIME_HIGH: 1 + 2 + 32 events."""
    words = [
        8 << 60 | 5 << 32,
        1 << 60 | 7 << 54 | 32 << 43 | 9 << 32 | 1 << 3,
        0 << 60 | 8 << 54 | 0 << 43 | 10 << 32 | (1 | 1 << 31),
        0xA << 60 | 9 << 54,
        1 << 60 | 9 << 54 | 64 << 43 | 11 << 32 | 0xFFFFFFFF,
    ]
    text = f"% format EVT21;width=128;height=16{';endianness=legacy' if legacy else ''}\n% end\n".encode()
    if legacy:
        words = [(word >> 32) | (word & 0xFFFFFFFF) << 32 for word in words]
    return text + struct.pack(f"<{len(words)}Q", *words)


def aedat4_file(events, compress=lambda data: data, compression=0, data_table=-1, streams=b""):
    """An AEDAT 4 file with one packet per 1000 events, built by hand from the flatbuffer layout.

    `streams` describes others than that of events in XML.
    """
    xml = (
        b'<dv version="2.0"><node name="outInfo" path="/mainloop/Recorder/outInfo/"><node name="0" path="">'
        b'<attr key="typeIdentifier" type="string">EVTS</attr><node name="info" path="">'
        b'<attr key="sizeX" type="int">64</attr><attr key="sizeY" type="int">48</attr>'
        b'<attr key="source" type="string">made</attr></node></node>' + streams + b"</node></dv>"
    )
    # Root offset, identifier, vtable of three fields, table: soffset, compression, data table, text.
    vtable = struct.pack("<HHHHH", 10, 24, 4, 8, 16) + b"\0\0"
    table = struct.pack("<iiqI", 12, compression, data_table, 4) + b""
    text = struct.pack("<I", len(xml)) + xml + b"\0"
    head = struct.pack("<I", 8 + len(vtable)) + b"IOHE" + vtable + table + text
    parts = [b"#!AER-DAT4.0\r\n", struct.pack("<I", len(head)), head]
    for start in range(0, len(events), 1000):
        part = events[start : start + 1000]
        words = np.zeros(len(part), [("t", "<i8"), ("x", "<i2"), ("y", "<i2"), ("on", "u1"), ("pad", "V3")])
        words["t"], words["x"], words["y"], words["on"] = part["t"], part["x"], part["y"], part["p"]
        table = struct.pack("<HHH", 6, 8, 4) + b"\0\0" + struct.pack("<iI", 8, 4)
        body = struct.pack("<I", 8 + 8) + b"EVTS" + table + struct.pack("<I", len(part)) + words.tobytes()
        packet = compress(struct.pack("<I", len(body)) + body)
        parts += [struct.pack("<ii", 0, len(packet)), packet]
    return b"".join(parts)


def aedat1_file(events):
    """An AEDAT 2.0 file of a DVS128 with 16 bits for each address."""
    data = encoded("aedat2", events, (128, 128))
    words = np.frombuffer(data[len(encoded("aedat2", events[:0], (128, 128))) :], ">u4").reshape(-1, 2)
    short = np.zeros(len(words), [("address", ">u2"), ("t", ">u4")])
    short["address"], short["t"] = words.T
    return b"#!AER-DAT1.0\r\n# This is a raw AE data file\r\n" + short.tobytes()


def npz_file(events):
    buffer = io.BytesIO()
    np.savez_compressed(buffer, t=events["t"], x=events["x"], y=events["y"], p=events["p"])
    return buffer.getvalue()


def csv_file(events):
    rows = [f"{t},{x},{y},{p}" for t, x, y, p in events.tolist()]
    return "\n".join(["t,x,y,p", *rows, ""]).encode()


def mat_file(events):
    scipy_io = __import__("scipy.io").io
    buffer = io.BytesIO()
    signed = {"ts": events["t"], "x": events["x"] + 1, "y": events["y"] + 1, "pol": 2 * events["p"] - 1}
    scipy_io.savemat(buffer, signed)
    return buffer.getvalue()


def struct_file(events):
    """A MATLAB file whose columns are fields of a struct, as recordings of the ATIS have them."""
    buffer = io.BytesIO()
    fields = {"x": events["x"] + 1, "y": events["y"] + 1, "p": 2 * events["p"] - 1, "ts": events["t"]}
    __import__("scipy.io").io.savemat(
        buffer, {"TD": {name: column[:, None] for name, column in fields.items()}}
    )
    return buffer.getvalue()


def hdf5_file(events):
    h5py = __import__("h5py")
    buffer = io.BytesIO()
    with h5py.File(buffer, "w") as file:
        for name in ("t", "x", "y", "p"):
            file[f"events/{name}"] = events[name]
    return buffer.getvalue()


EVENTS = random_events(40, (30, 30), last_us=9_000)
EVENT_FILES = {
    **{name: partial(encoded, name, EVENTS) for name in WRITABLE},
    "evt21": evt21_file,
    "aedat1": lambda: aedat1_file(EVENTS),
    "aedat4": lambda: aedat4_file(EVENTS),
    "npz": lambda: npz_file(EVENTS),
    "csv": lambda: csv_file(EVENTS),
    "mat": lambda: mat_file(EVENTS),  # with options of its own: as `check` of fuzz_files.py reads it
}


def read_damaged(data, name, **options):
    """Returns whether events are read; allows the documented error alone, and 100 bytes of memory per byte."""
    tracemalloc.start()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            events, _ = read(data, format=name, **options)
            assert events.ndim == 1 and len(events) <= 12 * len(data)
            assert bool((np.diff(events["t"]) >= 0).all())
            assert bool(((events["p"] == 0) | (events["p"] == 1)).all())
        return True
    except EventFileError as error:
        assert str(error).startswith(f"<{len(data)} bytes>: byte offset ")
        return False
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 4e6 + 100 * len(data), f"{name}: {peak} bytes for a file of {len(data)}"
