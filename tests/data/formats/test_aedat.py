"""Packets of AEDAT 3.1 and 4: other kinds and sizes, other streams, compressed, cut and damaged ones."""

import struct

import numpy as np
import pytest
from event_files import aedat4_file, random_events, read_damaged

from snnlib.data import EventFileError, read
from snnlib.data.formats import aedat3, aedat4

EVENTS = random_events(3000, last_us=40_000)
HEAD_3 = b"#!AER-DAT3.1\r\n#!END-HEADER\r\n"


def packet(words, kind=1, valid=None, capacity=None, overflow=0):
    count = len(words)
    room = count if capacity is None else capacity
    head = struct.pack("<HHIIIIII", kind, 1, 8, 4, overflow, room, count, count if valid is None else valid)
    return head + words.astype("<u4").tobytes() + bytes(8 * (room - count))


@pytest.mark.parametrize("chunk", [aedat3.CHUNK, 37])
def test_aedat3_packets_of_other_kinds_and_sizes(chunk, monkeypatch):
    monkeypatch.setattr(aedat3, "CHUNK", chunk)
    rng = np.random.default_rng(6)
    words = rng.integers(0, 2**31, (70_000, 2)) & [0x00FF01FE, 0]
    words[:, 1] = np.arange(len(words))
    some, every = words.copy(), words | [1, 0]
    some[:, 0] |= rng.integers(0, 2, len(words))
    good = some[:, 0] & 1 == 1
    # Packet, and the words and the overflow of its events.
    parts = [
        (packet(words[:300]), words[:300], 0),
        (packet(some[:5]), some[:5][good[:5]], 0),
        (packet(words[:7], kind=2), words[:0], 0),
        (packet(some[:200], valid=150), some[:200][good[:200]], 0),
        (packet(every[:40], capacity=90), every[:40], 0),
        (packet(every), every, 0),
        (packet(words[:0]), words[:0], 0),
        (packet(words[:20], valid=3), words[:0], 0),
        (packet(every[:100], overflow=3), every[:100], 3),
    ]
    rows = [
        [
            (time + (overflow << 31), data >> 17, data >> 2 & 0x7FFF, data >> 1 & 1)
            for data, time in chosen.tolist()
        ]
        for _, chosen, overflow in parts
    ]
    expected = sorted((row for part in rows for row in part), key=lambda row: row[0])
    data = HEAD_3 + b"".join(part for part, _, _ in parts)
    events, header = read(data, origin=0)
    assert events.tolist() == expected and header.skipped["frame events"] == 7
    with pytest.warns(UserWarning, match="truncated: expected a packet of 400 bytes, found 387 bytes"):
        assert len(read(HEAD_3 + packet(every[:50])[:-13]).events) == 48
    with pytest.raises(EventFileError, match=r"expected a time overflow below 2147483648, found 2147483648"):
        read(HEAD_3 + packet(every[:3], overflow=2**31))


def compressed(kind):
    if kind == "LZ4":
        return {"compress": pytest.importorskip("lz4.frame").compress, "compression": 1}
    return {"compress": pytest.importorskip("zstandard").compress, "compression": 3}


@pytest.mark.parametrize("kind", ["LZ4", "ZSTD"])
def test_compressed_packets_cut_and_damaged(kind):
    data = aedat4_file(EVENTS, **compressed(kind))
    assert np.array_equal(read(data, origin=0).events, EVENTS)
    last = len(data) - len(aedat4_file(EVENTS[2000:], **compressed(kind))) + len(aedat4_file(EVENTS[:0]))
    for end in range(last + 1, len(data), 997):
        with pytest.warns(UserWarning, match=f"byte offset {last}: truncated: expected a packet"):
            assert np.array_equal(read(data[:end], origin=0).events, EVENTS[:2000])
    rng = np.random.default_rng(3)
    for _ in range(60):
        broken = bytearray(data)
        broken[rng.integers(400, len(data))] = rng.integers(0, 256)
        read_damaged(bytes(broken), "aedat4", outside="drop")


def test_lz4_frames_of_every_option():
    lz4 = pytest.importorskip("lz4.frame")
    unpack = aedat4._unpacker("LZ4")
    rng = np.random.default_rng(8)
    contents = [
        b"",
        b"a",
        bytes(10 * aedat4.PIECE_BYTES),
        rng.bytes(3 * aedat4.PIECE_BYTES),
        b"abcdefg" * 9000,
    ]
    for content in contents:
        for flags in range(4):
            options = dict.fromkeys(("block_linked", "block_checksum"), bool(flags & 1))
            options |= dict.fromkeys(("content_checksum", "store_size"), bool(flags & 2))
            frame = lz4.compress(content, **options)
            assert unpack(frame) == content
            for end in {1, len(frame) // 2, len(frame) - 1}:
                with pytest.raises((aedat4._TableError, RuntimeError)):
                    unpack(frame[:end])


def test_packets_that_would_fill_the_memory(monkeypatch):
    monkeypatch.setattr(aedat4, "LARGEST_PACKET", 1 << 20)
    data = aedat4_file(
        EVENTS[:1], compress=lambda _: compressed("LZ4")["compress"](bytes(1 << 24)), compression=1
    )
    with pytest.raises(EventFileError, match="a packet above 1048576 bytes"):
        read(data)
    assert not read_damaged(data, "aedat4")


def test_packets_of_other_streams_are_skipped():
    other = b'<node name="7" path=""><attr key="typeIdentifier" type="string">IMUS</attr></node>'
    data = aedat4_file(EVENTS, streams=other)
    packets = len(aedat4_file(EVENTS[:0], streams=other))
    mixed = data[:packets] + struct.pack("<ii", 7, 4) + b"IMUS" + data[packets:]
    events, header = read(mixed, origin=0)
    assert np.array_equal(events, EVENTS) and header.skipped == {"IMUS packets": 1}
    with pytest.raises(
        EventFileError, match=f"byte offset {packets}: expected a packet of a known stream, found stream 8"
    ):
        read(mixed[:packets] + b"\x08" + mixed[packets + 1 :])
