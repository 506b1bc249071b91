"""Files are written whole or not at all; where caches lie."""

import errno
from pathlib import Path

import pytest

from snnlib.files.atomic import whole_or_absent, write_bytes_atomically
from snnlib.files.cache_dir import user_cache_dir


def test_an_error_within_the_block_keeps_the_old_file_alone(tmp_path: Path) -> None:
    target = tmp_path / "net.pt"
    write_bytes_atomically(target, b"old")
    with pytest.raises(KeyError), whole_or_absent(target) as file:
        file.write(b"half")
        raise KeyError
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("net.pt", b"old")]
    write_bytes_atomically(target, b"new")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("net.pt", b"new")]


def test_errors_name_the_target_and_not_the_temporary_file(tmp_path: Path) -> None:
    target = tmp_path / "absent" / "net.pt"
    with pytest.raises(FileNotFoundError) as missing:
        write_bytes_atomically(target, b"")
    assert missing.value.filename == str(target)
    target = tmp_path / "full.pt"
    with pytest.raises(OSError, match="No space") as full, whole_or_absent(target):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert full.value.filename == str(target) and not list(tmp_path.iterdir())


def test_cache_dir(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SNNLIB_CACHE", str(tmp_path / "own"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert user_cache_dir() == tmp_path / "own"
    monkeypatch.delenv("SNNLIB_CACHE")
    assert user_cache_dir() == tmp_path / "xdg" / "snnlib"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert user_cache_dir().is_absolute() and "relative" not in user_cache_dir().parts
