"""Small fake copies of published data sets in their layouts: labels, splits, and what is missing by name."""

import os
import pickle
import shutil
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from event_files import encoded, random_events
from small_sets import write_wav

from snnlib.data import (
    ASLDVS,
    CIFAR10DVS,
    ECG,
    NTIDIGITS,
    SHD,
    SSC,
    DVSGesture,
    EventFileError,
    NCaltech101,
    NCars,
    SpokenDigits,
    YinYang,
    as_events,
    write,
)


def sizes(kind, *arguments, **options):
    return [len(kind(*arguments, split=split, **options)) for split in ("train", "val", "test")]


def test_ncaltech101(tmp_path):
    for label in ("BACKGROUND_Google", "accordion"):
        (tmp_path / "Caltech101" / label).mkdir(parents=True)
        for number in range(10):
            events = random_events(60, (100 + number, 200), seed=number + 50 * len(label))
            write(tmp_path / "Caltech101" / label / f"image_{number:04}.bin", events, sensor_size=(120, 256))
    samples = NCaltech101(tmp_path, None)
    assert samples.classes == ("BACKGROUND_Google", "accordion") and 190 < samples.sensor_size[1] <= 200
    assert sizes(NCaltech101, tmp_path) == [14, 2, 4]
    with pytest.raises(FileNotFoundError, match=r"found nothing there; fetch Caltech101.zip"):
        NCaltech101(tmp_path / "none")


def test_cifar10_dvs_splits_by_number(tmp_path):
    for label in ("cat", "dog"):
        (tmp_path / label).mkdir()
        for number in range(20):
            events = random_events(30, (128, 128), seed=number + 100 * ord(label[0]))
            write(
                tmp_path / label / f"cifar10_{label}_{number}.aedat",
                events,
                format="aedat2",
                sensor_size=(128, 128),
            )
    test = CIFAR10DVS(tmp_path, "test")
    assert [Path(file).stem for file in test.files[:2]] == ["cifar10_cat_18", "cifar10_cat_19"]
    assert test.targets.tolist() == [0, 0, 1, 1] and test.sensor_size == (128, 128)
    assert [Path(file).stem[-2:] for file in CIFAR10DVS(tmp_path, "val").files[:2]] == ["16", "17"]
    assert sizes(CIFAR10DVS, tmp_path) == [32, 4, 4]
    expected = random_events(30, (128, 128), seed=18 + 100 * ord("c"))
    expected["t"] -= expected["t"][0]
    assert np.array_equal(test[0][0], expected)
    (tmp_path / "zebra").mkdir()
    write(tmp_path / "zebra" / "1.npy", random_events(3))
    with pytest.raises(EventFileError, match="expected classes of CIFAR10DVS only, found zebra; fetch"):
        CIFAR10DVS(tmp_path)


def test_asl_dvs(tmp_path):
    scipy_io = pytest.importorskip("scipy.io")
    for label in "ay":
        (tmp_path / label).mkdir()
        for number in range(1, 11):
            events = random_events(20, (180, 240), seed=number + 100 * ord(label))
            columns = {"ts": events["t"], "x": events["x"] + 1, "y": events["y"] + 1, "pol": events["p"]}
            path = tmp_path / label / f"{label}_{number:04}.mat"
            scipy_io.savemat(path, {name: column.reshape(-1, 1) for name, column in columns.items()})
    test = ASLDVS(tmp_path, "test")
    assert [Path(file).stem for file in test.files] == ["a_0009", "a_0010", "y_0009", "y_0010"]
    assert sizes(ASLDVS, tmp_path) == [14, 2, 4] and test.sensor_size == (180, 240)
    expected = random_events(20, (180, 240), seed=9 + 100 * ord("a"))
    expected["t"] -= expected["t"][0]
    assert np.array_equal(test[0][0], expected) and test[0][1] == 0 and test[3][1] == 1
    (tmp_path / "j").mkdir()
    shutil.copy(tmp_path / "a" / "a_0001.mat", tmp_path / "j" / "j_0001.mat")
    with (
        pytest.raises(EventFileError, match="expected classes of ASLDVS only, found j; fetch ICCV2019"),
        pytest.warns(UserWarning, match="files of equal content: a/a_0001.mat = j/j_0001.mat"),
    ):
        ASLDVS(tmp_path)


