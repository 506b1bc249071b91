"""Folders of one's own: layouts, formats, splits, and what is wrong with them by name."""

import warnings

import numpy as np
import pytest
from event_files import random_events

from snnlib.data import CropPool, EventFileError, EventFolder, as_events, describe_events, write
from snnlib.data.datasets.splits import split_by_hash

COLUMNS = {"columns": "txyp"}


def put(path, number, format="evt3", sensor_size=(48, 64)):
    path.parent.mkdir(parents=True, exist_ok=True)
    write(path, random_events(30, sensor_size, seed=number), format=format, sensor_size=sensor_size)


@pytest.fixture
def root(tmp_path):
    kinds = ["evt3 raw", "dat dat", "npy npy", "evt2 raw", "aedat3 aedat"]
    for label, name in enumerate(("10", "2", "cat")):
        for number in range(10):
            format, suffix = kinds[number % len(kinds)].split()
            put(tmp_path / name / f"{number}.{suffix}", 100 * label + number, format)
    return tmp_path


def test_a_folder_per_class_with_any_formats(root):
    samples = EventFolder(root, None)
    assert samples.classes == ("2", "10", "cat")
    assert samples.targets.tolist() == [0] * 10 + [1] * 10 + [2] * 10
    assert samples.files[:2] == ["2/0.raw", "2/1.dat"] and samples.sensor_size == (48, 64)
    expected = random_events(30, (48, 64), seed=101)
    expected["t"] -= expected["t"][0]
    events, label = samples[1]
    assert np.array_equal(events, expected) and label == 0
    assert repr(samples).endswith("30 recordings, 3 classes)")


def test_splits_are_apart_complete_and_the_same_again(root):
    parts = {split: EventFolder(root, split) for split in ("train", "val", "test")}
    files = [file for part in parts.values() for file in part.files]
    assert sorted(files) == sorted(EventFolder(root, None).files) and len(set(files)) == 30
    assert [len(part) for part in parts.values()] == [21, 3, 6]
    for part in parts.values():
        assert part.targets.bincount(minlength=3).unique().numel() == 1
    assert EventFolder(root, "test").files == parts["test"].files
    assert EventFolder(root, "test", seed=1).files != parts["test"].files
    assert len(EventFolder(root, "train", test_share=0, val_share=0)) == 30


@pytest.mark.parametrize(
    ("count", "sizes"), [(0, (0, 0)), (1, (0, 0)), (2, (0, 0)), (3, (1, 1)), (20, (4, 2))]
)
def test_small_classes(count, sizes):
    split = split_by_hash([str(number) for number in range(count)], 0.2, 0.1, 0)
    assert (split.count("test"), split.count("val")) == sizes


def test_given_split_folders(tmp_path):
    # A seed of its own for every file: equal files in different splits are warned of.
    seeds = iter(range(100))
    for split, count in (("Train", 8), ("test", 3)):
        for label in ("a", "b"):
            for number in range(count):
                put(tmp_path / split / label / f"{number}.raw", next(seeds))
    sizes = [len(EventFolder(tmp_path, split)) for split in ("train", "val", "test")]
    assert sizes == [14, 2, 6]
    assert all(file.startswith("test/") for file in EventFolder(tmp_path, "test").files)
    # A further folder does not make classes "Train" and "test" of them.
    put(tmp_path / "extra" / "a.raw", next(seeds))
    with pytest.warns(UserWarning, match="extra/ left out"):
        assert EventFolder(tmp_path, "test").classes == ("a", "b")


def test_a_table(tmp_path):
    rows = ["file,label,split"]
    for number in range(12):
        put(tmp_path / f"r{number}.raw", number)
        rows.append(f"r{number}.raw,{'up' if number % 2 else 'down'},{'test' if number < 4 else ''}")
    (tmp_path / "labels.csv").write_text("\n".join(rows))
    test = EventFolder(tmp_path, "test")
    assert test.files == ["r0.raw", "r2.raw", "r1.raw", "r3.raw"] and test.classes == ("down", "up")
    assert len(EventFolder(tmp_path, "val")) == 2
    for line, error, text in (
        ("r0.raw,up,test", EventFileError, "line 14: r0.raw is already in line 2"),
        ("r9.dat,up,", FileNotFoundError, "line 14: expected the file .*r9.dat, found none"),
        ("x.raw,,", EventFileError, "line 14: expected a file, a label and perhaps train, val or test"),
        ("x.raw,up,dev", EventFileError, "line 14: expected a file"),
    ):
        (tmp_path / "bad.csv").write_text("\n".join([*rows, line]))
        with pytest.raises(error, match=text):
            EventFolder(tmp_path, table="bad.csv")
    with pytest.raises(
        FileNotFoundError, match=r"table .* expected a CSV file with the columns file and label"
    ):
        EventFolder(tmp_path, table="none.csv")


