import os
import pickle
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from snnlib.data import NMNIST, EventFileError, ToFrames, as_events, encode_nmnist, stack_time_first


def recording(number: int) -> bytes:
    return encode_nmnist(as_events([number, number + 40], [number % 34, 1], [2, number % 34], [0, 1]))


SAMPLES = {"0/00003.bin": 3, "0/00001.bin": 1, "9/00002.bin": 2, "4/00009.bin": 9}


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    root = tmp_path / "folders"
    for split in ("Train", "Test"):
        (root / split / "5").mkdir(parents=True)
        for name, number in SAMPLES.items():
            path = root / split / name
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(recording(number + 100 * (split == "Test")))
    return root


@pytest.fixture
def zips(folders: Path, tmp_path: Path) -> Path:
    root = tmp_path / "zips"
    for split in ("Train", "Test"):
        shutil.make_archive(str(root / split), "zip", folders, split)
    return root


def same(first: NMNIST, second: NMNIST) -> bool:
    pairs = zip(first, second, strict=True)
    return all(a[1] == b[1] and np.array_equal(a[0], b[0]) for a, b in pairs)


def test_order_labels_and_attributes(folders):
    data = NMNIST(folders)
    assert data.files == ["Train/0/00001.bin", "Train/0/00003.bin", "Train/4/00009.bin", "Train/9/00002.bin"]
    assert data.targets.tolist() == [0, 0, 4, 9] and data.targets.dtype == torch.int64
    assert list(data.classes) == list("0123456789") and data.sensor_size == (34, 34)
    events, label = data[-1]
    assert label == 9 and events.tolist() == [(2, 2, 2, 0), (42, 1, 2, 1)]
    assert NMNIST(folders, train=False)[0][0]["t"][0] == 101
    assert "train, 4 samples" in repr(data)


def test_zip_equals_folder(folders, zips):
    for train in (True, False):
        first, second = NMNIST(folders, train), NMNIST(zips, train)
        assert first.files == second.files and torch.equal(first.targets, second.targets)
        assert same(first, second)


