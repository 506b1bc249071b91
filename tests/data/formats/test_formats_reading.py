"""Real recordings, window by window reading, and the choice of a format."""

import csv
import os
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from event_files import encoded, random_events

from snnlib.data import EventFileError, as_events, iter_events, read, write

# Counted by hand once: events, sensor size, largest x and y.
REAL = [
    ("aedat2_davis240c/IMU_translBoxes.aedat", 162_771, (180, 240), 239, 179),
    ("aedat2_dvs128/DVS128-2017-03-21-short.aedat", 130_114, (128, 128), 127, 127),
    ("aedat2_dvs128/sample_aedat_header.aedat", 0, (260, 346), 0, 0),
    ("aedat31_synthetic/aedat1_for_testing.aedat", 12, None, 127, 127),
    ("aedat31_synthetic/aedat2_for_testing.aedat", 18, None, 127, 127),
    ("aedat31_synthetic/aedat3_for_testing.aedat", 5, None, 127, 126),
    ("aedat4_dvxplorer/sample.aedat4", 111_954, (240, 320), 319, 239),
    ("prophesee_ncars_dat/sample_ncars.dat", 2_009, None, 77, 41),
    ("prophesee_evt2/evt2_sample.raw", 539_481, None, 599, 475),
]


@pytest.fixture
def recordings():
    base = os.environ.get("SNNLIB_DATA")
    if not base:
        pytest.skip("SNNLIB_DATA is unset: no real recordings to read")
    return Path(base)