def test_ntidigits(tmp_path):
    h5py = pytest.importorskip("h5py")
    names = {"train": ["man-ac-1-a", "man-ac-z-b", "man-bd-o-a", "woman-xy-12z-a", "woman-xy-9-b"]}
    names["test"] = ["man-zz-3-a", "man-zz-45-a"]
    with h5py.File(tmp_path / "n-tidigits.hdf5", "w") as file:
        for part, members in names.items():
            for number, name in enumerate(members):
                file[f"{part}_timestamps/{name}"] = np.array([1.5, 1.45 + 0.001 * number])
                file[f"{part}_addresses/{name}"] = np.array([63, number])
    train, val, test = (NTIDIGITS(tmp_path, split) for split in ("train", "val", "test"))
    assert train.files == ["man-ac-1-a", "man-ac-z-b", "man-bd-o-a"] and train.targets.tolist() == [1, 0, 10]
    assert (
        val.files == ["woman-xy-9-b"] and set(val.speakers) == {"woman-xy"} and test.targets.tolist() == [3]
    )
    events, label = pickle.loads(pickle.dumps(train))[1]
    assert events.tolist() == [(0, 1, 0, 1), (49_000, 63, 0, 1)] and label == 0
    connected = NTIDIGITS(tmp_path, "val", connected=True)
    assert [connected[k][1].tolist() for k in range(2)] == [[1, 2, 0], [9]]
    # The file itself is open.
    other = tmp_path / "other.hdf5"
    shutil.copy(tmp_path / "n-tidigits.hdf5", other)
    with h5py.File(other, "a") as file:
        for kind in ("timestamps", "addresses"):
            file[f"train_{kind}/notes"] = np.array([1.0])
            file[f"test_{kind}/man-ac-1-a"] = np.array([1.0])
    with pytest.warns(UserWarning) as caught:
        NTIDIGITS(other)
    said = " ".join(str(warning.message) for warning in caught)
    assert "notes left out: no names" in said and "in the training and in the test set: man-ac-1-a" in said
    with h5py.File(tmp_path / "third.hdf5", "w") as file:
        for name in ("train_timestamps/a", "train_addresses/b", "test_timestamps/a", "test_addresses/a"):
            file[name] = np.array([1.0])
    with pytest.raises(EventFileError, match="times and addresses of each recording, lacks one of a, b"):
        NTIDIGITS(tmp_path / "third.hdf5")
    with pytest.raises(FileNotFoundError, match="expected the file of N-TIDIGITS, found none; fetch"):
        NTIDIGITS(tmp_path / "none")


def test_ncars(tmp_path):
    for split, count in (("train", 10), ("test", 4)):
        for label in ("cars", "background"):
            (tmp_path / split / label).mkdir(parents=True)
            for number in range(count):
                seed = number + 20 * (label == "cars") + 40 * (split == "test")
                write(
                    tmp_path / split / label / f"obj_{number:06}_td.dat",
                    random_events(20, (50, 60), seed=seed),
                )
    assert sizes(NCars, tmp_path) == [18, 2, 8] and NCars(tmp_path).classes == ("background", "cars")


@pytest.fixture
def gestures(tmp_path):
    folder = tmp_path / "DvsGesture"
    folder.mkdir()
    events = as_events(
        np.arange(0, 10_000, 10), np.arange(1000) % 128, np.zeros(1000, int), np.ones(1000, int)
    )
    events["t"] += 77_000
    lists = {"train": [f"user{number:02}_led.aedat" for number in range(1, 17)], "test": ["user24_led.aedat"]}
    for split, names in lists.items():
        (folder / f"trials_to_{split}.txt").write_text("\n".join([*names, ""]))
        for name in names:
            (folder / name).write_bytes(encoded("aedat3", events, (128, 128)))
            rows = ["class,startTime_usec,endTime_usec", "1,77100,77200", "11,78000,79000", "1,78500,80000"]
            (folder / name.replace(".aedat", "_labels.csv")).write_text("\n".join(rows))
    return tmp_path


def test_dvs_gesture_as_published(gestures):
    assert sizes(DVSGesture, gestures) == [14 * 3, 2 * 3, 3]
    test = DVSGesture(gestures, "test")
    assert test.targets.tolist() == [0, 10, 0] and test.classes[10] == "other gestures"
    assert [len(test[index][0]) for index in range(3)] == [10, 100, 150]
    assert test[1][0]["t"].tolist() == list(range(0, 1000, 10)) and test[1][0]["x"][0] == 100
    assert {path.name[:6] for path, _, _ in DVSGesture(gestures, "val")._samples} == {"user15", "user16"}
    (gestures / "DvsGesture" / "user24_led_labels.csv").write_text(
        "class,startTime_usec,endTime_usec\n12,1,2\n"
    )
    with pytest.raises(EventFileError, match=r"line 2: expected a class in 1..11 and rising times"):
        DVSGesture(gestures, "test")
    (gestures / "DvsGesture" / "user24_led.aedat").unlink()
    with pytest.raises(FileNotFoundError, match=r"user24_led.aedat: expected a recording that the list"):
        DVSGesture(gestures, "test")
    with pytest.raises(FileNotFoundError, match=r"expected trials_to_train.txt or ibmGestureTrain/ in it"):
        DVSGesture(gestures / "none")


