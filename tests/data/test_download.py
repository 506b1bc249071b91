"""Downloads of data sets from a server on the loopback, which also breaks off, lies and refuses."""

import hashlib
import io
import multiprocessing
import os
import socket
import struct
import sys
import tarfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hosts import Host, answer, serve, serve_mnist, serving, status

import snnlib
from snnlib.data import DownloadError, download
from snnlib.data.datasets import published
from snnlib.data.datasets.published import PUBLIC

# pooch leaves the socket of an answer that is an error to the garbage collector.
pytestmark = pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning"
)


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    with serving(monkeypatch) as own:
        yield own


@pytest.fixture
def mnist(host: Host, monkeypatch: pytest.MonkeyPatch) -> Host:
    return serve_mnist(host, monkeypatch)


def left_in(folder: Path) -> list[str]:
    return sorted(
        path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.name != ".download.lock"
    )


def test_a_class_downloads_once(
    mnist: Host, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SNNLIB_CACHE", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="download=True downloads it"):
        snnlib.data.MNIST()
    assert not mnist.asked
    images = snnlib.data.MNIST(train=False, download=True)
    assert images.targets.tolist()[:3] == [0, 1, 2]
    assert images.root == tmp_path / "datasets" / "mnist"
    said = capsys.readouterr().err
    assert "MNIST: downloading 12 MB from http://127.0.0.1" in said
    assert said.count("licence: ") == said.count("cite: LeCun") == 1
    assert left_in(images.root) == sorted(mnist.files)
    asked = list(mnist.asked)
    assert sorted(asked) == sorted(mnist.files)
    assert len(snnlib.data.MNIST(download=True)) == len(snnlib.data.MNIST()) == 12
    assert mnist.asked == asked
    assert capsys.readouterr().err == ""


def test_files_that_are_there_are_kept(mnist: Host, tmp_path: Path) -> None:
    # A file as published, and a file unpacked by hand.
    (tmp_path / "t10k-labels-idx1-ubyte.gz").write_bytes(b"own")
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(b"own")
    download("mnist", tmp_path)
    assert sorted(mnist.asked) == ["t10k-images-idx3-ubyte.gz", "train-images-idx3-ubyte.gz"]
    assert (tmp_path / "t10k-labels-idx1-ubyte.gz").read_bytes() == b"own"


def _reset(handler: Any, body: bytes) -> None:
    answer(handler, body[: len(body) // 2], len(body))
    handler.wfile.flush()
    # Closed with a reset, as by a host that dies.
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    handler.connection.close()


def _redirect(handler: Any, to: str) -> None:
    handler.send_response(302)
    handler.send_header("Location", to)
    handler.send_header("Content-Length", "0")
    handler.end_headers()


def _silence(handler: Any, body: bytes) -> None:
    answer(handler, body[:10], len(body))
    handler.wfile.flush()
    threading.Event().wait(1.0)


BAD = "train-labels-idx1-ubyte.gz"
FAULTS: dict[str, tuple[Callable[[Any, bytes], None], str]] = {
    "403": (status(403), "the server answered 403 Forbidden"),
    "404": (status(404), "the server answered 404 Not Found"),
    "500": (status(500), "the server answered 500"),
    "503": (status(503), "the server answered 503"),
    "cut short": (lambda handler, body: answer(handler, body[:-5], len(body)), "failed or broke off"),
    "size too small": (
        lambda handler, body: answer(handler, body, len(body) - 5),
        "expected the published checksum",
    ),
    "size too large": (lambda handler, body: answer(handler, body, len(body) + 5), "failed or broke off"),
    "other contents": (
        lambda handler, body: answer(handler, b"x" + body[1:]),
        "expected the published checksum",
    ),
    "an error page": (lambda handler, body: answer(handler, b"<html>"), "expected the published checksum"),
    "nothing": (lambda handler, body: answer(handler, b""), "expected the published checksum"),
    "reset": (_reset, "failed or broke off"),
    "redirects in a circle": (lambda handler, body: _redirect(handler, f"/{BAD}"), "redirects in a circle"),
    "redirect to nowhere": (lambda handler, body: _redirect(handler, "/gone"), "the server answered 404"),
    "silence": (_silence, "failed or broke off"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_failure_has_a_sentence_and_leaves_nothing_half(
    mnist: Host, tmp_path: Path, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(published, "_TIMEOUT", 0.3 if fault == "silence" else 10)
    mnist.faults[BAD], sentence = FAULTS[fault]
    with pytest.raises(DownloadError, match=sentence) as raised:
        download("mnist", tmp_path)
    # The address of the file, or where it led to, and where to get it by hand.
    assert mnist.url in str(raised.value)
    assert str(raised.value).startswith(f"{BAD} of MNIST, ")
    assert "fetch the file by hand from https://" in str(raised.value)
    # Files before it are whole, nothing else is there.
    assert left_in(tmp_path) == ["train-images-idx3-ubyte.gz"]
    del mnist.faults[BAD]
    download("mnist", tmp_path)
    assert left_in(tmp_path) == sorted(mnist.files)
    assert mnist.asked.count("train-images-idx3-ubyte.gz") == 1


def test_no_server(mnist: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        closed = f"http://127.0.0.1:{free.getsockname()[1]}/"
    monkeypatch.setitem(PUBLIC, "mnist", replace(PUBLIC["mnist"], host=closed))
    with pytest.raises(DownloadError, match=r"127\.0\.0\.1:\d+/train-images.*failed or broke off"):
        download("mnist", tmp_path)
    assert left_in(tmp_path) == []


def test_a_redirect_is_followed(mnist: Host, tmp_path: Path) -> None:
    mnist.files["moved"] = mnist.files[BAD]
    mnist.faults[BAD] = lambda handler, body: _redirect(handler, "/moved")
    download("mnist", tmp_path)
    assert (tmp_path / BAD).read_bytes() == mnist.files["moved"]


def test_what_a_killed_process_left_goes(mnist: Host, tmp_path: Path) -> None:
    (tmp_path / ".download").mkdir()
    (tmp_path / ".download" / "tmp1234").write_bytes(b"half")
    download("mnist", tmp_path)
    assert left_in(tmp_path) == sorted(mnist.files)


def _zip_of(files: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return packed.getvalue()


def _tar_of(files: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return packed.getvalue()


def test_zips_are_unpacked(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    packed = {file.name: _zip_of({file.witness: file.name.encode()}) for file in PUBLIC["shd"].files}
    serve(host, monkeypatch, "shd", packed)
    download("shd", tmp_path)
    assert left_in(tmp_path) == ["shd_test.h5", "shd_train.h5"]
    assert (tmp_path / "shd_test.h5").read_bytes() == b"shd_test.h5.zip"
    # No size stands in the table: the server was asked.
    assert "downloading 0 MB" in capsys.readouterr().err
    assert (download("shd", tmp_path), host.asked) == (tmp_path, sorted(packed, reverse=True))


def test_a_tar_is_unpacked_and_its_witness_comes_last(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (listed,) = PUBLIC["speech-commands"].files
    files = {
        "./testing_list.txt": b"yes/1_nohash_0.wav\n",
        "./yes/1_nohash_0.wav": b"sound",
        "./validation_list.txt": b"",
    }
    serve(host, monkeypatch, "speech-commands", {listed.name: _tar_of(files)})
    moved: list[str] = []
    replaced = Path.replace

    def spied(self: Path, target: Any) -> Path:
        moved.append(self.name)
        return replaced(self, target)

    monkeypatch.setattr(Path, "replace", spied)
    download("speech-commands", tmp_path)
    assert moved[-1] == "testing_list.txt"
    assert left_in(tmp_path) == ["testing_list.txt", "validation_list.txt", "yes", "yes/1_nohash_0.wav"]
    words = snnlib.data.SpeechCommands(tmp_path, None, num_classes=35)
    assert words.files == ["yes/1_nohash_0.wav"]


@pytest.mark.parametrize("name", ["shd", "speech-commands"])
def test_a_damaged_archive_has_a_sentence(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    pack = _zip_of if name == "shd" else _tar_of
    whole = {file.name: pack({file.witness: os.urandom(3000)}) for file in PUBLIC[name].files}
    serve(host, monkeypatch, name, {file: data[:2000] for file, data in whole.items()})
    with pytest.raises(DownloadError, match="expected an archive, got a damaged one"):
        download(name, tmp_path)
    assert left_in(tmp_path) == []
    serve(host, monkeypatch, name, whole)
    download(name, tmp_path)
    assert left_in(tmp_path) == sorted(file.witness for file in PUBLIC[name].files)


def test_a_list_of_checksums(host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = tuple(file for file in PUBLIC["mitbih"].files if file.name.startswith("100."))
    host.files = {file.name: file.name.encode() for file in kept}
    lines = [f"{hashlib.sha256(data).hexdigest()} {name}\n" for name, data in host.files.items()]
    host.files["SHA256SUMS.txt"] = "".join(lines).encode()
    monkeypatch.setitem(PUBLIC, "mitbih", replace(PUBLIC["mitbih"], host=host.url, files=kept))
    host.faults["100.dat"] = lambda handler, body: answer(handler, b"100.tad")
    with pytest.raises(DownloadError, match=r"100\.dat: expected the published checksum"):
        download("mitbih", tmp_path)
    host.faults.clear()
    host.files["SHA256SUMS.txt"] = "".join(lines[:1]).encode()
    with pytest.raises(DownloadError, match=r"SHA256SUMS\.txt: expected a checksum of 100\.dat, found none"):
        download("mitbih", tmp_path)
    host.files["SHA256SUMS.txt"] = "".join(lines).encode()
    download("mitbih", tmp_path)
    assert left_in(tmp_path) == ["100.atr", "100.dat", "100.hea"]


def test_processes_wait_for_each_other(mnist: Host, tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=download, args=("mnist", tmp_path)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert sorted(mnist.asked) == sorted(file.name for file in PUBLIC["mnist"].files)


def _download_on_a_full_disk(folder: Path, told: Any) -> None:
    import resource  # noqa: PLC0415 - Windows has none

    # No file of this process may be longer than ten bytes, not even the one that captures what it says.
    sys.stderr = io.StringIO()
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))
    try:
        download("mnist", folder)
    except DownloadError as error:
        told.send(str(error))


@pytest.mark.skipif(sys.platform == "win32", reason="Windows sets no limit on a file's size")
def test_a_full_disk(mnist: Host, tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=_download_on_a_full_disk, args=(tmp_path, theirs))
    process.start()
    process.join()
    assert process.exitcode == 0
    assert "train-images-idx3-ubyte.gz: the file could not be written" in ours.recv()
    assert left_in(tmp_path) == []
    download("mnist", tmp_path)
    assert left_in(tmp_path) == sorted(mnist.files)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")
def test_a_process_killed_half_way(mnist: Host, tmp_path: Path) -> None:
    begun, ended = threading.Event(), threading.Event()

    def hang(handler: Any, body: bytes) -> None:
        answer(handler, body[:10], len(body))
        handler.wfile.flush()
        begun.set()
        ended.wait(20)

    mnist.faults[BAD] = hang
    process = multiprocessing.get_context("fork").Process(target=download, args=("mnist", tmp_path))
    process.start()
    assert begun.wait(20)
    process.kill()
    process.join()
    ended.set()
    assert (tmp_path / "train-images-idx3-ubyte.gz").is_file() and not (tmp_path / BAD).exists()
    del mnist.faults[BAD]
    download("mnist", tmp_path)
    assert left_in(tmp_path) == sorted(mnist.files)
    assert mnist.asked.count("train-images-idx3-ubyte.gz") == 1


def test_a_folder_that_cannot_be(mnist: Host, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(OSError, match="file"):
        download("mnist", tmp_path / "file")
    with pytest.raises(ValueError, match=r"name: expected one of mnist, .*, got 'cifar'"):
        download("cifar", tmp_path)


def test_names_of_the_table() -> None:
    for offered in PUBLIC.values():
        assert offered.host.startswith("http")
        assert offered.host.endswith("/")
        for file in offered.files:
            algorithm, _, digits = file.checksum.partition(":")
            assert len(digits) == {"md5": 32, "sha256": 64, "": 0}[algorithm]
            assert file.checksum or offered.sums
    assert len(PUBLIC["mitbih"].files) == 3 * 48
