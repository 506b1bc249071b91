"""`snnlib data info`, `convert` and `show`."""

import re
from functools import partial

import numpy as np
import pytest
from command import run
from event_files import random_events
from PIL import Image

from snnlib.data import read, write


@pytest.fixture
def command(capsys):
    return partial(run, capsys, "data")


@pytest.fixture
def file(tmp_path):
    events = random_events(4000, (48, 64), last_us=200_000)
    events["t"] += 5_000_000
    events["x"][:400], events["y"][:400] = 9, 8
    write(tmp_path / "a.raw", events, format="evt2", sensor_size=(48, 64))
    return tmp_path / "a.raw"


def test_info_of_a_file(file, command, tmp_path):
    code, out, _ = command("info", file, "--picture", tmp_path / "a.png")
    assert code == 0
    start = read(file).header.start_us
    for text in (
        *("format: Prophesee EVT 2.0 2.0", "sensor: 48 x 64", "events: 4000, of which ON "),
        "duration: 199.9",
        *(f"t = 0 is {start} us on the file's clock", "events lie in rows 0..47 and columns 0..63"),
        *("hot pixels (column, row) events: (9, 8) 40", "faults: none"),
    ):
        assert text in out
    with Image.open(tmp_path / "a.png") as picture:
        assert picture.size[0] > 600


def test_info_of_a_folder_without_a_readable_file(command, tmp_path):
    (tmp_path / "left").mkdir()
    (tmp_path / "left" / "a.raw").write_bytes(b"no events")
    code, out, _ = command("info", tmp_path)
    assert code == 1
    assert "none of them could be read" in out and "sensor" not in out
    assert "a.raw: byte offset 0: expected the header of" in out


def test_info_names_faults(file, command):
    data = bytearray(file.read_bytes())
    # The last event's column becomes 2047.
    data[-4:] = (int.from_bytes(data[-4:], "little") | 2047 << 11).to_bytes(4, "little")
    file.write_bytes(bytes(data) + b"\x00")
    code, out, _ = command("info", file)
    assert code == 0 and "truncated: expected a record of 4 bytes, found 1 bytes" in out
    assert "1 events outside the sensor" in out


def test_info_of_a_folder(file, command, tmp_path):
    root = tmp_path / "own"
    for label in ("a", "b"):
        (root / label).mkdir(parents=True)
        for number in range(5):
            events = random_events(50 + number, (48, 64), seed=number + ord(label))
            write(root / label / f"{number}.raw", events, format="evt3", sensor_size=(48, 64))
    (root / "b" / "4.raw").write_bytes(b"% evt 9.0\n")
    for number in range(3):
        path = root / "a" / f"{number}.raw"
        path.write_bytes(path.read_bytes() + b"\x00")
    code, out, _ = command("info", root)
    assert code == 0
    assert out.count("truncated") == 1 and "(and 2 more files with such a fault" in out
    assert command("check", root)[1].count("truncated") == 3
    for text in (
        *("10 recordings, 2 classes", "  a: 5 (3 train, 1 val, 1 test)", "formats: Prophesee EVT 3.0 9"),
        *("sensor: 48 x 64 (9)", "events per recording: 50 to 54, median 52", "4.raw: "),
    ):
        assert text in out


def test_read_options_of_a_folder_are_for_the_formats_that_have_them(command, tmp_path):
    root = tmp_path / "own"
    for label in ("a", "b"):
        (root / label).mkdir(parents=True)
        for number in range(3):
            events = random_events(50, (48, 64), seed=number + 10 * ord(label))
            write(root / label / f"{number}.raw", events, format="evt3", sensor_size=(48, 64))
    code, _, err = command("info", root, "--read", "columns=txyp")
    assert code == 2
    assert err.count("\n") == 1
    assert "--reader-options: columns: expected files of a format with this" in err
    np.save(root / "a" / "3.npy", np.array([[5, 3, 4, 1], [9, 5, 6, 0]]))
    code, out, _ = command("info", root, "--reader-options", "columns=txyp")
    assert code == 0 and "faults: none" in out and "NumPy array 1" in out and "Prophesee EVT 3.0 6" in out
    code, out, _ = command("check", root, "--reader-options", "columns=txyp")
    assert code == 0 and "7 recordings of 2 classes read" in out