def test_dvs_gesture_as_exported(tmp_path):
    for split, users in (("Train", range(1, 9)), ("Test", (24,))):
        for user in users:
            folder = tmp_path / f"ibmGesture{split}" / f"user{user:02}_lab"
            folder.mkdir(parents=True)
            for label in (0, 2, 10):
                np.save(folder / f"{label}.npy", np.array([[3.0, 4, 1, 100.5], [5, 6, 0, 101.25]]))
    assert sizes(DVSGesture, tmp_path) == [21, 3, 3]
    events, label = DVSGesture(tmp_path, "test")[2]
    assert events.tolist() == [(0, 3, 4, 1), (750, 5, 6, 0)] and label == 10


def fake_shd(path, labels, speakers=None, keys=None):
    h5py = pytest.importorskip("h5py")
    with h5py.File(path, "w") as file:
        kinds = {"times": h5py.vlen_dtype(np.float16), "units": h5py.vlen_dtype(np.uint16)}
        for name, kind in kinds.items():
            data = file.create_dataset(f"spikes/{name}", (len(labels),), kind)
            for number in range(len(labels)):
                data[number] = [0.25, 0.1875 + 0.03125 * number] if name == "times" else [699, number]
        file["labels"] = np.array(labels, np.uint8)
        if speakers is not None:
            file["extra/speaker"] = np.array(speakers)
        if keys is not None:
            file["extra/keys"] = np.array(keys, "S")


def test_shd(tmp_path):
    fake_shd(
        tmp_path / "shd_train.h5", [0, 19, 3, 4], [1, 5, 1, 2], [f"word{number}" for number in range(20)]
    )
    fake_shd(tmp_path / "shd_test.h5", [7], [4])
    assert sizes(SHD, tmp_path) == [3, 1, 1]
    train, test = SHD(tmp_path), SHD(tmp_path, "test")
    assert train.targets.tolist() == [0, 3, 4]
    assert train.classes[19] == "word19"
    assert test.classes[7] == "English 7"
    assert SHD(tmp_path, "val").speakers.tolist() == [5]
    events, label = pickle.loads(pickle.dumps(train))[1]
    assert events.tolist() == [(250_000, 699, 0, 1), (250_000, 2, 0, 1)] and label == 3
    for folder, labels in (("unnamed", [0] * 20), ("wrong", [20])):
        (tmp_path / folder).mkdir()
        fake_shd(tmp_path / folder / "shd_train.h5", labels)
    assert [len(SHD(tmp_path / "unnamed", split)) for split in ("train", "val")] == [18, 2]
    with pytest.raises(EventFileError, match=r"expected as many labels in 0..19 as samples"):
        SHD(tmp_path / "wrong")
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "shd_train.h5").write_bytes(b"\x89HDF\r\n\x1a\n damaged")
    with pytest.raises(EventFileError, match="found another or a damaged file"):
        SHD(tmp_path / "damaged")


def test_shd_damaged(tmp_path):
    path = tmp_path / "shd_train.h5"
    fake_shd(path, [0, 19, 3, 4], [1, 5, 1, 2])
    data = path.read_bytes()
    # A length of 2^31 spikes: refused before memory is taken.
    with pytest.importorskip("h5py").File(path) as file:
        place = file["spikes/units"].id.get_offset()
    path.write_bytes(data[: place + 3] + b"\x80" + data[place + 4 :])
    with pytest.raises(
        EventFileError, match=r"sample 0: /spikes/units: no element of 4294967300 bytes in the heap"
    ):
        SHD(tmp_path)[0]
    # A heap whose objects lead back to themselves: the HDF5 library walks through it for ever.
    heap = data.index(b"GCOL")
    size = int.from_bytes(data[heap + 24 : heap + 32], "little")
    assert size == 4
    path.write_bytes(
        data[: heap + 16]
        + b"\x09\0"
        + data[heap + 18 : heap + 24]
        + bytes([240] + 7 * [255])
        + data[heap + 32 :]
    )
    with pytest.raises(EventFileError, match="no element of 4 bytes in the heap at byte"):
        SHD(tmp_path)[0]
    rng, clear = np.random.default_rng(7), 0
    for _ in range(int(os.environ.get("SNNLIB_MUTATIONS", "60"))):
        broken = bytearray(data)
        for changed in rng.integers(0, len(data), rng.integers(1, 5)):
            broken[changed] = rng.integers(0, 256)
        path.write_bytes(broken)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)
                samples = SHD(tmp_path)
                for number in range(len(samples)):
                    samples[number]
        except EventFileError as error:
            assert str(path) in str(error)
            clear += 1
    assert clear > 0


