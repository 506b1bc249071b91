"""The compiled decoders against the NumPy ones: the same events, counts, warnings and errors, whatever the bytes."""

import re
import warnings

import numpy as np
import pytest
from event_files import SIZES, encoded, evt21_file, random_events

from snnlib import use_path
from snnlib.backends.native import plain_function
from snnlib.data import EventFileError, iter_events, read
from snnlib.data.formats.compiled import DECODER, find_decoder
from snnlib.data.formats.event_file import EventFile

NAMES = ("evt2", "evt21", "evt3")
pytestmark = pytest.mark.skipif(
    find_decoder("evt3") is None, reason="no compiled module, or the reference path"
)


def outcome(path, data, name, **options):
    """All that a caller can see of a read."""
    with use_path(path), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            events, header = read(data, format=name, **options)
        except EventFileError as error:
            # The offset is where the chunk ends.
            return re.sub("byte offset [0-9]+", "", str(error))
    said = sorted(str(warning.message) for warning in caught)
    return events.tobytes(), header.start_us, header.skipped, header.sensor_size, said


def assert_same(data, name, **options):
    found, expected = (outcome(path, data, name, **options) for path in ("native", "reference"))
    assert found == expected
    return expected


def recording(name, count=600):
    if name != "evt21":
        return encoded(name, random_events(count, SIZES.get(name, (48, 64)), last_us=40_000))
    rng = np.random.default_rng(1)
    words = rng.integers(0, 2**32, (count // 8, 2), np.uint32)
    # Kinds OFF, ON, TIME_HIGH and trigger; times rise, and x leaves room for 32 columns.
    kind = rng.choice([0, 1, 8, 10], len(words), p=[0.4, 0.4, 0.15, 0.05])
    low = np.where(kind == 8, np.cumsum(kind == 8) * 60, rng.integers(0, 2**26, len(words)) & ~(1 << 21))
    words[:, 1] = kind << 28 | low
    return b"% evt 2.1\n% end\n" + words.tobytes()


def test_state_has_the_size_of_the_compiled_one():
    assert plain_function("event_decoder_bytes") == DECODER.itemsize


@pytest.mark.parametrize("name", NAMES)
def test_the_same_in_any_chunking(name, monkeypatch):
    data = recording(name)
    whole = assert_same(data, name)
    assert len(whole[0]) > 500 * 13
    for chunk in (1, 37):
        monkeypatch.setattr(EventFile.words, "__defaults__", (1, chunk))
        monkeypatch.setattr("snnlib.data.formats.compiled.CHUNK_BYTES", 8 * chunk)
        assert assert_same(data, name)[:2] == whole[:2]
    for options in ({"sensor_size": (30, 40)}, {"sensor_size": (30, 40), "outside": "drop"}, {"origin": 7}):
        assert_same(data, name, **options)
    windows = {}
    for path in ("native", "reference"):
        with use_path(path):
            windows[path] = [part.tolist() for part in iter_events(data, 1000, format=name)]
    assert windows["native"] == windows["reference"] and len(windows["native"]) > 20


@pytest.mark.parametrize("name", NAMES)
def test_the_same_on_damaged_files(name):
    data = evt21_file(legacy=True) if name == "evt21" else recording(name, 90)
    for end in range(len(data)):
        assert_same(data[:end], name)
    rng = np.random.default_rng(11)
    for _ in range(80):
        broken = bytearray(data)
        for place in rng.integers(60 if rng.random() < 0.9 else 0, len(data), rng.integers(1, 6)):
            broken[place] = rng.integers(0, 256)
        assert_same(bytes(broken), name, outside="drop" if rng.random() < 0.7 else "error")


def test_evt3_words_in_any_order():
    """Vectors, repeated and falling times, unknown words: what no camera sends, and what all of them do."""
    rng = np.random.default_rng(2)
    kinds = [0, 2, 3, 4, 5, 6, 8, 10, 7]
    mixes = (
        [0.15, 0.25, 0.1, 0.15, 0.1, 0.15, 0.05, 0.03, 0.02],
        [0.3, 0.395, 0, 0, 0, 0.3, 0.005, 0, 0],
        [0.1, 0.2, 0.3, 0.3, 0.1, 0, 0, 0, 0],
    )
    for mix in mixes:
        for rising in (True, False):
            kind = rng.choice(kinds, 6000, p=mix)
            value = rng.integers(0, 4096, len(kind))
            if rising:
                # Single events in order take the quick way of the decoder, a block at a time.
                value[kind == 6] = np.arange((kind == 6).sum()) * 4095 // max((kind == 6).sum(), 1)
                value[kind == 8] = 5
            kind[:2], value[:2] = (2, 8), (1, 5)
            data = b"% evt 3.0\n" + (kind << 12 | value).astype("<u2").tobytes()
            assert_same(data, "evt3", outside="drop")
            assert_same(data, "evt3", sensor_size=(1500, 1500), outside="drop")
            assert_same(data, "evt3", sensor_size=(1500, 1500))


def test_clocks_and_orders_that_step_back():
    rng = np.random.default_rng(4)
    highs = (8 << 28 | (np.cumsum(rng.choice([0, 1, -1, 2**27, -(2**27)], 500)) % 2**28)).astype("<u4")
    events = rng.integers(0, 2**29, 500).astype("<u4")
    assert_same(b"% evt 2.0\n" + np.stack((highs, events), axis=1).tobytes(), "evt2")