def test_foreign_doubled_and_missing_files_are_named(root):
    (root / "cat" / "photo.jpg").write_bytes(b"no events")
    (root / "notes.pdf").write_bytes(b"")
    (root / "cat" / "README.txt").write_text("words")
    (root / "cat" / ".hidden").write_text("")
    (root / "dog").mkdir()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert len(EventFolder(root, None)) == 30
    texts = [str(warning.message) for warning in caught]
    assert any("cat/photo.jpg, notes.pdf left out" in text for text in texts), "and no README"
    assert any("dog: class folders without recordings" in text for text in texts) and len(texts) == 2
    # Once: a command opens its folder for every split.
    assert len(EventFolder(root, None)) == 30
    for path in (root / "cat" / "photo.jpg", root / "notes.pdf", root / "cat" / "README.txt"):
        path.unlink()
    (root / "dog").rmdir()
    (root / "cat" / "copy.raw").write_bytes((root / "2" / "0.raw").read_bytes())
    with pytest.warns(UserWarning, match=r"files of equal content: 2/0.raw = cat/copy.raw"):
        EventFolder(root, None)


def test_links_are_followed_but_never_in_circles(root, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    put(elsewhere / "far.raw", 999)
    (root / "cat" / "linked").symlink_to(elsewhere)
    (root / "cat" / "loop").symlink_to(root / "cat")
    assert "cat/linked/far.raw" in EventFolder(root, None).files and len(EventFolder(root, None)) == 31


def test_clear_errors(tmp_path, root):
    with pytest.raises(FileNotFoundError, match="expected a folder of event files, found nothing there"):
        EventFolder(tmp_path / "none")
    with pytest.raises(EventFileError, match="expected event files in one folder per class"):
        EventFolder(tmp_path / "2")
    with pytest.raises(
        ValueError, match=r"test_share: expected a share in 0..1, both together below 1, got 0.95"
    ):
        EventFolder(root, test_share=0.95)
    (root / "2" / "0.raw").write_bytes(b"% evt 3.0\n\x00")
    with pytest.raises(EventFileError, match=r"2.0.raw: byte offset 10: truncated"):
        EventFolder(root, None, strict=True)[0]


def test_crop_pool():
    transform = CropPool((10, 20, 5, 7), 3)
    assert transform.output_size == (2, 3)
    events = as_events([0, 1, 2, 3], [20, 26, 27, 19], [10, 14, 10, 12], [1, 0, 1, 1])
    assert transform(events).tolist() == [(0, 0, 0, 1), (1, 2, 1, 0)]
    assert events["x"].tolist() == [20, 26, 27, 19]
    with pytest.raises(ValueError, match=r"box\[2\] .height.: expected an integer in 1..32768, got 0"):
        CropPool((0, 0, 0, 3))
    with pytest.raises(TypeError, match=r"box: expected \(top, left, height, width\), got 3"):
        CropPool(3)


def test_statistics_find_hot_pixels():
    events = random_events(5000, (20, 20), last_us=1_000_000)
    hot = np.zeros(600, events.dtype)
    hot["t"], hot["x"], hot["y"] = np.linspace(0, 1_000_000, 600), 7, 3
    found = describe_events(np.sort(np.concatenate([events, hot]), order="t", kind="stable"))
    assert found.events == 5600 and [pixel[:2] for pixel in found.hot_pixels] == [(7, 3)]
    assert sum(found.rate) / 20 == pytest.approx(5600 / (found.duration_us / 1e6))
    assert describe_events(events[:0]).events == 0


def test_options_go_to_the_formats_that_have_them(root):
    """Plain `[E, 4]` arrays, which cannot be read without columns, beside formats that know no columns."""
    for path in root.rglob("*.npy"):
        events = np.load(path)
        np.save(path, np.stack([events[field].astype(np.int64) for field in "txyp"], 1))
    for options in (COLUMNS, {".npy": COLUMNS}, {"outside": "error", **COLUMNS}):
        samples = EventFolder(root, None, read_options=options)
        place = samples.files.index("10/2.npy")
        expected = random_events(30, (48, 64), seed=2)
        expected["t"] -= expected["t"][0]
        assert np.array_equal(samples[place][0], expected) and samples.sensor_size == (48, 64)
        assert [len(samples[index][0]) for index in range(len(samples))] == [30] * 30
    assert samples.options_of("10/0.raw") == {"outside": "error"}
    for options, message in (
        ({"colums": "txyp"}, "colums: expected an option of a format \\(.*columns.*\\), got another"),
        (
            {"group": "spikes"},
            r"group: expected files of a format with this option \(mat, hdf5\), got none of",
        ),
        ({".csv": COLUMNS}, r".csv: expected a suffix of the files \(.aedat, .dat, .npy, .raw\)"),
        ({".npy": "txyp"}, ".npy: expected options by name for this suffix, got 'txyp'"),
    ):
        with pytest.raises(TypeError, match=message):
            EventFolder(root, read_options=options)