def test_ssc(tmp_path):
    for part, count in (("train", 4), ("valid", 2), ("test", 3)):
        fake_shd(tmp_path / f"ssc_{part}.h5", [34] * count)
    assert sizes(SSC, tmp_path) == [4, 2, 3]
    with pytest.raises(
        FileNotFoundError,
        match=r"ssc_train.h5: expected a file of SSC, found none; download=True downloads it, or fetch it from",
    ):
        SSC(tmp_path / "none")


def test_ecg(tmp_path):
    scipy_io = pytest.importorskip("scipy.io")
    rng = np.random.default_rng(0)
    x = (rng.random((20, 1301, 4)) < 0.08).astype(np.int16)
    x[:, 1300, 0] = -1
    y = np.zeros((20, 1301, 6), np.uint8)
    y[:, 100:, 2] = 1
    scipy_io.savemat(tmp_path / "QTDB_train.mat", {"x": x, "y": y})
    assert sizes(ECG, tmp_path) == [14, 2, 4]
    spikes, labels = ECG(tmp_path)[3]
    assert torch.equal(spikes, torch.from_numpy(x[3, :1300]).float())
    assert labels[:100].unique().tolist() == [-1] and labels[100:].unique().tolist() == [2]
    mixed = [ECG(tmp_path, split, apart="sequences").spikes for split in ("train", "val", "test")]
    assert [len(part) for part in mixed] == [14, 2, 4]
    drawn, blocks = torch.cat(mixed).flatten(1), torch.from_numpy(x[:, :1300]).flatten(1)
    assert not torch.equal(drawn, blocks)
    assert sorted(map(tuple, drawn.tolist())) == sorted(map(tuple, blocks.tolist()))
    with pytest.raises(ValueError, match="apart: expected one of blocks, sequences, got 'patients'"):
        ECG(tmp_path, apart="patients")
    scipy_io.savemat(tmp_path / "QTDB_test.mat", {"x": x[:5], "y": y[:5]})
    assert sizes(ECG, tmp_path) == [18, 2, 5]
    scipy_io.savemat(tmp_path / "QTDB_test.mat", {"x": x[:5, :, :3], "y": y[:5]})
    with pytest.raises(EventFileError, match=r"expected x \[S, 1301, 4\] and y \[S, 1301, 6\], found"):
        ECG(tmp_path, "test")
    with pytest.raises(FileNotFoundError, match=r"expected a file of the ECG data, found none; fetch"):
        ECG(tmp_path / "none")


def test_spoken_digits(tmp_path):
    folder = tmp_path / "recordings"
    folder.mkdir()
    for digit in range(3):
        for speaker in ("anna", "bert", "cleo"):
            for number in range(2):
                write_wav(folder / f"{digit}_{speaker}_{number}.wav", [digit, -32768, 16384])
    assert sizes(SpokenDigits, tmp_path) == [6, 6, 6]
    test = SpokenDigits(tmp_path, "test")
    assert set(test.speakers) == {"cleo"}
    assert test.targets.tolist() == [0, 0, 1, 1, 2, 2]
    assert test.sample_rate == 8000
    waveform, label = test[4]
    assert waveform.tolist() == [2 / 32768, -1.0, 0.5] and label == 2
    assert sizes(SpokenDigits, tmp_path, test_speakers=["anna"], val_speakers=["bert"]) == [6, 6, 6]
    assert set(SpokenDigits(tmp_path, "train", fold=1).speakers) == {"anna", "cleo"}
    assert set(SpokenDigits(tmp_path, "test", fold=1).speakers) == {"bert"}
    with pytest.raises(ValueError, match=r"fold: expected an integer in 0\.\.2, got 3"):
        SpokenDigits(tmp_path, fold=3)
    with pytest.raises(ValueError, match="test_speakers: expected speakers among anna, bert, cleo, got dora"):
        SpokenDigits(tmp_path, test_speakers=["dora"])
    (folder / "notes.txt").write_text("by whom")
    with pytest.warns(UserWarning, match="notes.txt left out: no names of recordings"):
        SpokenDigits(tmp_path)
    (folder / "notes.txt").unlink()
    with zipfile.ZipFile(tmp_path / "copy.zip", "w") as archive:
        for path in folder.iterdir():
            archive.write(path, f"recordings/{path.name}")
    assert torch.equal(SpokenDigits(tmp_path / "copy.zip", "test")[4][0], waveform)
    write_wav(folder / "2_cleo_0.wav", [1], rate=16000)
    with pytest.raises(EventFileError, match="expected 8000 samples a second, found 16000"):
        SpokenDigits(tmp_path, "test")[4]
    (folder / "2_cleo_0.wav").write_bytes(b"RIFF")
    with pytest.raises(EventFileError, match="byte offset 0: expected a WAV file"):
        SpokenDigits(tmp_path, "test")[4]