def test_convert(file, command, tmp_path):
    events = read(file).events
    for name, format in (("b.raw", "evt3"), ("b.npy", None), ("b.dat", None)):
        code, out, _ = command("convert", file, tmp_path / name, *(("--format", format) if format else ()))
        assert code == 0 and "4000 events in format" in out and "t = 0 is " in out
        assert np.array_equal(read(tmp_path / name, origin=0).events, events)
    for arguments, text in (
        ((file, tmp_path / "b.raw"), "format: expected one of 'evt2', 'evt21', 'evt3' for the suffix .raw"),
        ((file, tmp_path / "b.dat"), "b.dat exists; --force replaces it"),
        ((tmp_path / "none.raw", "c.dat"), "none.raw: expected an event file, found nothing there"),
        ((file, tmp_path / "c.bin", "--sensor-size", "48"), "--sensor-size: expected HEIGHTxWIDTH, got '48'"),
        ((file, "c.dat", "--read", "colour"), "--reader-options: expected NAME=VALUE, got 'colour'"),
        ((file, tmp_path / "c.dat", "--read", "unit=ms"), "unit: expected an option of format evt2"),
    ):
        code, _, err = command("convert", *arguments)
        assert code == 2 and text in err
    assert not (tmp_path / "c.dat").exists()


def test_read_options_reach_the_reader(command, tmp_path):
    np.save(tmp_path / "a.npy", np.array([[3, 4, 1, 0.5], [5, 6, 0, 1.5]]))
    code, _, _ = command(
        *("convert", tmp_path / "a.npy", tmp_path / "a.dat", "--read", "columns=xypt", "--read", "unit=ms")
    )
    assert code == 0 and read(tmp_path / "a.dat").events.tolist() == [(500, 3, 4, 1), (1500, 5, 6, 0)]


def test_show(file, command, tmp_path):
    code, _, _ = command("show", file, "--out", tmp_path / "a.gif", "--parts", 4)
    with Image.open(tmp_path / "a.gif") as animation:
        assert code == 0 and animation.n_frames == 4
    code, _, _ = command("show", file, "--out", tmp_path / "a.png")
    assert code == 0 and (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    code, _, err = command("show", file, "--out", tmp_path / "a.mp4")
    assert code == 2 and "--out: expected a file ending in .png or .gif" in err
    write(tmp_path / "empty.npy", random_events(0))
    assert command("show", tmp_path / "empty.npy", "--out", tmp_path / "e.png")[0] == 0
    assert command("info", tmp_path / "empty.npy")[0] == 0


def test_two_units_in_one_folder(command, tmp_path):
    """Seconds in .npy beside microseconds in .csv: a duration of days is a fault, options by suffix mend it."""
    for label, count in (("a", 3), ("b", 5)):
        (tmp_path / label).mkdir()
        for number in range(count):
            events = random_events(50, last_us=150_000, seed=number)
            if number % 2:
                lines = [f"{t},{x},{y},{p}" for t, x, y, p in events.tolist()]
                (tmp_path / label / f"{number}.csv").write_text("\n".join(["t,x,y,p", *lines]))
            else:
                seconds = np.empty(50, [("t", "f8"), ("x", "i2"), ("y", "i2"), ("p", "i1")])
                for name in "txyp":
                    seconds[name] = events[name] * (1e-6 if name == "t" else 1)
                np.save(tmp_path / label / f"{number}.npy", seconds)
    for part in ("info", "check"):
        code, out, _ = command(part, tmp_path, "--reader-options", "unit=s")
        assert code == (part == "check") and "others 14" in out.split("faults:")[1]
        advice = re.search(r"--reader-options (\.csv:unit=us)", out)[1]
        # The advice is right.
        given = ("--reader-options", "unit=s", "--reader-options", advice)
        code, out, _ = command(part, tmp_path, *given)
        assert code == 0 and "faults: none" in out
    code, _, err = command("info", tmp_path, "--reader-options", "csv:unit=us")
    assert code == 2 and "expected .SUFFIX:NAME=VALUE, got 'csv:unit=us'" in err