@pytest.mark.parametrize(("name", "count", "size", "x", "y"), REAL)
def test_real_recordings(recordings, name, count, size, x, y):
    if not (recordings / name).is_file():
        pytest.skip(f"SNNLIB_DATA holds no {name}")
    events, header = read(recordings / name, strict=True)
    assert (len(events), header.sensor_size) == (count, size)
    assert events["x"].max(initial=0) == x and events["y"].max(initial=0) == y
    windows = iter_events(recordings / name, 7_000)
    streamed = list(windows)
    assert np.array_equal(np.concatenate([*streamed, events[:0]]), events)
    assert windows.header.sensor_size == size
    for number, window in enumerate(streamed):
        assert bool((window["t"] // 7_000 == number).all())
    if name.endswith("evt2_sample.raw"):
        assert header.start_us == 1_317_888
    if name.endswith("aedat4"):
        assert 1.6e15 < header.start_us < 1.61e15


def test_labels_beside_the_synthetic_recordings(recordings):
    for number, count in ((1, 12), (2, 18), (3, 5)):
        path = recordings / f"aedat31_synthetic/aedat{number}_for_testing_labels.csv"
        if not path.is_file():
            pytest.skip("SNNLIB_DATA holds no aedat31_synthetic")
        with path.open() as file:
            assert {int(row["class"]) for row in csv.DictReader(file)} <= set(range(1, 12)) and count


@pytest.mark.parametrize("name", ["dat", "evt2", "evt3", "aedat3", "npy", "nmnist"])
def test_windows_are_the_whole_recording(name, monkeypatch):
    events = random_events(20_000, (34, 34), last_us=3_000_000)
    events["t"][10_000:] += 100_000
    data = encoded(name, events)
    for origin in (0, "first"):
        windows = iter_events(data, 13_000, format=name, origin=origin)
        parts = list(windows)
        start = windows.header.start_us
        assert start == (0 if origin == 0 else events["t"][0])
        joined = np.concatenate(parts)
        joined["t"] += start
        assert np.array_equal(joined, events) and len(parts) == (events["t"][-1] - start) // 13_000 + 1
        assert min(len(part) for part in parts) == 0


def test_events_that_come_late():
    words = np.zeros(4, [("t", "<u4"), ("d", "<u4")])
    words["t"] = [10_000, 30_000, 25_000, 60_000]
    head = b"% Version 2\n\x0c\x08"
    assert [part["t"].tolist() for part in iter_events(head + words.tobytes(), 10_000)][2:4] == [
        [25_000],
        [30_000],
    ]
    words["t"] = [10_000, 2_000_000_000, 3_000_000_000, 3_500_000_000]
    with pytest.raises(EventFileError, match="expected no pause longer than 1000000 windows of 100 us"):
        list(iter_events(head + words.tobytes(), 100))
    many = np.zeros(70_000, words.dtype)
    many["t"] = np.arange(70_000) * 10
    many["t"][-1] = 5
    with pytest.raises(
        EventFileError, match=r"expected times that fall back by less than 10000 us, found 5 us.*read"
    ):
        list(iter_events(head + many.tobytes(), 10_000))


def test_format_by_content_and_by_suffix(tmp_path):
    events = as_events([5], [1], [2], [1])
    write(tmp_path / "a.bin", events)
    assert read(tmp_path / "a.bin").header.format == "nmnist"
    # The first bytes win over the suffix.
    write(tmp_path / "b.bin", events, format="evt3")
    assert read(tmp_path / "b.bin").header.format == "evt3"
    (tmp_path / "c.raw").write_bytes(bytes(16))
    with pytest.raises(
        EventFileError, match=r"expected the header of Prophesee EVT 2.0 or .* give format= .evt2, evt21"
    ):
        read(tmp_path / "c.raw")
    with pytest.raises(
        ValueError, match=r"format: expected one of 'evt2', 'evt21', 'evt3' for the suffix .raw, got none"
    ):
        write(tmp_path / "d.raw", events)
    with pytest.raises(ValueError, match=r"path: expected a suffix among .aedat, "):
        write(tmp_path / "d.mp4", events)
    with pytest.raises(
        ValueError, match=r"format: expected one that can be written \(nmnist, .*got 'aedat4'"
    ):
        write(tmp_path / "d.aedat4", events, format="aedat4")
    with pytest.raises(
        ValueError, match=r"events: expected field x in 0..0 for format dat, got 1 at event 0"
    ):
        write(tmp_path / "d.dat", events, sensor_size=(4, 1))
    assert not (tmp_path / "d.dat").exists()


def test_streaming_needs_little_memory(tmp_path):
    """4 million events that decode to 52 MB."""
    events = random_events(1_000_000, last_us=100_000)
    words = np.frombuffer(encoded("dat", events)[-8_000_000:], "<u4").reshape(-1, 2).copy()
    with (tmp_path / "a.dat").open("wb") as file:
        file.write(b"% Version 2\n\x0c\x08")
        for _ in range(4):
            file.write(words.tobytes())
            words[:, 0] += 100_001
    tracemalloc.start()
    try:
        count = sum(len(events) for events in iter_events(tmp_path / "a.dat", 10_000))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert count == 4_000_000 and peak < 20e6


def test_text_whose_first_time_is_whole(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("t,x,y,p\n0,1,1,1\n0.5,2,2,0\n1.25,3,3,1\n")
    assert read(path, unit="s").events["t"].tolist() == [0, 500_000, 1_250_000]
    # More than floats hold.
    path.write_text("t,x,y,p\n0,1,1,1\n9007199254740993,2,2,0\n")
    assert read(path).events["t"].tolist() == [0, 9007199254740993]


def test_floats_in_microseconds(tmp_path):
    np.save(tmp_path / "a.npy", np.array([[0.0, 1, 2, 1], [1500.6, 3, 4, 0]]))
    with pytest.raises(EventFileError, match="for example unit='s', or unit='us'"):
        read(tmp_path / "a.npy", columns="txyp")
    events, _ = read(tmp_path / "a.npy", columns="txyp", unit="us")
    assert events.tolist() == [(0, 1, 2, 1), (1501, 3, 4, 0)]
    for value in (0, "0", "no"):
        with pytest.raises(ValueError, match="one_based: expected True or False, got"):
            read(tmp_path / "a.npy", columns="txyp", unit="us", one_based=value)
    for time in (np.nan, 2.0**62):
        np.save(tmp_path / "a.npy", np.array([[0.0, 1, 2, 1], [time, 3, 4, 0]]))
        with pytest.raises(EventFileError, match=r"t: expected times within 2\*\*62 us, found .* at row 1"):
            read(tmp_path / "a.npy", columns="txyp", unit="us")


@pytest.mark.parametrize(
    ("times", "offset", "unit"), [([0.25, 0.5], 3, "s"), ([0, 1], 0.5, "s"), ([5, 9], 2, "us")]
)
def test_offset_of_times_in_hdf5(tmp_path, times, offset, unit):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for name, column in zip("txyp", (times, [1, 2], [3, 4], [0, 1]), strict=True):
            file[name] = column
        file["t_offset"] = offset
    scale = 1_000_000 if unit == "s" else 1
    found = read(tmp_path / "a.h5", unit=unit, origin=0).events["t"]
    assert found.tolist() == [(time + offset) * scale for time in times]