def yin_yang_labels(points):
    """Whole discs painted one over the other: the halves, their two bulges, the dots."""
    x, y = points[:, 0], points[:, 1]
    labels = (y > 0.5).long()
    labels[torch.hypot(x - 0.25, y - 0.5) <= 0.25] = 1
    labels[torch.hypot(x - 0.75, y - 0.5) <= 0.25] = 0
    for center in (0.25, 0.75):
        labels[torch.hypot(x - center, y - 0.5) < 0.1] = 2
    return labels


def test_yin_yang():
    fresh = YinYang(size=3000, seed=5, dtype=torch.float64)
    x, y, _, _ = fresh.samples.T
    assert torch.equal(fresh.samples[:, 2:], 1 - fresh.samples[:, :2])
    assert (torch.hypot(x - 0.5, y - 0.5) <= 0.5).all()
    assert torch.equal(fresh.targets, yin_yang_labels(fresh.samples))
    # Five standard errors of a third of 3000.
    assert (fresh.targets.bincount() - 1000).abs().max() < 5 * (3000 * 2 / 9) ** 0.5
    assert [len(YinYang(split)) for split in ("train", "val", "test")] == [5000, 1000, 1000]
    sample, label = YinYang("val", lambda point: 2 * point, str)[-1]
    val = YinYang("val")
    assert torch.equal(sample, 2 * val.samples[-1]) and label == str(int(val.targets[-1]))
    assert val.samples.dtype == torch.float32 and pickle.loads(pickle.dumps(val))[3][1] == val[3][1]
    assert not torch.equal(YinYang(size=10, seed=1).samples, YinYang(size=10, seed=2).samples)
    for options, error in (
        ({"split": "tests"}, "split: expected one of"),
        ({"size": 0}, "size: expected an integer >= 1, got 0"),
        ({"seed": 2**32}, "seed: expected an integer in 0..4294967295"),
    ):
        with pytest.raises(ValueError, match=error):
            YinYang(**options)
    with pytest.raises(TypeError, match=r"dtype: expected a floating torch dtype, got torch.int64"):
        YinYang(dtype=torch.int64)


def real(name):
    path = Path(os.environ.get("SNNLIB_DATA", "")) / name
    if not os.environ.get("SNNLIB_DATA") or not path.is_dir():
        pytest.skip(f"SNNLIB_DATA holds no {name}")
    return path


def test_real_ecg():
    pytest.importorskip("scipy")
    root = real("ecg_qtdb")
    assert sizes(ECG, root) == [432, 62, 124]
    train = ECG(root)
    assert train.spikes.shape == (432, 1300, 4)
    assert train.spikes.float().mean().item() == pytest.approx(0.078, abs=3e-3)
    assert (train.labels < 0).float().mean().item() == pytest.approx(0.08, abs=0.02)


def test_real_spoken_digits():
    root = real("spoken_digits")
    assert sizes(SpokenDigits, root) == [1000, 500, 500]
    test = SpokenDigits(root, "test")
    assert set(test.speakers) == {"nicolas"} and test.targets.bincount().tolist() == [50] * 10
    assert test.sample_rate == 8000 and 0.05 < test[0][0].abs().max() <= 1


@pytest.mark.parametrize(("split", "name"), [("train", "train"), ("val", "validation"), ("test", "test")])
def test_real_yin_yang(split, name):
    root = real("yin_yang")
    points, labels = (
        torch.from_numpy(np.load(root / f"{name}_{what}.npy")) for what in ("samples", "labels")
    )
    assert torch.equal(yin_yang_labels(points), labels)
    made = YinYang(split, dtype=torch.float64)
    assert torch.equal(made.samples, points) and torch.equal(made.targets, labels)
