"""Caches of packed events in the command: compared with their files by `snnlib data check`, taken by the trainer."""

import os
import warnings

import pytest
import torch
from command import run
from event_files import assert_same_events, random_events, write_event_folder

from snnlib.app.training.config import TrainConfig
from snnlib.app.training.data_module import EventData
from snnlib.data import NMNIST, EventCache, EventFolder, FrameCache, write


@pytest.fixture(autouse=True)
def cache_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("SNNLIB_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def folder(tmp_path):
    return write_event_folder(tmp_path / "set")


def check(capsys, *arguments):
    code, out, err = run(capsys, "data", "check", *arguments)
    return code, out + err


def test_check_compares_caches_with_files(folder, capsys):
    cache = EventCache(EventFolder(folder, None), progress=False)
    code, said = check(capsys, folder)
    assert code == 0 and "4 recordings of 2 classes read" in said and "4 recordings, all as they were" in said
    # Changed, but of the same size and time: only a comparison byte for byte finds it.
    path = folder / "clap" / "b.dat"
    before, data = path.stat(), bytearray(path.read_bytes())
    data[-8] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert EventCache(EventFolder(folder, None), progress=False).path == cache.path
    code, said = check(capsys, folder)
    assert code == 1 and "1 recordings differ from what was cached (clap/b.dat); removed" in said
    assert not cache.path.exists()
    # A damaged block of the cache itself, and a damaged recording.
    cache = EventCache(EventFolder(folder, None), progress=False)
    broken = bytearray(cache.path.read_bytes())
    broken[60] ^= 1
    cache.path.write_bytes(broken)
    (folder / "wave" / "c.raw").write_bytes((folder / "wave" / "c.raw").read_bytes()[:-1])
    code, said = check(capsys, folder)
    assert code == 1 and "2 recordings differ" in said and "c.raw: byte offset" in said


def test_check_of_nmnist_and_files(tmp_path, capsys):
    for name in ("Train/3/00001.bin", "Test/5/00002.bin"):
        (tmp_path / name).parent.mkdir(parents=True)
        write(tmp_path / name, random_events(30, (34, 34), seed=len(name)), sensor_size=(34, 34))
    samples = NMNIST(tmp_path)
    assert_same_events(EventCache(samples, progress=False), samples)
    code, said = check(capsys, tmp_path)
    assert (
        code == 0 and "training set read" in said and "test set read" in said and "all as they were" in said
    )
    (tmp_path / "Test/5/00002.bin").write_bytes(b"abc")
    code, said = check(capsys, tmp_path)
    assert code == 1 and "00002.bin: byte offset 0: truncated" in said
    assert check(capsys, tmp_path / "Train/3/00001.bin")[0] == 0
    assert check(capsys, tmp_path / "none")[0] == 2


def test_trainer_takes_it_where_frames_do_not_fit(tmp_path, monkeypatch):
    for name in ("Train/3/00001.bin", "Train/4/00002.bin", "Test/5/00003.bin"):
        (tmp_path / name).parent.mkdir(parents=True)
        write(tmp_path / name, random_events(300, (34, 34), last_us=290_000), sensor_size=(34, 34))
    config = TrainConfig(data="nmnist", root=str(tmp_path))
    in_memory, cached = EventData(config, progress=False), EventData(config, progress=False)
    in_memory.setup("fit")
    monkeypatch.setattr("snnlib.app.kinds.base.memory_bytes", lambda: 1.0)
    # So little would be refused for the frames of a batch already.
    monkeypatch.setattr(EventData, "_check_batches", lambda *_: None)
    cached.setup("fit")
    assert isinstance(in_memory.train_set, FrameCache) and isinstance(cached.train_set, EventCache)
    for number in range(2):
        (frames, label), (expected, wanted) = cached.train_set[number], in_memory.train_set[number]
        assert torch.equal(frames, expected) and frames.dtype == expected.dtype and label == wanted
