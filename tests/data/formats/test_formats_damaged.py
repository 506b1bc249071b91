"""Damaged files: a result or one clear error, whatever the bytes.

Some mutations of each format; `make fuzz-files` makes 10,000, by SNNLIB_MUTATIONS.
"""

import io
import os
import warnings

import numpy as np
import pytest
from event_files import EVENT_FILES, EVENTS, encoded, hdf5_file, mat_file, read_damaged, struct_file

from snnlib.data import EventFileError, as_events, iter_events, read

MUTATIONS = os.environ.get("SNNLIB_MUTATIONS")
COCHLEA, DAT = b"#!AER-DAT2.0\r\n# AEChip: x.y.Cochlea\r\n", {"format": "dat"}
MADE = {name: make() for name, make in EVENT_FILES.items() if name != "mat"}


def mutations(data, usual, head=None):
    """Copies of a file with one to four bytes changed, half of them in its first bytes."""
    rng = np.random.default_rng(7)
    for _ in range(int(MUTATIONS or usual)):
        broken = bytearray(data)
        places = rng.integers(0, len(data) if rng.random() < 0.5 else head or len(data), rng.integers(1, 5))
        for place in places:
            broken[place] = rng.integers(0, 256)
        yield bytes(broken)


@pytest.mark.parametrize("name", MADE)
def test_truncation_at_every_byte(name):
    data = MADE[name]
    for end in range(len(data)):
        read_damaged(data[:end], name)
        if name not in ("csv", "npz", "npy") and end < len(data) - 40:
            with pytest.raises(EventFileError), warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)
                if len(read(data[:end], format=name, strict=True).events) < len(EVENTS):
                    # Cut at a record's border, which no reader can see.
                    raise EventFileError("whole records")


@pytest.mark.parametrize("name", MADE)
def test_flipped_bytes(name):
    data = MADE[name]
    for broken in mutations(data, 250, max(len(data) - 8 * len(EVENTS), 60)):
        read_damaged(broken, name)


