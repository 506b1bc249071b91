import errno
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

from snnlib.data import EventDigits, EventFileError, ToFrames, build_event_digits

FEW = [0, 1, 2, 70, 901, 1796]
# Hash of the six samples above, seed 0: a change here changes users' data and needs a new FORMAT_VERSION.
FEW_SHA256 = "3950e08ebcb3c32a2a68600c440c3a1a60d02ea952e6c2c52e005db28a47a526"


def digest(folder: Path) -> str:
    total = hashlib.sha256()
    for part in ("Test", "Train"):
        with zipfile.ZipFile(folder / f"{part}.zip") as archive:
            for name in sorted(archive.namelist()):
                total.update(name.encode() + archive.read(name))
    return total.hexdigest()


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def left(folder: Path) -> list[str]:
    """Archives and parts of them."""
    return [name for name in names(folder) if "zip" in name]


def build(folder: Path, **options) -> Path:
    return build_event_digits(folder, **{"samples": FEW, "progress": False, **options})


def test_same_seed_same_bytes(tmp_path):
    first = digest(build(tmp_path / "a"))
    assert first == digest(build(tmp_path / "b", samples=FEW[::-1]))
    assert first != digest(build(tmp_path / "c", seed=1))
    assert first == FEW_SHA256


def test_full_set(digits_root):
    train, test = EventDigits(digits_root, progress=False), EventDigits(digits_root, train=False)
    assert (len(train), len(test)) == (1437, 360)
    labels = load_digits().target
    for data in (train, test):
        ids = [int(Path(name).stem) for name in data.files]
        assert np.array_equal(labels[ids], data.targets.numpy())
    share = np.bincount(test.targets) / np.bincount(labels)
    assert share.min() > 0.19 and share.max() < 0.21


def test_statistics_resemble_nmnist(digits_root):
    data = EventDigits(digits_root, train=False)
    to_frames = ToFrames()
    streams = [events for events, _ in data]
    counts = np.array([len(events) for events in streams])
    assert 3700 < counts.mean() < 4300 and counts.min() > 1000 and counts.max() < 7500
    assert 0.036 < np.mean([float(to_frames(events).mean()) for events in streams]) < 0.042
    assert max(events["t"][-1] for events in streams) < 300_000
    assert 0.48 < np.mean([events["p"].mean() for events in streams]) < 0.52
    everything = np.concatenate(streams)
    for field in "xy":
        assert (everything[field].min(), everything[field].max()) == (0, 33)


def test_summed_frames_are_learnable(digits_root):
    # Nearest class mean: far weaker than logistic regression (97 %), quick, and at 10 % for unreadable data.
    sums = {}
    for train in (True, False):
        data = EventDigits(digits_root, train=train, transform=ToFrames(mode="count"))
        sums[train] = np.stack([frames.sum(0).flatten().numpy() for frames, _ in data]), data.targets.numpy()
    means = np.stack([sums[True][0][sums[True][1] == label].mean(0) for label in range(10)])
    distance = ((sums[False][0][:, None] - means) ** 2).sum(2)
    assert (distance.argmin(1) == sums[False][1]).mean() > 0.85


def test_second_opening_builds_nothing(digits_root, capsys):
    folder = next(digits_root.iterdir())
    before = (folder / "Train.zip").stat().st_mtime_ns
    started = time.perf_counter()
    EventDigits(digits_root)
    assert time.perf_counter() - started < 2
    assert (folder / "Train.zip").stat().st_mtime_ns == before and "simulating" not in capsys.readouterr().err
    assert folder.name == "event-digits-v2-seed0" and len(list(digits_root.iterdir())) == 1


def test_progress_bar(tmp_path, capsys):
    build(tmp_path / "a", progress=True)
    assert "simulating EventDigits" in capsys.readouterr().err


