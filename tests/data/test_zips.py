"""Archives: damaged ones, those that need another program, and where data sets find theirs."""

import bz2
import gzip
import io
import random
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
from event_files import EVENTS, encoded, npz_file
from small_sets import write_wav

from snnlib.data import NMNIST, EventFileError, SpeechCommands, SpokenDigits, read

COMMANDS = ("yes", "no", "up", "down", "left", "right", "on", "off", "stop", "go")


def packed(method: int = zipfile.ZIP_DEFLATED) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", method) as archive:
        for digit in "34":
            archive.writestr(f"Train/{digit}/00001.bin", encoded("nmnist", EVENTS[: int(digit)]))
    return content.getvalue()


def changed(data: bytes, offset: int, value: bytes) -> bytes:
    """Both headers of the first member with a field changed, by its place in the local one."""
    central = data.index(b"PK\x01\x02")
    for begin in (offset, central + offset + 2):
        data = data[:begin] + value + data[begin + len(value) :]
    return data


def opened(root: Path, data: bytes) -> NMNIST:
    (root / "Train.zip").write_bytes(data)
    return NMNIST(root)


@pytest.mark.parametrize(
    "method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA]
)
def test_methods_of_zipfile(tmp_path: Path, method: int) -> None:
    assert [len(events) for events, _ in opened(tmp_path, packed(method))] == [3, 4]


@pytest.mark.parametrize(
    ("offset", "value", "message"),
    [
        (
            8,
            (9).to_bytes(2, "little"),
            "00001.bin: damaged zip member: .*method.*; if it is whole, pack it again by",
        ),
        (
            8,
            (99).to_bytes(2, "little"),
            "00001.bin: damaged zip member: .*method.*; if it is whole, pack it again by",
        ),
        (
            4,
            (99).to_bytes(2, "little"),
            r"Train\.zip: expected a zip file, found .*version 9\.9; if it is whole, pack",
        ),
        (
            6,
            (1).to_bytes(2, "little"),
            "00001.bin: expected a zip member without a password, got an encrypted one",
        ),
        (14, bytes(4), "00001.bin: damaged zip member: Bad CRC-32"),
        (30, b"\xff", r"Train\.zip"),
    ],
)
def test_fields_of_members(tmp_path: Path, offset: int, value: bytes, message: str) -> None:
    with pytest.raises(EventFileError, match=message):
        opened(tmp_path, changed(packed(), offset, value))[0]


@pytest.mark.filterwarnings("ignore:.*left out")
@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_archives_damaged_anywhere_are_one_error(tmp_path: Path, method: int) -> None:
    """Damaged recordings in a zip file raise one error; so do arrays of an .npz file, its members."""
    data, npz, refused = packed(method), npz_file(EVENTS), 0
    for seed in range(300):
        rng = random.Random(seed)
        broken = [bytearray(data), bytearray(npz)]
        for content in broken:
            content[rng.randrange(len(content))] = rng.randrange(256)
        try:
            for events, _ in opened(tmp_path, bytes(broken[0])):
                assert len(events) <= 4
        except (EventFileError, FileNotFoundError) as error:
            assert str(tmp_path) in str(error)
            refused += 1
        try:
            read(bytes(broken[1]), format="npz")
        except EventFileError as error:
            assert "byte offset 0: " in str(error)
    assert refused > 100


def tar(kind: str) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode=f"w{kind}") as archive:
        info = tarfile.TarInfo("yes/0a_nohash_0.wav")
        info.size = 3
        archive.addfile(info, io.BytesIO(b"abc"))
    return content.getvalue()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (tar(":gz"), "found a gzip archive; unpack it"),
        (tar(":bz2"), "found a bzip2 archive; unpack it"),
        (tar(":xz"), "found a xz archive; unpack it"),
        (tar(""), "found a tar archive; unpack it"),
        (gzip.compress(b"a", mtime=0), "found a gzip archive; unpack it"),
        (bz2.compress(b"a"), "found a bzip2 archive; unpack it"),
        (b"7z\xbc\xaf\x27\x1c" + bytes(30), "found a 7z archive; unpack it"),
        (packed()[:-30], "bytes that are none or only a part of one .*; copy it again"),
        (b"PK\x03\x04", "found 4 bytes that are none or only a part of one .*; copy it again"),
    ],
)
def test_other_archives_are_named(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "archive"
    path.write_bytes(content)
    for kind in (SpeechCommands, SpokenDigits):
        with pytest.raises(EventFileError, match=message):
            kind(path)


def test_keywords_lie_in_the_one_zip_file_of_a_folder(tmp_path: Path) -> None:
    """As N-MNIST and the digits: a folder of the data set beside it counts more."""
    folder = tmp_path / "keywords"
    folder.mkdir()
    write_wav(tmp_path / "a.wav", [1, 2], rate=16000)
    with zipfile.ZipFile(folder / "any.ZIP", "w") as archive:
        for word in (*COMMANDS, "_unknown_"):
            archive.write(tmp_path / "a.wav", f"set/{word}/0000000a_nohash_1.wav")
        archive.write(tmp_path / "a.wav", "set/_silence_/1.wav")
    (folder / "README.md").write_text("where it comes from")
    found = SpeechCommands(folder, "test")
    assert len(found) == 12 and np.allclose(found[0][0], [1 / 32768, 2 / 32768])
    (folder / "b.zip").write_bytes(packed())
    with pytest.raises(EventFileError, match=r"one zip file, found any.ZIP, b.zip; give one of them as root"):
        SpeechCommands(folder, "test")
    assert len(SpeechCommands(folder / "any.ZIP", "test")) == 12
    (folder / "yes").mkdir()
    write_wav(folder / "yes" / "0000000b_nohash_0.wav", [1], rate=16000)
    assert SpeechCommands(folder, None, fold=0).files == ["yes/0000000b_nohash_0.wav"]
