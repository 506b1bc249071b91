import io
from unittest import mock

import numpy as np
import pytest

from snnlib.data import EVENT_DTYPE, EventFileError, as_events, encode_nmnist, read_nmnist, write_nmnist

# (bytes, t, x, y, p), worked by hand from the format's definition.
VECTORS = [
    (bytes([0, 0, 0x00, 0, 0]), 0, 0, 0, 0),
    (bytes([33, 0, 0x80, 0, 1]), 1, 33, 0, 1),
    (bytes([0, 33, 0x01, 0x02, 0x03]), 0x010203, 0, 33, 0),
    (bytes([7, 9, 0xFF, 0xFF, 0xFF]), 2**23 - 1, 7, 9, 1),
]
OVERFLOW = bytes([0, 240, 0, 0, 0])


@pytest.mark.parametrize(("word", "t", "x", "y", "p"), VECTORS)
def test_byte_vectors(word, t, x, y, p):
    assert read_nmnist(word).tolist() == [(t, x, y, p)]
    assert encode_nmnist(as_events([t], [x], [y], [p])) == word


def test_sources_agree(tmp_path):
    data = b"".join(vector[0] for vector in VECTORS)
    path = tmp_path / "a.bin"
    path.write_bytes(data)
    expected = read_nmnist(data)
    assert expected.dtype == EVENT_DTYPE and len(expected) == 4
    for source in (path, str(path), bytearray(data), memoryview(data), io.BytesIO(data)):
        assert np.array_equal(read_nmnist(source), expected)


def test_overflow_words_shift_all_later_times():
    event = bytes([1, 2, 0, 0, 10])
    data = event + OVERFLOW + event + bytes([250, 240, 0xFF, 1, 1]) + OVERFLOW + event
    assert read_nmnist(data)["t"].tolist() == [10, 8192 + 10, 3 * 8192 + 10]


def test_writer_uses_the_fewest_overflow_words():
    assert encode_nmnist(as_events([2**23 - 1], [0], [0], [0])) == bytes([0, 0, 0x7F, 0xFF, 0xFF])
    late = encode_nmnist(as_events([2**23], [0], [0], [0]))
    assert late == OVERFLOW + bytes([0, 0, 0x7F, 0xE0, 0x00])
    assert len(encode_nmnist(as_events([2**23 + 8192], [0], [0], [0]))) == 3 * 5


def test_largest_sensor_round_trip():
    events = as_events([0, 1], [255, 0], [0, 239], [1, 0])
    assert np.array_equal(
        read_nmnist(encode_nmnist(events, sensor_size=(240, 256)), sensor_size=(240, 256)), events
    )


@pytest.mark.parametrize(("x", "y"), [(34, 0), (255, 33), (0, 34), (0, 239), (33, 241)])
def test_coordinates_outside(tmp_path, x, y):
    path = tmp_path / "bad.bin"
    path.write_bytes(VECTORS[0][0] * 2 + bytes([x, y, 0, 0, 0]))
    with pytest.raises(
        EventFileError,
        match=rf"bad\.bin: byte offset 10: .* x in 0\.\.33, y in 0\.\.33 .* found x={x}, y={y}, p=0 at event 2",
    ):
        read_nmnist(path)


def test_small_backward_steps_are_sorted_stably():
    data = bytes([1, 0, 0, 0, 9]) + bytes([2, 0, 0, 0, 5]) + bytes([3, 0, 0, 0, 9])
    assert read_nmnist(data)["x"].tolist() == [2, 1, 3]


def test_wrapped_clock():
    data = bytes([1, 0, 0x7F, 0xFF, 0xFF]) + bytes([2, 0, 0, 0, 5])
    with pytest.raises(
        EventFileError, match="byte offset 5: expected rising times, found a fall from 8388607 to 5 us"
    ):
        read_nmnist(data)


def test_absent_and_unreadable(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"absent\.bin"):
        read_nmnist(tmp_path / "absent.bin")
    with pytest.raises(EventFileError, match=f"{tmp_path.name}: expected a regular file, got a folder"):
        read_nmnist(tmp_path)
    with pytest.raises(TypeError, match="source: expected a path, bytes or an open binary file, got int"):
        read_nmnist(3)


@pytest.mark.parametrize(
    ("events", "text"),
    [
        (as_events([0], [34], [0], [0]), "field x in 0..33 for format nmnist, got 34 at event 0"),
        (as_events([0, 1], [0, 0], [0, 34], [0, 0]), "field y in 0..33 for format nmnist, got 34 at event 1"),
        (as_events([-1], [0], [0], [0]), "field t in 0..8589934591 for format nmnist, got -1"),
        (as_events([2**33], [0], [0], [0]), "field t in .* subtract the first time"),
        (
            as_events([0, 5], [0, 0], [0, 0], [0, 0])[::-1],
            "times that never decrease, got 5 then 0 at event 1",
        ),
    ],
)
def test_writer_refuses(tmp_path, events, text):
    with pytest.raises(ValueError, match=text):
        write_nmnist(tmp_path / "a.bin", events)
    assert list(tmp_path.iterdir()) == []


def test_bad_sensor_size():
    with pytest.raises(
        ValueError, match=r"sensor_size\[0\] \(height\): expected an integer in 1..240, got 241"
    ):
        read_nmnist(b"", sensor_size=(241, 34))
    with pytest.raises(TypeError, match="sensor_size: expected a pair"):
        read_nmnist(b"", sensor_size=34)


@pytest.mark.parametrize("broken", ["fsync", "replace"])
def test_failed_write_keeps_the_old_file(tmp_path, broken):
    path = tmp_path / "a.bin"
    write_nmnist(path, as_events([1], [1], [1], [1]))
    before = path.read_bytes()
    where = "os.fsync" if broken == "fsync" else "pathlib.Path.replace"
    with mock.patch(where, side_effect=OSError("disk full")), pytest.raises(OSError, match="disk full"):
        write_nmnist(path, as_events([2], [2], [2], [0]))
    assert path.read_bytes() == before
    write_nmnist(path, as_events([2], [2], [2], [0]))
    assert read_nmnist(path).tolist() == [(2, 2, 2, 0)]
    assert [file.name for file in tmp_path.iterdir()] == ["a.bin"]
