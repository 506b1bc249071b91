"""`snnlib train --data folder`: settings from the recordings, training, resume, evaluation, clear errors."""

import re
import shutil
import warnings

import numpy as np
import pytest
from command import done, metrics, refused, run
from event_files import random_events

from snnlib import load
from snnlib.app.errors import ConfigError
from snnlib.app.kinds import KINDS
from snnlib.app.training import TrainConfig
from snnlib.app.training.data_module import EventData
from snnlib.data import EventFolder, write


def choose(root, **given):
    return KINDS["folder"].choose({"root": str(root), **given})


def facts(crop):
    config = TrainConfig(crop=crop)
    return config.data.kind.facts(config)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Three classes that light up another third of a 90 x 120 sensor, in three formats, 80 ms, camera clocks."""
    root = tmp_path_factory.mktemp("own")
    for label, name in enumerate(("left", "middle", "right")):
        for number in range(10):
            events = random_events(1200, (90, 40), last_us=80_000, seed=100 * label + number)
            events["x"] += 40 * label
            events["t"] += 10_000_000 * number
            format = ("evt3", "aedat3", "evt2")[number % 3]
            path = root / name / f"{number}{'.aedat' if format == 'aedat3' else '.raw'}"
            path.parent.mkdir(exist_ok=True)
            write(path, events, format=format, sensor_size=(90, 120))
    return root


def test_settings_follow_from_the_recordings(root):
    choice = choose(root)
    config = TrainConfig(data="folder", root=str(root), **choice.settings)
    assert (config.data.time_steps, config.data.step_ms, config.data.overflow) == (30, 2.7, "drop")
    # Every class lies in another third of the sensor; all are kept.
    assert config.data.crop_box[2] >= 88
    assert config.data.crop_box[3] >= 117
    assert config.data.pool == 4
    assert config.net.net.endswith("-3")
    assert config.learning.val_split == 0.1
    assert any("2.7" in reason and "80" not in config.net.net for reason in choice.reasons)
    given = choose(root, step_ms=10.0, pool=6, batch_size=4)
    assert given.settings["time_steps"] == 8 and not {"step_ms", "pool", "batch_size"} & set(given.settings)


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"epochs": 8},
        {"epochs": 3, "batch_size": 7},
        {"val_split": 0.0},
        {"net": "4C3-3", "crop": "40x40+0+0"},
    ],
    ids=str,
)
def test_reasons_tell_the_run_that_is_asked_for(root, asked):
    choice = choose(root, **asked)
    batch, epochs, held = (
        asked.get(name, choice.settings.get(name)) for name in ("batch_size", "epochs", "val_split")
    )
    (said,) = (
        reason for reason in choice.reasons if reason.startswith(f"batch_size {batch}, epochs {epochs}: ")
    )
    steps = epochs * len(EventFolder(root, "train", val_share=held)) / batch
    # Samples are held out by a hash; the last batch of an epoch may be small.
    assert 0.8 * steps <= int(said.split("about ")[1].split()[0]) <= 1.2 * steps + epochs
    assert ("the recipe takes 450" in said) == ("epochs" not in asked)
    for name in asked.keys() - {"batch_size", "epochs"}:
        assert not any(reason.startswith(f"{name} ") for reason in choice.reasons)


@pytest.mark.parametrize("table", [False, True])
def test_sets_are_those_of_the_folder(root, tmp_path, table):
    shutil.copytree(root, tmp_path, dirs_exist_ok=True)
    if table:
        splits = ["val", "val", "test", *["train"] * 7]
        rows = [f"{label}/{n}" for label in ("left", "middle", "right") for n in range(10)]
        names = [next(tmp_path.glob(f"{row}.*")).relative_to(tmp_path).as_posix() for row in rows]
        lines = [f"{name},{name.split('/')[0]},{splits[i % 10]}" for i, name in enumerate(names)]
        (tmp_path / "labels.csv").write_text("\n".join(["file,label,split", *lines]))
    config = TrainConfig(data="folder", root=str(tmp_path), **choose(tmp_path).settings)
    data = EventData(config, progress=False)
    data.setup("fit")
    for split, own in (("train", data.train_set), ("val", data.val_set), ("test", data.test_set)):
        assert own.dataset.files == EventFolder(tmp_path, split).files


@pytest.mark.usefixtures("undrawn")
def test_readers_get_their_options(tmp_path, capsys):
    """Text without a header, times in seconds since 1970, polarities -1 and 1."""
    generator = np.random.default_rng(0)
    for name, left in (("left", 0), ("right", 20)):
        for number in range(8):
            t = 1.8e9 + np.sort(generator.random(200)) / 5
            x, y = left + generator.integers(0, 20, 200), generator.integers(0, 30, 200)
            p = generator.choice([-1, 1], 200)
            (tmp_path / "data" / name).mkdir(parents=True, exist_ok=True)
            rows = zip(t, x, y, p, strict=True)
            text = "\n".join(f"{row[0]:.6f},{row[1]},{row[2]},{row[3]}" for row in rows)
            (tmp_path / "data" / name / f"{number}.csv").write_text(text)
    run_folder = tmp_path / "run"
    said = ["unit=s", "columns=txyp", "polarity=signed", "sensor_size=32x40"]
    options = [word for text in said for word in ("--reader-options", text)]
    command = ["train", "--data", "folder", "--root", tmp_path / "data", "--out", run_folder]
    small = ["--epochs", 1, "--threads", 1, "--net", "2C5s4-P2-2"]
    out = done(capsys, *command, *options, *small)
    assert TrainConfig.load(run_folder / "config.json").data.reader_options == said
    code, out, err = run(capsys, "predict", run_folder, tmp_path / "data" / "left" / "3.csv")
    assert code == 0 and len(out.splitlines()) == 2 and not err
    err = refused(capsys, "train", "--data", "nmnist", "--root", tmp_path, "--reader-options", "unit=s")
    assert "--reader-options: expected none for nmnist, which has no event files" in err
    # A recording of another format, which has no such options.
    write(
        tmp_path / "other.raw",
        random_events(99, (32, 40), last_us=150_000),
        format="evt3",
        sensor_size=(32, 40),
    )
    code, out, err = run(capsys, "predict", run_folder, tmp_path / "other.raw")
    assert code == 0 and len(out.splitlines()) == 2 and not err
    err = refused(capsys, *command[:-2], *options, "--reader-options", "group=spikes")
    assert "--reader-options: group: expected files of a format with this option (mat, hdf5)" in err
    err = refused(capsys, *command[:-2], "--reader-options", "unit")
    assert "--reader-options: expected NAME=VALUE, got 'unit'" in err


@pytest.mark.usefixtures("undrawn")
def test_train_resume_and_eval(root, tmp_path, capsys):
    folder = tmp_path / "run"
    options = ["--epochs", 8, "--threads", 1, "--net", "4C5s2-P2-3", "--batch-size", 4]
    out = done(capsys, "train", "--data", "folder", "--root", root, "--out", folder, *options)
    for text in (
        "chosen for these data:",
        "3 classes: left, middle, right",
        "time_steps 30, step_ms 2.7",
    ):
        assert text in out
    assert (folder / "report.html").is_file() and "middle" in (folder / "report.html").read_text()
    rows = metrics(folder)
    assert float(rows[-1]["test_accuracy"]) >= 0.8
    before = TrainConfig.load(folder / "config.json")
    out = done(capsys, "train", "--resume", folder, "--threads", 1)
    assert TrainConfig.load(folder / "config.json") == before
    out = done(capsys, "eval", folder)
    assert "middle" in out
    net, transform, classes = load(folder)
    events = random_events(1200, (90, 40), last_us=80_000, seed=7)
    assert classes == ("left", "middle", "right") and transform(events).shape[:2] == (30, 2)
    assert net(transform(events).unsqueeze(1)).shape[1:] == (1, 3)
    write(tmp_path / "new.raw", events, format="evt3", sensor_size=(90, 120))
    out = done(capsys, "predict", folder, tmp_path / "new.raw")
    assert "left" in out


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            ("--root", "nowhere"),
            "--root: root 'nowhere': expected a folder of event files, found nothing there",
        ),
        ((), "--root: expected the folder of the recordings for data folder, got none"),
    ],
)
def test_clear_errors(arguments, text, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    err = refused(capsys, "train", "--data", "folder", *arguments)
    assert text in err and not (tmp_path / "runs").exists()


def test_one_class_is_refused(root):
    with pytest.raises(ConfigError, match=r"root: .*expected event files in one folder per class"):
        choose(root / "left")


def test_wrong_crop():
    with pytest.raises(ConfigError, match=r"crop: expected WIDTHxHEIGHT\+LEFT\+TOP in pixels, got '3x'"):
        TrainConfig(crop="3x")
    assert TrainConfig(crop="30x20+4+5").data.crop_box == (5, 4, 20, 30)
    for crop in ("400x400+0+0", "30x34+5+0"):
        with pytest.raises(
            ConfigError, match=rf"crop: expected a part of the sensor of 34x34 pixels, got {re.escape(crop)}"
        ):
            facts(crop)
    assert facts("30x34+4+0").input_shape == (2, 34, 30)


@pytest.mark.usefixtures("undrawn")
def test_a_test_set_of_one_recording_of_a_class_without_training_samples(tmp_path, capsys):
    root = tmp_path / "own"
    for split, name in (*[("train", name) for name in ("a", "b") for _ in range(4)], ("test", "c")):
        folder = root / split / name
        folder.mkdir(parents=True, exist_ok=True)
        number = len(list(folder.iterdir()))
        seed = 100 * ord(name) + number
        write(folder / f"{number}.npy", random_events(800, (20, 20), last_us=40_000, seed=seed))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        options = ("--epochs", 1, "--net", "4C3s2-3", "--out", tmp_path / "run")
        code, out, err = run(capsys, "train", "--data", "folder", "--root", root, *options)
    assert code == 0, err
    assert "no training sample of c, which the test set has" in out + err
    assert "One sample does not tell whether the maps show" in (tmp_path / "run/report.html").read_text()
