"""Clocks that fall: every format sorts the events, and warns of a fall of more than 0.1 s."""

import io
import warnings
from functools import partial

import numpy as np
import pytest
from event_files import (
    aedat1_file,
    aedat4_file,
    csv_file,
    encoded,
    hdf5_file,
    mat_file,
    npz_file,
    random_events,
)

from snnlib.data import NTIDIGITS, SHD, iter_events, read, read_nmnist
from snnlib.data.formats.registry import FORMATS


def npy_file(events):
    buffer = io.BytesIO()
    np.save(buffer, events)
    return buffer.getvalue()


EVENTS = random_events(40, (30, 30), last_us=300_000)
FALL = int(EVENTS["t"][-1] - EVENTS["t"][0])
TWICE = np.concatenate((EVENTS, EVENTS))
COLUMNS = {"csv": csv_file, "npz": npz_file, "mat": mat_file, "hdf5": hdf5_file, "npy": npy_file}
OPTIONS = {"mat": {"polarity": "signed", "one_based": True}}


def joined(name, events):
    """A file of the events twice, one after the other."""
    if name in COLUMNS:
        pytest.importorskip({"mat": "scipy", "hdf5": "h5py"}.get(name, "numpy"))
        return COLUMNS[name](np.concatenate((events, events)))
    make = {"aedat1": aedat1_file, "aedat4": aedat4_file}.get(name, partial(encoded, name))
    data, head = make(events), make(events[:0])
    # A header that holds the number of events differs: what follows it of another file is not the format's.
    if not data.startswith(head):
        pytest.skip("its header counts the events")
    return data + data[len(head) :]


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_warns_of_a_clock_that_falls(name):
    data = joined(name, EVENTS)
    found = rf"time falls back by {FALL} us at event {len(EVENTS)} "
    with pytest.warns(UserWarning, match=found):
        events = read(data, format=name, **OPTIONS.get(name, {})).events
    assert len(events) == len(TWICE) and bool((np.diff(events["t"]) >= 0).all())
    with pytest.warns(UserWarning, match=found) as told:
        windows = list(iter_events(data, 50_000, format=name, **OPTIONS.get(name, {})))
    assert len(told) == 1 and np.array_equal(np.concatenate(windows), events)
    if name == "nmnist":
        with pytest.warns(UserWarning, match=found):
            assert np.array_equal(read_nmnist(data), events)


@pytest.mark.parametrize("name", FORMATS)
def test_small_falls_are_sorted_silently(name):
    events = EVENTS.copy()
    events["t"] //= 10
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = read(joined(name, events), format=name, **OPTIONS.get(name, {})).events
    assert len(found) == len(TWICE) and bool((np.diff(found["t"]) >= 0).all())


def test_falls_are_seen_before_sorting():
    data = b"t,x,y,p\n1000,0,0,1\n2000000,1,0,1\n1001002,2,0,1\n"
    with pytest.warns(UserWarning, match="time falls back by 998998 us at event 2 "):
        assert read(data, format="csv").events["x"].tolist() == [0, 2, 1]


def test_cochleas_whose_clock_falls(tmp_path):
    h5py = pytest.importorskip("h5py")
    times = np.array([0.0, 0.5, 0.25])
    with h5py.File(tmp_path / "shd_test.h5", "w") as file:
        file["labels"] = [3]
        for name, values in (("times", times.astype("f2")), ("units", np.array([1, 2, 3], "u2"))):
            of = h5py.vlen_dtype(values.dtype)
            file.create_dataset(f"spikes/{name}", (1,), of)[0] = values
    with pytest.warns(UserWarning, match="sample 0: time falls back by 250000 us at event 2 "):
        assert SHD(tmp_path, "test")[0][0]["x"].tolist() == [1, 3, 2]
    with h5py.File(tmp_path / "n-tidigits.hdf5", "w") as file:
        for part in ("train", "test"):
            file[f"{part}_timestamps/man-ae-1-a"] = times
            file[f"{part}_addresses/man-ae-1-a"] = np.array([1, 2, 3])
    with (
        pytest.warns(UserWarning, match="training and in the test set"),
        pytest.warns(UserWarning, match="recording man-ae-1-a: time falls back by 250000 us at event 2 "),
    ):
        assert NTIDIGITS(tmp_path, "test")[0][0]["x"].tolist() == [1, 3, 2]
