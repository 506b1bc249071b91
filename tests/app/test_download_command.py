"""Downloads by the command, from a server on the loopback."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import command
import pytest
from hosts import Host, idx, serve, serve_mnist, serving, status

# pooch leaves the socket of an answer that is an error to the garbage collector.
pytestmark = pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning"
)
BAD = "train-labels-idx1-ubyte.gz"


@pytest.fixture
def mnist(monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    with serving(monkeypatch) as host:
        yield serve_mnist(host, monkeypatch)


def test_the_commands(
    mnist: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SNNLIB_CACHE", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "datasets" / "mnist"
    assert command.done(capfd, "data", "get", "mnist").strip() == str(folder)
    assert "name: expected one of mnist, " in command.refused(capfd, "data", "get", "cifar")
    assert "'mnist|fashion-mnist|nmnist|" in command.refused(capfd, "data", "get")
    said = command.refused(capfd, "train", "--data", "yin-yang", "--download")
    assert "download: expected a data set with a public download (nmnist, " in said
    said = command.refused(capfd, "train", "--data", "mnist")
    assert "--download downloads it" in said
    mnist.faults[BAD] = status(404)
    shutil.rmtree(folder)
    assert "404 Not Found" in command.refused(capfd, "train", "--data", "mnist", "--download")


@pytest.mark.usefixtures("undrawn")
def test_a_run_on_downloaded_data(
    mnist: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for part, count in (("train", 60), ("t10k", 12)):
        mnist.files[f"{part}-images-idx3-ubyte.gz"] = idx(os.urandom(784 * count), count, 28, 28)
        mnist.files[f"{part}-labels-idx1-ubyte.gz"] = idx(bytes(i % 10 for i in range(count)), count)
    serve(mnist, monkeypatch, "mnist", dict(mnist.files))
    monkeypatch.setenv("SNNLIB_CACHE", str(tmp_path))
    options = "--data mnist --download --epochs 1 --threads 1 --net 8-10 --time-steps 2"
    command.done(capfd, "train", *options.split(), "--out", tmp_path / "run")
    assert str(tmp_path / "datasets" / "mnist") in (tmp_path / "run" / "config.json").read_text()