@pytest.mark.parametrize("name", ["mat", "struct", "hdf5"])
def test_library_formats_damaged(name):
    pytest.importorskip("h5py" if name == "hdf5" else "scipy")
    data = {"mat": mat_file, "struct": struct_file, "hdf5": hdf5_file}[name](EVENTS)
    options = {} if name == "hdf5" else {"polarity": "signed", "one_based": True}
    name = "hdf5" if name == "hdf5" else "mat"
    assert len(read(data, format=name, **options).events) == len(EVENTS)
    for end in range(0, len(data), max(len(data) // 40, 1)):
        read_damaged(data[:end], name, **options)
    for broken in mutations(data, 60):
        read_damaged(broken, name, **options)


def test_matlab_files_without_the_columns():
    scipy_io = pytest.importorskip("scipy.io")
    content = io.BytesIO()
    scipy_io.savemat(content, {"ts": np.arange(4), "x": np.arange(4), "note": "no events"})
    with pytest.raises(EventFileError, match=r"found ts, x, note \(not real numbers\)$"):
        read(content.getvalue())
    with pytest.raises(
        EventFileError, match=r"byte offset [0-9]+: truncated: expected an element of [0-9]+ bytes"
    ):
        read(content.getvalue()[:-9])
    with pytest.raises(
        EventFileError, match=r"expected MATLAB 5\.0 MAT-file .*, found b'MATLAB 7.3 MAT-file'"
    ):
        read(b"MATLAB 7.3 MAT-file".ljust(128), format="mat")


def test_times_whose_difference_overflows():
    events = np.array([(8 - 2**63, 1, 2), (5, 3, 4)], [("t", "<i8"), ("x", "<i2"), ("y", "<i2")])
    npz = io.BytesIO()
    np.savez(npz, **{name: events[name] for name in "txy"}, p=np.array([0, 1]))
    with pytest.raises(
        EventFileError, match=r"t: expected times within 2\*\*62 us, got -9223372036854775800 to 5"
    ):
        read(npz.getvalue(), format="npz")


@pytest.mark.parametrize(
    ("data", "options", "text"),
    [
        (b"hello world, no events", {}, "expected an event file .*found b'hello world, no ' ?; give format="),
        (b"#!AER-DAT4.0\r\n" + bytes(40), {}, "byte offset 14: truncated: expected a header of 0 bytes"),
        (MADE["aedat4"], {"format": "aedat3"}, "expected #!AER-DAT3.1, found '#!AER-DAT4.0'"),
        (MADE["aedat2"], {"format": "aedat3"}, "expected #!AER-DAT3.1, found '#!AER-DAT2.0'"),
        (COCHLEA, {}, "expected a camera among dvs128, .*found 'Cochlea'"),
        (b"% made\n\x07\x08", {}, "expected events of type 0 or 12 with 8 bytes, found type 7"),
        (b"% evt 3.0\n% geometry 0x0\n", {}, "expected a sensor of 1..32768 pixels each way"),
        (b"% Height " + b"9" * 20 + b"\n% Width 120\n\x0c\x08" + bytes(8), DAT, "of 1..32768 pixels"),
        (b"% Height 0\n% Width 120\n\x0c\x08" + bytes(8), DAT, "pixels each way, found 120x0"),
        (b"% evt 3.0\n% geometry " + b"9" * 5000 + b"x1\n", {}, "of 1..32768 pixels each way, found 9{20}x1"),
        (b"t,x,y\n1,2,3\n", {"format": "csv"}, "line 1: expected columns named t, x, y, p, found t, x, y"),
        (b"t,x,y,p\n1,2,3,0\n1,oh,3,0\n", {"format": "csv"}, "lines from 2: expected numbers in columns"),
        (b"t,x,y,p\n1,2,3,5\n", {"format": "csv"}, "p: expected 0..1, got 5"),
        (b"t,x,y,p\n1,2.5,3,0\n", {"format": "csv"}, "x: expected whole numbers, found 2.5"),
        (MADE["evt2"][:-2], {"strict": True}, "truncated: expected a record of 4 bytes, found 2 bytes"),
    ],
)
def test_errors_name_the_place_and_the_cause(data, options, text):
    with pytest.raises(EventFileError, match=text):
        read(data, **options)


@pytest.mark.parametrize(
    "text", ["% evt 3.0\n% geometry \u00b2x1\n", "% Version 2\n% Height \u00b2\n% Width 1\n\f\b"]
)
def test_other_digits_are_no_size(text):
    assert read(text.encode()).header.sensor_size is None


def test_arrays_of_objects_are_never_loaded(tmp_path):
    np.save(tmp_path / "a.npy", np.array([{"t": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(EventFileError, match="found an array of Python objects, which is never loaded"):
        read(tmp_path / "a.npy")


def test_truncated_files_warn_with_the_count():
    with pytest.warns(
        UserWarning, match="truncated: expected a record of 4 bytes, found 3 bytes; what was left"
    ):
        assert len(read(MADE["evt2"][:-1]).events) == len(EVENTS) - 1


def test_events_outside_the_sensor():
    data = encoded("dat", EVENTS)
    with pytest.raises(
        EventFileError, match=r"expected events with x in 0..19, y in 0..29 and p in 0..1, found x=2"
    ):
        read(data, sensor_size=(30, 20))
    # Its addresses count from the other side of the sensor that the file names.
    event = as_events([0], [170], [100], [1])
    davis = encoded("aedat2", event, sensor_size=(180, 240))
    found = r"found x=170, y=100, p=1 at event 0 of a sensor of \(180, 240\) pixels \(height, width\), as the file says"
    with pytest.raises(EventFileError, match=found):
        read(davis, sensor_size=(34, 34))
    with pytest.raises(EventFileError, match=found):
        list(iter_events(davis, 1000, sensor_size=(34, 34)))
    inside = EVENTS[EVENTS["x"] < 20]
    events, header = read(data, sensor_size=(30, 20), outside="drop")
    assert np.array_equal(events, inside)
    assert header.skipped == {"events outside the sensor": len(EVENTS) - len(inside)}


@pytest.mark.parametrize(("name", "size"), [("nmnist", 5), ("dat", 8), ("aedat2", 8)])
def test_an_event_outside_is_named_by_its_byte(name, size):
    """Damage in the second chunk, behind words without events, in a file that ends within a word."""
    count = 40_000
    events = as_events(np.arange(count), np.zeros(count, int), np.zeros(count, int), np.zeros(count, int))
    data = bytearray(encoded(name, events, sensor_size=(128, 128)))
    head = len(data) - size * count
    # An overflow word, a trigger; DAT has events alone.
    others = {"nmnist": bytes([0, 240, 0, 0, 0]), "aedat2": bytes([0, 0, 0x80, 0, 0, 0, 0, 0]), "dat": b""}[
        name
    ]
    data[head:head] = others
    bad = head + len(others) + size * 35_000
    far = as_events([35_000], [100], [0], [0])
    data[bad : bad + size] = encoded(name, far, sensor_size=(128, 128))[-size:]
    found = f"byte offset {bad}: .* found x=100, y=0, p=0 at event 35000"
    with pytest.warns(UserWarning, match="truncated"), pytest.raises(EventFileError, match=found):
        read(bytes(data) + b"?", format=name, sensor_size=(128, 90))


def test_order_is_repaired_and_large_falls_are_named():
    shuffled = EVENTS[::-1].copy()
    shuffled["t"] = np.sort(EVENTS["t"])
    shuffled["t"][[3, 4]] = shuffled["t"][[4, 3]]
    words = np.zeros(len(EVENTS), [("t", "<u4"), ("d", "<u4")])
    words["t"], words["d"] = shuffled["t"] // 1000, np.arange(len(EVENTS))
    events = read(b"% Version 2\n\x0c\x08" + words.tobytes()).events
    assert bool((np.diff(events["t"]) >= 0).all())
    assert sorted(events["x"].tolist()) == list(range(len(EVENTS)))
    words["t"] = np.concatenate((np.arange(20) + 500_000, np.arange(20)))
    with pytest.warns(UserWarning, match="time falls back by 500019 us at event 20 .a clock that was reset"):
        events = read(b"% Version 2\n\x0c\x08" + words.tobytes()).events
    assert events["x"].tolist() == [*range(20, 40), *range(20)]


def test_options_are_checked():
    with pytest.raises(TypeError, match=r"camera: expected an option of format dat \(none\)"):
        read(MADE["dat"], camera="dvs128")
    with pytest.raises(ValueError, match="format: expected one of nmnist, aedat2"):
        read(MADE["dat"], format="tiff")
    with pytest.raises(ValueError, match="outside: expected one of"):
        read(MADE["dat"], outside="clip")
    with pytest.raises(ValueError, match="window_us: expected an integer >= 1, got 0"):
        iter_events(MADE["dat"], 0)