@pytest.mark.parametrize("damage", ["short file", "missing file", "other bytes", "old format"])
def test_damaged_build_is_built_again(tmp_path, damage):
    folder = build(tmp_path / "a")
    expected = digest(folder)
    victim = folder / "Train.zip"
    data = victim.read_bytes()
    if damage == "short file":
        victim.write_bytes(data[:5000])
    elif damage == "missing file":
        victim.unlink()
    elif damage == "other bytes":
        victim.write_bytes(data[:1000] + bytes(100) + data[1100:])
    else:
        victim.write_bytes(data.replace(b"EventDigits 2", b"EventDigits 1"))
    with pytest.warns(UserWarning, match=r"recordings were changed.*; they are made again"):
        build(folder)
    assert digest(folder) == expected and victim.read_bytes() == data and names(tmp_path) == ["a"]


def test_recording_damaged_while_open_names_the_remedy(digits_root, tmp_path):
    folder = tmp_path / next(digits_root.iterdir()).name
    shutil.copytree(next(digits_root.iterdir()), folder, copy_function=shutil.copy2)
    data = EventDigits(tmp_path, train=False)
    with (folder / "Test.zip").open("r+b") as archive:
        archive.seek(50)
        archive.write(bytes(100))
    with pytest.raises(EventFileError, match=rf"remove the folder '{folder}', and they are built again"):
        data[0]


def test_full_disk_names_the_folder(tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("snnlib.data.datasets.digits_build.encode_nmnist", fail)
    with pytest.raises(
        OSError, match=rf"{tmp_path}/a' \(No space left on device\); .*set SNNLIB_CACHE or root"
    ):
        build(tmp_path / "a")
    assert left(tmp_path / "a") == []


def test_foreign_folder_is_left_alone(tmp_path):
    (tmp_path / "Train").mkdir()
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(FileExistsError, match=r"found Train, thesis\.tex; left untouched"):
        build(tmp_path)
    assert (tmp_path / "thesis.tex").read_text() == "mine"


def test_killed_build_leaves_nothing_complete(tmp_path):
    target = tmp_path / "event-digits-v2-seed0"
    code = f"from snnlib.data import build_event_digits as b; b({str(target)!r}, progress=False)"
    process = subprocess.Popen([sys.executable, "-c", code], cwd=Path(__file__).parents[2])
    try:
        deadline = time.monotonic() + 60
        while not any(path.stat().st_size for path in tmp_path.rglob(".Train.zip.*.tmp")):
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.002)
    finally:
        process.send_signal(getattr(signal, "SIGKILL", signal.SIGTERM))
        process.wait()
    assert len(left(target)) == 2 and all(name.endswith(".tmp") for name in left(target))
    # The next build removes what the killed one left.
    build(target)
    assert digest(target) == FEW_SHA256 and left(target) == ["Test.zip", "Train.zip"]


def test_builds_at_once(tmp_path):
    start = threading.Barrier(3)
    failures = []

    def work():
        start.wait()
        try:
            build(tmp_path / "a")
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == [] and names(tmp_path) == ["a"] and digest(tmp_path / "a") == FEW_SHA256


def test_failed_build_cleans_up(tmp_path, monkeypatch):
    def fail(**_):
        raise KeyboardInterrupt

    monkeypatch.setattr("snnlib.data.datasets.digits_build.EventCamera", fail)
    with pytest.raises(KeyboardInterrupt):
        build(tmp_path / "a")
    assert left(tmp_path / "a") == []


def test_without_scikit_learn(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(
        ImportError, match=r"EventDigits need the package sklearn.*pip install 'snnlib\[data\]'"
    ):
        build(tmp_path / "a")


def test_unwritable_cache_says_what_to_set(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="set SNNLIB_CACHE or root to a writable folder"):
        build(tmp_path / "file" / "a")


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"seed": -1}, ValueError, "seed: expected an integer >= 0, got -1"),
        ({"seed": "a"}, TypeError, "seed: expected an integer >= 0, got 'a'"),
        ({"samples": [1797]}, ValueError, "samples: expected an integer in 0..1796, got 1797"),
    ],
)
def test_wrong_arguments(tmp_path, options, error, text):
    with pytest.raises(error, match=text):
        build(tmp_path / "a", **options)
    assert names(tmp_path) == []


def test_default_root_is_the_cache(digits_root, monkeypatch):
    monkeypatch.setenv("SNNLIB_CACHE", str(digits_root))
    assert EventDigits(train=False).root == next(digits_root.iterdir())
