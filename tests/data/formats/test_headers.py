"""Headers of other versions, foreign or missing ones: read with their own meaning, or refused by what they say."""

import struct

import numpy as np
import pytest
from event_files import EVENT_FILES, EVENTS, aedat1_file, encoded, hdf5_file

from snnlib.data import EventFileError, as_events, iter_events, read, write
from snnlib.data.formats.registry import HEADLESS

EVENT = as_events([250], [300], [200], [0])


def dat(version, x, y, p, shifts, kind=0):
    word = x | y << shifts[0] | p << shifts[1]
    return b"% Version " + version + b"\n" + bytes((kind, 8)) + struct.pack("<II", 250, word)


@pytest.mark.parametrize(
    ("version", "shifts"), [(b"1", (9, 17)), (b"0", None), (b"2", (14, 28)), (b"2.0", (14, 28)), (b"3", None)]
)
@pytest.mark.parametrize("p", [0, 1])
def test_bits_of_dat_versions(version, shifts, p):
    if shifts is None:
        with pytest.raises(EventFileError, match=f"expected DAT version 1 or 2, found '{version.decode()}'"):
            read(dat(version, 300, 200, p, (14, 28)))
        return
    for kind in (0, 12):
        found, header = read(dat(version, 300, 200, p, shifts, kind))
        assert found.tolist() == [(250, 300, 200, p)] and header.version == version.decode()


def test_dat_without_a_version_is_the_first_one():
    """The bits of an event of version 2 are no plausible event in version 1; the reverse is plausible."""
    nameless = dat(b"1", 300, 200, 1, (9, 17)).replace(b"Version 1", b"made")
    assert read(nameless).events.tolist() == [(250, 300, 200, 1)]
    with pytest.raises(EventFileError, match="found x=300, y=0, p=2073"):
        read(dat(b"2", 300, 200, 1, (14, 28)).replace(b"Version 2", b"made"))


def test_aedat_2_of_a_davis_without_its_name():
    """Its addresses have more bits than those of a DVS128, the camera of headers without a name."""
    named = encoded("aedat2", EVENTS, (180, 240))
    nameless = named.replace(b"# AEChip: DAVIS240\r\n", b"")
    assert nameless != named
    with pytest.raises(EventFileError, match=r"expected addresses of 16 bits.*give camera="):
        read(nameless)
    assert np.array_equal(read(nameless, camera="davis240", origin=0).events, EVENTS)


FOREIGN = {
    b"Event Stream\2\0\0\1" + bytes(40): "Event Stream",
    b"#ROSBAG V2.0\n" + bytes(40): "ROS",
    b"PAR1" + bytes(40): "Parquet",
    b"7z\xbc\xaf'\x1c" + bytes(40): "7z",
}


@pytest.mark.parametrize("head", FOREIGN)
@pytest.mark.parametrize("format", [None, "aedat1", "aedat2", "evt2", "evt21", "evt3", "nmnist", "csv"])
@pytest.mark.parametrize("suffix", [".es", ".raw", ".csv"])
def test_a_file_of_another_program_is_named(tmp_path, head, format, suffix):
    """Neither is it decoded to false events, nor is a format without a header advised."""
    path = tmp_path / f"a{suffix}"
    path.write_bytes(head)
    with pytest.raises(EventFileError, match=f"found .*{FOREIGN[head]}") as found:
        read(path, format=format)
    assert "format=" not in str(found.value)


@pytest.mark.parametrize("name", ["aedat4", "npz", "hdf5", "mat", "npy"])
@pytest.mark.parametrize("format", ["aedat1", "evt3", "nmnist"])
def test_a_named_format_without_a_header_does_not_read_a_file_with_one(name, format):
    data = hdf5_file(EVENTS) if name == "hdf5" else EVENT_FILES[name]()
    with pytest.raises(EventFileError, match="found a file of "):
        read(data, format=format)


def test_a_file_of_unknown_words_alone_warns():
    """A text has no time word of EVT 3.0."""
    text = b"no events at all; " * 20
    with pytest.warns(UserWarning, match="no events, .*words before the first time"):
        assert len(read(text, format="evt3").events) == 0
    with pytest.warns(UserWarning, match="no events"):
        assert list(iter_events(text, 1000, format="evt3")) == []


def test_upper_bits_of_dat_1_are_no_polarity():
    with pytest.raises(EventFileError, match=r"byte offset 14: .*found x=300"):
        read(dat(b"1", 300, 200, 1, (14, 28)))


def test_aedat_1_of_a_dvs128(tmp_path):
    events, header = read(aedat1_file(EVENTS), origin=0)
    assert np.array_equal(events, EVENTS)
    assert (header.format, header.version, header.sensor_size) == ("aedat1", "1.0", (128, 128))
    davis = b"#!AER-DAT1.0\r\n# AEChip: x.DAVIS240C\r\n"
    with pytest.raises(EventFileError, match="expected a camera among dvs128, tmpdiff128, found 'DAVIS240C'"):
        read(davis)
    # The name of the DVS128 in the first recordings.
    old = b"#!AER-DAT2.0\r\n# AEChip: ch.unizh.ini.caviar.chip.retina.Tmpdiff128\r\n"
    assert read(old).header.sensor_size == (128, 128)


