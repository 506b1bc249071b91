"""Caches of packed events: the same events, made once, made again when a recording changed, compared byte for byte."""

import errno
import multiprocessing
import pickle
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from event_files import assert_same_events, random_events, write_event_folder

from snnlib.data import EventCache, EventFolder, ToFrames, as_events, write
from snnlib.data.event_cache import SUFFIX
from snnlib.data.formats.event_file import EventFileError
from snnlib.data.packed_events import PackedEvents, pack_events, unpack_events, write_packed

FRAMES = ToFrames(time_steps=30, step_us=70_000, sensor_size=(40, 400))


@pytest.fixture(autouse=True)
def cache_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("SNNLIB_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "events"


@pytest.fixture
def folder(tmp_path):
    return write_event_folder(tmp_path / "set")


@pytest.mark.parametrize(
    "events",
    [
        random_events(0),
        random_events(9, (34, 34)),
        random_events(1000, (2, 32768), last_us=2**40),
        as_events([-5, 2**62], [300, 0], [0, 32767], [0, 1]),
    ],
)
def test_packing_keeps_every_bit(events):
    block = np.frombuffer(pack_events(events) + b"more", np.uint8)
    again = unpack_events(block, len(events))
    assert np.array_equal(again, events) and again.dtype == events.dtype
    assert len(pack_events(random_events(8000, (34, 34)))) == 9 + 8000 * 6 + 1000


def first(batch):
    return batch[0]


def test_made_once_and_mapped(folder, cache_folder):
    samples = EventFolder(folder, None)
    cache = EventCache(samples, progress=False)
    assert_same_events(cache, samples)
    made = cache.path.stat().st_mtime_ns
    for path in folder.rglob("*.*"):
        path.rename(path.with_name("moved" + path.name))
    # Nothing but the cache is read, also by another process and by one that got the cache pickled.
    assert np.array_equal(pickle.loads(pickle.dumps(cache))[3][0], cache[3][0])
    loader = torch.utils.data.DataLoader(cache, batch_size=1, num_workers=1, collate_fn=first)
    assert [len(events) for events, _ in loader] == [len(cache[k][0]) for k in range(4)]
    for path in folder.rglob("moved*"):
        path.rename(path.with_name(path.name[5:]))
    again = EventCache(EventFolder(folder, None), transform=FRAMES, progress=False)
    assert again.path.stat().st_mtime_ns == made and again[0][0].shape == (30, 2, 40, 400)
    assert [path.suffix for path in sorted(cache_folder.iterdir())] == [SUFFIX, ".lock"]


def test_made_again_when_a_recording_changes(folder):
    cache = EventCache(EventFolder(folder, None), progress=False)
    write(folder / "clap" / "a.dat", random_events(70, (40, 400), seed=9))
    samples = EventFolder(folder, None)
    with pytest.warns(
        UserWarning,
        match=r"1 recordings new, changed or relabelled and 0 gone .*clap/a.dat.*; the cache is made again",
    ):
        assert_same_events(EventCache(samples, progress=False), samples)
    cache.path.write_bytes(cache.path.read_bytes()[:-9])
    with pytest.warns(UserWarning, match=r"a damaged cache .*; the cache is made again"):
        assert_same_events(EventCache(samples, progress=False), samples)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # Another split, another transform: another file.
        other = EventCache(EventFolder(folder, "train", ToHalf()), progress=False)
    assert other.path != cache.path and other[0][0]["x"].max() < 200


class ToHalf:
    def __call__(self, events):
        events = events.copy()
        events["x"] //= 2
        return events

    def __repr__(self):
        return "ToHalf()"


def test_a_crash_leaves_nothing(folder, cache_folder):
    class Failing(EventFolder):
        def __getitem__(self, index):
            if index == 3:
                raise RuntimeError("stopped")
            return super().__getitem__(index)

    with pytest.raises(RuntimeError, match="stopped"):
        EventCache(Failing(folder, None), progress=False)
    assert [path.suffix for path in cache_folder.iterdir()] == [".lock"]


def make_counted(folder, barrier, reads):
    class Counting(EventFolder):
        def __getitem__(self, index):
            with reads.get_lock():
                reads.value += 1
            return super().__getitem__(index)

    samples = Counting(folder, None)
    barrier.wait()
    EventCache(samples, progress=False)


@pytest.mark.skipif(sys.platform != "linux", reason="forked processes and file locks")
def test_processes_make_it_once(folder):
    forked = multiprocessing.get_context("fork")
    barrier, reads = forked.Barrier(3), forked.Value("i", 0)
    processes = [forked.Process(target=make_counted, args=(folder, barrier, reads)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert reads.value == 4 and all(process.exitcode == 0 for process in processes)


def test_what_cannot_be_cached(folder, tmp_path):
    with pytest.raises(TypeError, match="expected transforms whose repr says what they do, got <function"):
        EventCache(EventFolder(folder, None, lambda events: events), progress=False)
    with pytest.raises(TypeError, match=r"expected one that knows its files, .*or key=, got list"):
        EventCache([(random_events(2), 0)], progress=False)
    with pytest.raises(TypeError, match=r"dataset\[0\]: expected an integer label, got 'left'"):
        EventCache([(random_events(2), "left")], tmp_path, key="a", progress=False)
    with pytest.raises(TypeError, match=r"dataset\[0\]: expected a NumPy structured array"):
        EventCache([([1, 2], 0)], tmp_path, key="a", progress=False)
    (tmp_path / "other.events").write_bytes(b"something else")
    with pytest.raises(ValueError, match="expected packed events of this version, found b'somethin'"):
        PackedEvents(tmp_path / "other.events")


@pytest.mark.parametrize(
    ("first", "last", "new"),
    [
        (16, 32, bytes(16)),
        (16, 24, b"\xff" * 8),
        (8, 16, bytes(8)),
        (24, 32, bytes(8)),
    ],
    ids=["no index", "longer index", "elsewhere", "checksum"],
)
def test_a_damaged_head_is_refused(tmp_path, first, last, new):
    path = tmp_path / "set.events"
    write_packed(path, [(random_events(9), 1)], {})
    sound = path.read_bytes()
    assert len(PackedEvents(path)) == 1
    path.write_bytes(sound[:first] + new + sound[last:])
    with pytest.raises(
        EventFileError, match=r"set\.events: expected an index of \d+ bytes at \d+, found a damaged"
    ):
        PackedEvents(path)


def test_made_again_when_a_table_changes_a_label(tmp_path):
    for number in range(4):
        write(tmp_path / f"{number}.dat", random_events(9, (8, 8), seed=number))

    def cached(labels):
        rows = [f"{number}.dat,{label}" for number, label in enumerate(labels)]
        (tmp_path / "labels.csv").write_text("\n".join(["file,label", *rows]))
        return EventCache(EventFolder(tmp_path, None), tmp_path / "cache", progress=False)

    assert cached("aabb").targets.tolist() == [0, 0, 1, 1]
    with pytest.warns(UserWarning, match=r"1 recordings new, changed or relabelled .*1\.dat"):
        assert cached("abbb").targets.tolist() == [0, 1, 1, 1]


def test_other_polarities_are_refused(tmp_path):
    events = as_events([0, 5], [1, 2], [3, 4], [0, 1])
    events["p"] = [-1, 1]
    with pytest.raises(ValueError, match=r"dataset\[0\]: expected events of polarity 0 or 1, got \[-1, 1\]"):
        EventCache([(events, 0)], tmp_path, key="signed", progress=False)


def test_a_full_disk_and_a_missing_folder_name_the_file(tmp_path):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")
        yield

    path = tmp_path / "a.events"
    with pytest.raises(OSError, match=r"No space left on device: '.*/a\.events'"):
        write_packed(path, full(), {})
    with pytest.raises(FileNotFoundError, match=r"No such file or directory: '.*/none/a\.events'"):
        write_packed(tmp_path / "none" / "a.events", [], {})
    assert not list(tmp_path.iterdir())
    # The error names the recording that is missing.
    with pytest.raises(FileNotFoundError, match="gone"):
        write_packed(path, (Path("gone").read_bytes() for _ in range(1)), {})
