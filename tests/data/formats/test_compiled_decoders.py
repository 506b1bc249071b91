"""The compiled decoders against the NumPy ones: the same events, counts, warnings and errors, whatever the bytes."""

import re
import struct
import warnings

import numpy as np
import pytest
from event_files import SIZES, aedat4_file, encoded, evt21_file, random_events

from snnlib import use_path
from snnlib.backends.native import plain_function
from snnlib.data import EventFileError, iter_events, read
from snnlib.data.formats import aedat4
from snnlib.data.formats.compiled import DECODER, find_decoder
from snnlib.data.formats.event_file import EventFile

NAMES = ("aedat3", "aedat4", "evt2", "evt21", "evt3")
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
            # The offset is where the chunk ends, and packets are not looked at in the same order.
            return "error" if name in ("aedat3", "aedat4") else re.sub("byte offset [0-9]+", "", str(error))
    said = sorted(str(warning.message) for warning in caught)
    return events.tobytes(), header.start_us, header.skipped, header.sensor_size, said


def assert_same(data, name, **options):
    found, expected = (outcome(path, data, name, **options) for path in ("native", "reference"))
    assert found == expected
    return expected


def recording(name, count=600):
    if name == "aedat4":
        return aedat4_file(random_events(count, last_us=40_000))
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
    head = data.find(b"\n", len(data) - 8 * 95) if name == "aedat3" else 60
    for _ in range(80):
        broken = bytearray(data)
        for place in rng.integers(head if rng.random() < 0.9 else 0, len(data), rng.integers(1, 6)):
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


def test_aedat3_packets_of_other_kinds_and_sizes(monkeypatch):
    rng = np.random.default_rng(6)
    words = rng.integers(0, 2**31, (70_000, 2)).astype("<u4")
    words[:, 0] &= 0x00FF01FF
    words[:, 1] = np.arange(len(words))

    def packet(count, kind=1, valid=None, capacity=None, overflow=0, bits=None):
        part = words[:count].copy()
        if bits is not None:
            part[:, 0] = part[:, 0] & ~np.uint32(1) | bits[:count]
        room = count if capacity is None else capacity
        head = struct.pack(
            "<HHIIIIII", kind, 1, 8, 4, overflow, room, count, count if valid is None else valid
        )
        return head + part.tobytes() + bytes(8 * (room - count))

    some = rng.integers(0, 2, len(words)).astype(np.uint32)
    none = np.zeros(len(words), np.uint32)
    parts = [packet(5, bits=some), packet(300, bits=none), packet(7, kind=2)]
    parts += [packet(200, valid=150, bits=some), packet(40, capacity=90, bits=some | 1)]
    parts += [packet(70_000, bits=some | 1), packet(0), packet(9, kind=3)]
    parts += [packet(100, overflow=3, bits=some | 1), packet(20, bits=none, valid=3)]
    head = b"#!AER-DAT3.1\r\n#!END-HEADER\r\n"
    for size in (1 << 20, 2000):
        monkeypatch.setattr("snnlib.data.formats.aedat3.COMPILED_BYTES", size)
        assert len(assert_same(head + b"".join(parts), "aedat3")[0]) > 70_000 * 13
        assert_same(head + b"".join(parts) * 2 + packet(50)[:-13], "aedat3", outside="drop")
    assert_same(head + packet(3, overflow=2**31), "aedat3")


def lz4_frames():
    """Plain and repetitive contents, through every option of a frame."""
    lz4 = pytest.importorskip("lz4.frame")
    rng = np.random.default_rng(8)
    events = aedat4_file(random_events(9000, last_us=40_000))
    contents = [b"", b"a", bytes(100_000), events, rng.integers(0, 256, 70_000, np.uint8).tobytes()]
    contents += [rng.integers(0, 4, 3000, np.uint8).tobytes() * 30, b"abcdefg" * 9000]
    for number, content in enumerate(contents):
        for flags in range(4):
            options = dict.fromkeys(("block_linked", "block_checksum"), bool(flags & 1))
            options |= dict.fromkeys(("content_checksum", "store_size"), bool(flags & 2))
            yield content, lz4.compress(content, compression_level=9 if number % 2 else 0, **options)


def test_lz4_frames():
    unpack = aedat4._UnpackLZ4(plain_function("unpack_lz4"))
    for content, frame in lz4_frames():
        assert bytes(unpack(frame)) == content
    with pytest.raises(aedat4._TableError, match="no LZ4 frame, or a damaged one"):
        unpack(b"no frame at all")


def test_damaged_lz4_frames():
    """Both decoders return equal events and refuse the same input, except for rules on a block's last bytes."""
    lz4 = pytest.importorskip("lz4.frame")
    unpack = aedat4._UnpackLZ4(plain_function("unpack_lz4"))
    rng, same = np.random.default_rng(9), 0
    for _content, frame in lz4_frames():
        for _ in range(12):
            broken = bytearray(frame[: rng.integers(len(frame)) if rng.random() < 0.3 else len(frame)])
            for place in rng.integers(0, max(len(broken), 1), rng.integers(0, 3)):
                broken[place : place + 1] = bytes([rng.integers(0, 256)])
            try:
                found = bytes(unpack(bytes(broken)))
            except aedat4._TableError:
                found = None
            try:
                decompressor = lz4.LZ4FrameDecompressor()
                expected = decompressor.decompress(bytes(broken), 1 << 24)
                expected = expected if decompressor.eof else None
            except RuntimeError:
                expected = None
            if expected is not None:
                assert found == expected
                same += 1
            assert found is None or len(found) <= 255 * len(frame)
    assert same > 50


def test_compressed_packets_and_other_streams():
    lz4 = pytest.importorskip("lz4.frame")
    events = random_events(5000, last_us=40_000)
    data = aedat4_file(events, compress=lz4.compress, compression=1)
    whole = assert_same(data, "aedat4")
    assert len(whole[0]) == 5000 * 13
    for end in range(len(data) - 300, len(data), 7):
        assert_same(data[:end], "aedat4")
    rng = np.random.default_rng(3)
    for _ in range(60):
        broken = bytearray(data)
        broken[rng.integers(400, len(data))] = rng.integers(0, 256)
        assert_same(bytes(broken), "aedat4", outside="drop")
    # A packet of a stream that the header names, but of another type, between two of events.
    plain = aedat4_file(events[:2000])
    first = plain.index(b"</dv>") + 6
    named = plain.replace(b'<attr key="source" type="string">made</attr>', b"%44s" % b"")
    assert len(named) == len(plain)
    assert_same(named[:first] + struct.pack("<ii", 7, 4) + b"IMUS" + named[first:], "aedat4")