@pytest.mark.parametrize(
    ("name", "suffix", "make"),
    [
        ("aedat1", ".aedat", aedat1_file),
        ("aedat2", ".aedat", lambda events: encoded("aedat2", events, (128, 128))),
        *(
            (name, ".raw", lambda events, name=name: encoded(name, events))
            for name in ("evt2", "evt21", "evt3")
        ),
        ("nmnist", ".bin", lambda events: encoded("nmnist", events)),
    ],
)
def test_files_without_a_header(tmp_path, name, suffix, make):
    """The message says which names of formats read them, and they do."""
    path = tmp_path / f"a{suffix}"
    path.write_bytes(make(EVENTS)[len(make(EVENTS[:0])) :])
    if name in HEADLESS:
        with pytest.raises(EventFileError, match=rf"give format= \(.*{name}.*\) where the header is missing"):
            read(path)
    assert np.array_equal(read(path, format=name, origin=0).events, EVENTS)


def test_formats_that_need_their_header_are_not_advised(tmp_path):
    for suffix in (".dat", ".npy", ".npz", ".mat", ".h5", ".aedat4", ".aedat3"):
        (tmp_path / f"a{suffix}").write_bytes(bytes(range(200, 240)))
        with pytest.raises(EventFileError, match="expected the header of ") as error:
            read(tmp_path / f"a{suffix}")
        assert "give" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "head", "found"),
    [
        ("a.raw", b"% date 2024-01-01\n% evt 4.0\n% end\n", "b'% evt 4.0'"),
        ("a.raw", b"% format EVT4;width=640;height=480\n% end\n", "b'% format EVT4;width=640;height=480'"),
        ("a.aedat", b"#!AER-DAT5.0\r\n", "b'#!AER-DAT5.0"),
        ("a.aedat", b"#!AER-DAT3.0\r\n#Format: RAW\r\n", "'#!AER-DAT3.0'"),
    ],
)
def test_other_versions_are_named_and_no_format_is_advised(tmp_path, name, head, found):
    (tmp_path / name).write_bytes(head + bytes(48))
    with pytest.raises(EventFileError) as error:
        read(tmp_path / name)
    assert found in str(error.value) and "format=" not in str(error.value)


def test_a_named_format_does_not_overrule_the_header(tmp_path):
    for written, asked in (("evt2", "evt3"), ("evt3", "evt21"), ("evt21", "evt2")):
        write(tmp_path / "a.raw", EVENTS, format=written)
        with pytest.raises(EventFileError, match=r"expected Prophesee EVT .*, found a file of Prophesee EVT"):
            read(tmp_path / "a.raw", format=asked)
    with pytest.raises(EventFileError, match=r"expected AEDAT 2.0, found a file of AEDAT 1.0"):
        read(aedat1_file(EVENTS), format="aedat2")


ROWS = b"300,200,0,250\n301,201,1,260\n"
READ = [(250, 300, 200, 0), (260, 301, 201, 1)]


@pytest.mark.parametrize(
    ("head", "size"),
    [
        (b"%geometry:1280,720\n", (720, 1280)),
        (b"%geometry:1280,720\r\n", (720, 1280)),
        (b"% geometry: 1280, 720\n", (720, 1280)),
        (b"% made\n%geometry:1280,720\n", (720, 1280)),
        (b"%geometry:1280,720\nx,y,p,t\n", (720, 1280)),
    ],
)
def test_text_of_metavision(tmp_path, head, size):
    for path in (tmp_path / "a.csv", tmp_path / "a"):
        path.write_bytes(head + ROWS)
        events, header = read(path)
        assert events.tolist() == READ and (header.format, header.sensor_size) == ("csv", size)


def test_text_of_metavision_without_events_or_behind_a_mark(tmp_path):
    assert read(b"%geometry:64,48\n").header.sensor_size == (48, 64)
    (tmp_path / "a.csv").write_bytes(b"\xef\xbb\xbf%geometry:1280,720\n" + ROWS)
    assert read(tmp_path / "a.csv").events.tolist() == READ
    (tmp_path / "a.csv").write_bytes(b"\xef\xbb\xbfx,y,p,t\n" + ROWS)
    assert read(tmp_path / "a.csv").events.tolist() == READ


def test_comments_of_text(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"% x y p t, in us\n%\n" + ROWS.replace(b",", b" "))
    assert read(path, columns="xypt").events.tolist() == READ
    with pytest.raises(EventFileError, match=r"line 3: expected a line of names, .* give columns="):
        read(path)
    path.write_bytes(b"%geometry:99999,720\n" + ROWS)
    with pytest.raises(EventFileError, match=r"of 1\.\.32768 pixels each way, found 99999x720"):
        read(path)
    path.write_bytes(b"%geometry:1280,720\n250,300,200,0\n")
    with pytest.raises(EventFileError, match=r"lines from 2: p: expected 0..1, got 200"):
        read(path)
    # An order that is given counts more.
    assert read(path, columns="txyp").events.tolist() == READ[:1]
