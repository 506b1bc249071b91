"""Written events are read again, and hand-made files decode to hand-made events."""

import struct

import numpy as np
import pytest
from event_files import (
    SIZES,
    WRITABLE,
    aedat4_file,
    csv_file,
    encoded,
    evt21_file,
    hdf5_file,
    mat_file,
    npz_file,
    random_events,
    read_damaged,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from snnlib.data import as_events, read, write
from snnlib.data.formats.event_file import EventFile
from snnlib.data.formats.matlab import load_variables

EVENTS = random_events(3000)


@pytest.mark.parametrize("name", WRITABLE)
def test_round_trip(name, tmp_path, monkeypatch):
    size = SIZES.get(name, (48, 64))
    events = random_events(5000, size, last_us=8_000_000)
    path = tmp_path / "file"
    write(path, events, format=name, sensor_size=size)
    again, header = read(path, format=name, origin=0)
    assert np.array_equal(again, events) and header.skipped.keys() <= {"overflow words"}
    assert header.sensor_size == (None if name in ("nmnist", "npy", "aedat3") else size)
    # Chunks of odd sizes carry the state on.
    monkeypatch.setattr(EventFile.words, "__defaults__", (1, 37))
    for module in ("aedat3", "numpy_arrays"):
        monkeypatch.setattr(f"snnlib.data.formats.{module}.CHUNK", 41)
    assert np.array_equal(read(path, format=name, origin=0).events, events)


@pytest.mark.parametrize("name", WRITABLE)
def test_no_events(name):
    data = encoded(name, EVENTS[:0])
    assert len(read(data, format=name).events) == 0


event_lists = st.lists(
    st.tuples(st.integers(0, 300_000), st.integers(0, 33), st.integers(0, 33), st.integers(0, 1)), max_size=30
)


@pytest.mark.parametrize("name", [name for name in WRITABLE if name != "aedat2"])
@settings(max_examples=30, deadline=None)
@given(event_lists, st.sampled_from([0, 4090, 2**22 - 5, 2**24]))
def test_round_trip_of_any_events(name, rows, start):
    rows = sorted(rows, key=lambda row: row[0])
    events = as_events(*(np.array([row[k] for row in rows], np.int64) for k in range(4)))
    events["t"] += start
    assert np.array_equal(read(encoded(name, events), format=name, origin=0).events, events)


@pytest.mark.parametrize(
    ("name", "start"), [("aedat3", 2**31 - 5), ("aedat3", 2**61), ("dat", 2**32 - 11), ("evt2", 2**34 - 11)]
)
def test_times_at_the_border_of_a_format(name, start):
    events = as_events([start, start + 10], [1, 2], [3, 4], [0, 1])
    assert np.array_equal(read(encoded(name, events), format=name, origin=0).events, events)


def test_clocks_that_wrap_count_on():
    turn = struct.pack("<4I", 2**32 - 3, 1, 4, 2)
    assert read(b"% Version 2\n\x0c\x08" + turn).events["t"].tolist() == [2**32 - 3, 2**32 + 4]
    turn = struct.pack(">4I", 2, 2**32 - 3, 4, 5)
    assert read(b"#!AER-DAT2.0\r\n" + turn, origin=0).events["t"].tolist() == [2**32 - 3, 2**32 + 5]
    words = struct.pack("<4I", 8 << 28 | 2**28 - 1, 0, 8 << 28 | 1, 1)
    assert read(b"% evt 2.0\n" + words, origin=0).events["t"].tolist() == [2**34 - 64, 2**34 + 64]
    # A pause is no wrap.
    pause = struct.pack(">4I", 2, 5, 4, 2**31 + 9)
    assert read(b"#!AER-DAT2.0\r\n" + pause, origin=0).events["t"].tolist() == [5, 2**31 + 9]


def test_cameras_of_aedat2(tmp_path):
    for size, camera in (((128, 128), "dvs128"), ((260, 346), "davis346"), ((180, 240), "davis240")):
        events = random_events(500, size)
        write(tmp_path / "a.aedat", events, format="aedat2", sensor_size=size, camera=camera)
        again, header = read(tmp_path / "a.aedat", origin=0)
        assert np.array_equal(again, events) and (header.sensor_size, header.camera.lower()) == (size, camera)
    # Bits as the cameras send them: DVS128 counts x from the right and y from below, 0 is ON.
    dvs = b"#!AER-DAT2.0\r\n" + struct.pack(">4I", 127 << 8 | 127 << 1, 5, 1 << 15, 6)
    events, header = read(dvs, origin=0)
    assert events.tolist() == [(5, 0, 0, 1)] and header.skipped == {"trigger words": 1}
    davis = b"#!AER-DAT2.0\r\n" + struct.pack(">4I", 179 << 22 | 3 << 12 | 1 << 11, 7, 1 << 31, 8)
    events, header = read(davis, origin=0, camera="davis240c")
    assert events.tolist() == [(7, 236, 0, 1)] and header.skipped == {"image, motion and trigger words": 1}


@pytest.mark.parametrize("legacy", [False, True])
def test_evt21(legacy):
    events, header = read(evt21_file(legacy), origin=0)
    expected = [(327, 35, 9, 1), (328, 0, 10, 0), (328, 31, 10, 0)]
    expected += [(329, 64 + bit, 11, 1) for bit in range(32)]
    assert events.tolist() == expected and header.sensor_size == (16, 128)
    assert header.skipped == {"triggers and other words": 1}


def test_evt3_state_machine():
    """Vectors, repeated and changing TIME_HIGH, a TIME_LOW that steps back, words before the first time."""
    words = [
        *(2 << 12 | 5, 8 << 12 | 4095, 6 << 12 | 4000, 0 << 12 | 7, 2 << 12 | 1 << 11 | 9),
        *(3 << 12 | 1 << 11 | 32, 4 << 12 | 0b100000000001, 4 << 12, 5 << 12 | 0b10000010, 8 << 12 | 4095),
        *(2 << 12 | 3, 6 << 12 | 3995, 2 << 12 | 4, 8 << 12 | 0, 2 << 12 | 1, 6 << 12 | 2),
        *(0xA << 12, 5 << 12 | 1),
    ]
    data = b"% evt 3.0\n" + struct.pack(f"<{len(words)}H", *words)
    high = 4095 << 12
    expected = [
        (high + 3995, 4, 7, 0),
        (high + 4000, 9, 7, 1),
        (high + 4000, 32, 7, 1),
        (high + 4000, 43, 7, 1),
        (high + 4000, 57, 7, 1),
        (high + 4000, 63, 7, 1),
        (high + 4000, 3, 7, 0),
        (2**24, 1, 7, 0),
        (2**24 + 2, 64, 7, 1),
    ]
    events, header = read(data, origin=0)
    assert events.tolist() == expected
    assert header.skipped == {"words before the first time": 1, "triggers and other words": 1}


def plain_evt3(words):
    """The state machine word by word."""
    events, y, base, polarity, high, low, turns, timed = [], 0, 0, 0, 0, 0, 0, False
    for word in words:
        kind, value = word >> 12, word & 0xFFF
        if not timed and kind != 8:
            continue
        t = (turns << 24) + (high << 12) + low
        if kind == 0:
            y = value & 0x7FF
        elif kind == 2:
            events.append((t, value & 0x7FF, y, value >> 11))
        elif kind == 3:
            base, polarity = value & 0x7FF, value >> 11
        elif kind in (4, 5):
            width = 12 if kind == 4 else 8
            events += [(t, base + i, y, polarity) for i in range(width) if value >> i & 1]
            base += width
        elif kind == 6:
            low = value
        elif kind == 8:
            if timed and value < high - 2048:
                turns += 1
            if not timed or value != high:
                low = 0
            high, timed = value, True
    return events


def test_evt3_against_the_plain_state_machine(monkeypatch):
    rng = np.random.default_rng(3)
    kinds = rng.choice(
        [0, 2, 3, 4, 5, 6, 8, 10, 7], 20_000, p=[0.15, 0.25, 0.1, 0.15, 0.1, 0.15, 0.05, 0.03, 0.02]
    )
    values = rng.integers(0, 4096, len(kinds))
    # TIME_HIGH rises by small steps and wraps twice.
    values[kinds == 8] = np.cumsum(rng.integers(0, 20, (kinds == 8).sum())) % 4096
    # Vectors stay inside 2048 columns.
    values[kinds == 3] &= 0xBFF
    words = (kinds << 12 | values).astype("<u2")
    expected = sorted(plain_evt3(words.tolist()), key=lambda event: event[0])
    for chunk in (None, 11):
        if chunk:
            monkeypatch.setattr(EventFile.words, "__defaults__", (1, chunk))
        assert read(b"% evt 3.0\n" + words.tobytes(), origin=0).events.tolist() == expected


@pytest.mark.parametrize("frames", [1, 2, 3])
@pytest.mark.parametrize("compression", [0, 1, 3])
def test_aedat4(compression, frames):
    """A packet may be several frames."""
    one = {0: lambda data: data, 1: lz4_frame, 3: zstd}[compression]

    def compress(data):
        part = -(-len(data) // frames)
        return b"".join(one(data[at : at + part]) for at in range(0, len(data), part))

    shifted = EVENTS.copy()
    shifted["t"] += 1_600_000_000_000_000
    events, header = read(aedat4_file(shifted, compress, compression))
    assert header.start_us == shifted["t"][0] and (header.sensor_size, header.camera) == ((48, 64), "made")
    events["t"] += header.start_us
    assert np.array_equal(events, shifted)


@pytest.mark.parametrize("sound", [True, False])
def test_zstd_packets_take_the_memory_of_what_they_hold(sound):
    """Also where the frame is damaged; `read_damaged` bounds the memory."""
    compress = zstd if sound else lambda data: b"?" + zstd(data)[1:]
    assert read_damaged(aedat4_file(random_events(40), compress, 3), "aedat4") == sound


def lz4_frame(data):
    return pytest.importorskip("lz4.frame").compress(data)


def zstd(data):
    return pytest.importorskip("zstandard").compress(data)


def test_array_files(tmp_path):
    pytest.importorskip("scipy")
    pytest.importorskip("h5py")
    for data, options in (
        (npz_file(EVENTS), {}),
        (csv_file(EVENTS), {"format": "csv"}),
        (mat_file(EVENTS), {"polarity": "signed", "one_based": True}),
        (hdf5_file(EVENTS), {}),
    ):
        assert np.array_equal(read(data, origin=0, **options).events, EVENTS)


def test_columns_units_and_orders(tmp_path):
    columns = np.stack([EVENTS["x"], EVENTS["y"], EVENTS["p"], EVENTS["t"] / 1000], axis=1)
    for array in (columns, np.asfortranarray(columns)):
        np.save(tmp_path / "a.npy", array)
        events = read(tmp_path / "a.npy", columns="xypt", unit="ms").events
        assert np.array_equal(events, EVENTS)
        with pytest.raises(
            ValueError, match="expected named fields, found 4 columns without names; give columns="
        ):
            read(tmp_path / "a.npy")
    named = np.zeros(2, [("timestamp", "f8"), ("x", "u2"), ("y", "u2"), ("polarity", "?")])
    named["timestamp"] = [0.5, 0.25]
    np.save(tmp_path / "b.npy", named)
    with pytest.warns(UserWarning, match="time falls back by 250000 us at event 1 "):
        assert read(tmp_path / "b.npy", unit="s").events["t"].tolist() == [250_000, 500_000]
    (tmp_path / "c.txt").write_text("240 180\n0.003811 96 133 0\n0.003820 20 5 1\n")
    events, header = read(tmp_path / "c.txt", columns="txyp", unit="s")
    assert events.tolist() == [(3811, 96, 133, 0), (3820, 20, 5, 1)] and header.sensor_size == (180, 240)
    (tmp_path / "d.csv").write_text("# made\nTime;pol;X;Y\n7;1;2;3\n")
    assert read(tmp_path / "d.csv").events.tolist() == [(7, 2, 3, 1)]
    write(tmp_path / "e.npy", EVENTS)
    assert np.array_equal(read(tmp_path / "e.npy").events, EVENTS)


def test_matlab_files_are_read_as_scipy_reads_them(tmp_path):
    scipy_io = pytest.importorskip("scipy.io")
    rng = np.random.default_rng(0)
    values = {
        "double": rng.random((3, 4, 2)),
        "small": np.arange(6.0).reshape(2, 3),
        "words": rng.integers(-(2**15), 2**15, (5, 1)).astype(np.int16),
        "large": rng.integers(0, 2**63, (1, 7)).astype(np.uint64),
        "single": rng.random((1, 1)).astype(np.float32),
        "none": np.zeros((0, 3)),
        "text": "passed over",
        "cells": np.array([1, "a"], object),
        "pairs": rng.random(3) + 1j,
    }
    for compressed in (False, True):
        scipy_io.savemat(tmp_path / "a.mat", values, do_compression=compressed)
        expected = scipy_io.loadmat(tmp_path / "a.mat")
        with EventFile(tmp_path / "a.mat") as file:
            found = load_variables(file)
        assert set(found) == {"double", "small", "words", "large", "single", "none"}
        for name, value in found.items():
            assert value.dtype == expected[name].dtype and np.array_equal(value, expected[name])


@pytest.mark.parametrize("chunk", [1, 37, 2**15])
def test_clocks_of_32_bits_count_on(chunk, monkeypatch):
    """Over several ends of the clock, with small steps back, as fast cameras write them."""
    rng = np.random.default_rng(4)
    steps = rng.choice([0, 1, 7, -3, 2**31 - 1], 3000, p=[0.2, 0.5, 0.19, 0.1, 0.01])
    times = np.cumsum(steps) + 1000
    assert times[-1] > 10 * 2**32
    words = np.stack(((times % 2**32).astype("<u4"), np.arange(3000, dtype="<u4") & 0x7F), axis=1)
    monkeypatch.setattr(EventFile.words, "__defaults__", (1, chunk))
    for data in (
        b"% Version 2\n\x0c\x08" + words.tobytes(),
        b"#!AER-DAT2.0\r\n" + words[:, ::-1].astype(">u4").tobytes(),
    ):
        events = read(data, origin=0, strict=False).events
        assert np.array_equal(events["t"], np.sort(times))