def test_lower_case_and_one_split_only(folders, zips, tmp_path):
    (folders / "Train").rename(folders / "train")
    shutil.rmtree(folders / "Test")
    (zips / "Train.zip").rename(tmp_path / "train.zip")
    assert same(NMNIST(folders), NMNIST(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"Test/<class>/<id>\.bin or Test\.zip in it, found train"):
        NMNIST(folders, train=False)


def test_hidden_files_are_ignored_and_foreign_ones_named(folders):
    train = folders / "Train"
    (train / "__MACOSX" / "0").mkdir(parents=True)
    (train / "__MACOSX" / "0" / "._1.bin").write_bytes(b"x")
    (train / "0" / "._00001.bin").write_bytes(b"x")
    (train / ".DS_Store").write_bytes(b"x")
    assert len(NMNIST(folders)) == 4
    (train / "0" / "readme.txt").write_bytes(b"x")
    assert len(NMNIST(folders)) == 4
    (train / "0" / "readme.txt").unlink()
    (train / "0" / "notes.txt").write_bytes(b"x")
    with pytest.warns(UserWarning, match=r"Train/0/notes.txt left out: no .bin files"):
        assert len(NMNIST(folders)) == 4
    # Once, as a command opens its folder for every split.
    assert len(NMNIST(folders)) == 4
    (train / "0" / "notes.txt").unlink()
    root = folders.parent / "mac"
    root.mkdir()
    with zipfile.ZipFile(root / "Train.zip", "w") as file:
        file.writestr("__MACOSX/Train/0/._1.bin", b"x")
        file.writestr("Train/0/.hidden.bin", b"x")
        file.writestr("Train/0/1.bin", recording(1))
    assert NMNIST(root).files == ["Train/0/1.bin"]


def test_validation_split_and_doubled_recordings(tmp_path):
    for digit in "35":
        for number in range(20):
            path = tmp_path / "Train" / digit / f"{digit}{number:04}.bin"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(recording(number))
    parts = {split: NMNIST(tmp_path, split=split) for split in ("train", "val")}
    assert parts["val"].targets.tolist() == [3, 3, 5, 5] and len(parts["train"]) == 36
    assert sorted(parts["train"].files + parts["val"].files) == NMNIST(tmp_path).files
    with pytest.raises(FileNotFoundError, match=r"Test\.zip in it"):
        NMNIST(tmp_path, split="test")
    (tmp_path / "Train" / "3" / "50006.bin").write_bytes(recording(16))
    (tmp_path / "Train" / "3" / "50007.bin").write_bytes(recording(7))
    with pytest.warns(UserWarning, match=r"in several classes: Train/3/50007.bin = Train/5/50007.bin$"):
        NMNIST(tmp_path)


def test_unknown_class_folder(folders):
    (folders / "Train" / "ten").mkdir()
    with pytest.raises(
        EventFileError, match=r"Train/ten: unknown class folder 'ten', expected one of 0, 1, .*9"
    ):
        NMNIST(folders)


def test_recording_outside_class_folders(folders):
    (folders / "Train" / "x.bin").write_bytes(b"")
    with pytest.raises(EventFileError, match=r"x\.bin: expected recordings at"):
        NMNIST(folders)


@pytest.mark.parametrize("name", ["0/1.bin", "Test/0/1.bin", "copy/Train/0/1.bin"])
def test_zip_with_another_layout(tmp_path, name):
    with zipfile.ZipFile(tmp_path / "Train.zip", "w") as file:
        file.writestr(name, recording(1))
    with pytest.raises(
        EventFileError, match=rf"Train\.zip!{name}: expected recordings at Train/<class>/<id>"
    ):
        NMNIST(tmp_path)


def test_no_samples(tmp_path):
    (tmp_path / "Train" / "3").mkdir(parents=True)
    with pytest.raises(EventFileError, match=r"Train.*found none"):
        NMNIST(tmp_path)


def test_missing_root(tmp_path, folders):
    with pytest.raises(
        FileNotFoundError, match=r"nowhere.*Train/<class>/<id>\.bin or Train\.zip.*found nothing"
    ):
        NMNIST(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match="give the folder above it"):
        NMNIST(folders / "Train")


def test_damaged_recording_is_named(folders):
    (folders / "Train/0/00001.bin").write_bytes(recording(1)[:-1])
    with pytest.raises(EventFileError, match=r"00001\.bin: byte offset 5: truncated"):
        NMNIST(folders)[0]
    with pytest.warns(UserWarning, match="found 4 bytes; what was left is not read"):
        assert len(NMNIST(folders, strict=False)[0][0]) == 1


def test_damaged_zip_is_named(zips):
    path = zips / "Train.zip"
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(EventFileError, match=r"Train\.zip: expected a zip file, found \d+ bytes"):
        NMNIST(zips)


def test_damaged_zip_member_is_named(tmp_path):
    with zipfile.ZipFile(tmp_path / "Train.zip", "w") as file:
        file.writestr("Train/0/1.bin", recording(1))
    data = (tmp_path / "Train.zip").read_bytes()
    start = data.index(recording(1))
    (tmp_path / "Train.zip").write_bytes(data[:start] + b"\xff" + data[start + 1 :])
    with pytest.raises(EventFileError, match=r"Train\.zip!Train/0/1\.bin: damaged zip member: Bad CRC"):
        NMNIST(tmp_path)[0]


def test_transforms_and_index_errors(folders):
    data = NMNIST(folders, transform=len, target_transform=str)
    assert data[2] == (2, "4")
    with pytest.raises(IndexError, match=r"index: expected -4..3, got 4"):
        data[4]
    with pytest.raises(TypeError, match="transform: expected a callable or None, got 3"):
        NMNIST(folders, transform=3)


def test_pickle_after_reading_a_zip(zips):
    data = NMNIST(zips)
    data[0]
    assert same(pickle.loads(pickle.dumps(data)), data)


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_zip_with_workers(zips, context):
    data = NMNIST(zips, transform=ToFrames())
    # Opened in this process first: a forked worker must not share this handle.
    expected = stack_time_first([data[i] for i in range(4)])
    loader = DataLoader(data, 2, collate_fn=stack_time_first, num_workers=1, multiprocessing_context=context)
    spikes, labels = zip(*loader, strict=True)
    assert torch.equal(torch.cat(spikes, 1), expected[0]) and torch.equal(torch.cat(labels), expected[1])


def test_real_recordings(nmnist_root):
    train, test = NMNIST(nmnist_root), NMNIST(nmnist_root, train=False)
    assert (len(train), len(test)) == (700, 100)
    counts, last, filled = [], [], []
    to_frames = ToFrames()
    for data in (train, test):
        for events, label in data:
            assert 0 <= label <= 9 and events["x"].max() <= 33 and events["y"].max() <= 33
            counts.append(len(events))
            last.append(events["t"][-1] / 1000)
            filled.append(float(to_frames(events).mean()))
    # 4038 on average (4064 and 3857 by split), as the archives' sizes say: 5 bytes per event.
    sizes = []
    for split in ("Train", "Test"):
        with zipfile.ZipFile(nmnist_root / f"{split}.zip") as file:
            sizes += [
                file.getinfo(name).file_size for name in sorted(file.namelist()) if name.endswith(".bin")
            ]
    assert counts == [size // 5 for size in sizes]
    assert np.mean(counts) == pytest.approx(4038, abs=1) and (min(counts), max(counts)) == (1069, 7152)
    assert min(last) > 296 and max(last) < 337
    assert np.mean(filled) == pytest.approx(0.039, abs=0.0005)


def test_real_recordings_round_trip_bytes(nmnist_root):
    with zipfile.ZipFile(nmnist_root / "Test.zip") as file:
        data = NMNIST(nmnist_root, train=False)
        for index in range(0, 100, 10):
            assert encode_nmnist(data[index][0]) == file.read(data.files[index])


def test_linked_class_folders_are_followed_but_never_in_circles(folders, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    (folders / "Train/4").rename(elsewhere)
    (folders / "Train/4").symlink_to(elsewhere, target_is_directory=True)
    (folders / "Train/9/back").symlink_to(folders / "Train", target_is_directory=True)
    assert NMNIST(folders).targets.tolist() == [0, 0, 4, 9]
    assert NMNIST(folders)[2][0]["t"][0] == 9


def test_encrypted_zip_is_named(zips):
    path = zips / "Train.zip"
    data = bytearray(path.read_bytes())
    # The flag of encryption, in the directory at the end and in the header of each member.
    for mark, offset in ((b"PK\x01\x02", 8), (b"PK\x03\x04", 6)):
        place = data.find(mark)
        while place >= 0:
            data[place + offset] |= 1
            place = data.find(mark, place + 1)
    path.write_bytes(data)
    with pytest.raises(
        EventFileError, match=r"Train\.zip!Train/0/00001\.bin: expected .* without a password"
    ):
        NMNIST(zips)[0]


@pytest.mark.parametrize("honest", [True, False])
def test_zip_bomb_is_refused(folders, tmp_path, monkeypatch, honest):
    monkeypatch.setattr("snnlib.data.sources.LARGEST_FILE", 10_000)
    path = tmp_path / "bomb" / "Train.zip"
    path.parent.mkdir()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("Train/4/00001.bin", bytes(200_000))
    if not honest:
        data = path.read_bytes()
        path.write_bytes(data.replace((200_000).to_bytes(4, "little"), (10).to_bytes(4, "little")))
    message = r"expected a recording of at most .* MiB, got" if honest else "damaged zip member"
    with pytest.raises(EventFileError, match=rf"Train\.zip!Train/4/00001\.bin: {message}"):
        NMNIST(path.parent)[0]


def test_only_regular_files_are_read(folders):
    os.mkfifo(folders / "Train/4/00001.bin")
    with pytest.raises(EventFileError, match=r"4/00001\.bin: expected a regular file"):
        NMNIST(folders)[2]


def test_large_files_are_refused(folders):
    with (folders / "Train/4/00001.bin").open("wb") as file:
        # Sparse: takes no room on the disk.
        file.truncate(2**31)
    with pytest.raises(EventFileError, match=r"expected a recording of at most 64 MiB, got 2048 MiB"):
        NMNIST(folders)[2]
