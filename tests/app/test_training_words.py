"""Runs of words and heart beats: folds, augmentation, a file that is classified."""

import os
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from command import done, refused
from small_sets import write_record, write_wav

from snnlib.app.errors import ConfigError
from snnlib.app.kinds.beats import Beats, VaryBeats, balanced
from snnlib.app.kinds.joined_beats import RUNS, join_beats
from snnlib.app.recipes import recipe
from snnlib.app.training.config import TrainConfig
from snnlib.app.training.data_module import EventData
from snnlib.app.training.predict import Predictor
from snnlib.app.training.run import train_run
from snnlib.app.training.run_folder import RunFolder
from snnlib.data import BeatFrames, EventFileError
from snnlib.data.datasets.speech_commands import COMMANDS, SILENCE, UNKNOWN


@pytest.fixture
def digits(tmp_path: Path) -> Path:
    """Low tones for 0 and high ones for 1 by three speakers."""
    root = tmp_path / "recordings"
    root.mkdir()
    rng = np.random.default_rng(0)
    for speaker, shift in (("anna", 0), ("bert", 40), ("cleo", 80)):
        for number in range(6):
            pitch = 400 * (1 + 4 * (number % 2)) + shift
            sound = np.sin(2 * np.pi * pitch * np.arange(rng.integers(2400, 4000)) / 8000)
            write_wav(root / f"{number % 2}_{speaker}_{number}.wav", 20_000 * sound)
    return root


def _small(root: Path, **changes: object) -> TrainConfig:
    small = {
        "net": "8C5s4p2-A1-12-10",
        "time_steps": 10,
        "epochs": 30,
        "batch_size": 4,
        "threads": 1,
        "dropout": 0.0,
    }
    return recipe("spoken-digits").config(root=str(root), **{**small, **changes})


def test_words_of_a_speaker_who_trains_nothing(
    digits: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = _small(digits, fold=0)
    folder = RunFolder.create(tmp_path / "run", config)
    result = train_run(config, folder, progress=False)
    assert set(result.data.test_set.dataset.speakers) == {"anna"}
    assert set(result.data.train_set.dataset.speakers) == {"bert", "cleo"}
    assert result.test.accuracy == 1
    predictor = Predictor.of_run(TrainConfig.load(folder.path / "config.json"), folder, "last")
    for number in range(2):
        (answer,) = predictor.answers(digits / f"{number}_anna_{number}.wav")
        assert predictor.names_of(answer.scores)[0] == str(number) and answer.seconds is None
    write_wav(tmp_path / "fast.wav", [0] * 100, 44100)
    with pytest.raises(EventFileError, match=r"fast\.wav: expected 8000 samples a second, found 44100"):
        predictor.answers(tmp_path / "fast.wav")
    # Its program takes sound, and keeps states of 32 bits.
    out = done(capsys, "export", "c", folder.path, tmp_path / "program", "--vectors", "2")
    assert re.search(r"\(nothing\) +100\.0%", out) and re.search(r"fc2 +100\.0%", out)
    header = (tmp_path / "program" / "net.h").read_text()
    for line in (
        "A time step is 40 ms, a recording 10 of them.",
        "#define NET_STEPS 10",
        "#define NET_HOP 80",
    ):
        assert line in header
    assert "x = (column" not in header and '#define NET_NAMES "0", "1", "2"' in header
    assert "static SNN_ALIGNED int32_t potential0" in (tmp_path / "program" / "net.c").read_text()


@pytest.mark.filterwarnings("ignore:x. expected spikes")
@pytest.mark.parametrize("loss", ["mean-potential", "cross-entropy"])
def test_digits_begin_with_a_net_that_knows_words(
    digits: Path, tmp_path: Path, loss: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = tmp_path / "words"
    for number, word in enumerate((SILENCE, UNKNOWN, *COMMANDS)):
        (words / word).mkdir(parents=True)
        sound = 20_000 * np.sin(2 * np.pi * (300 + 250 * number) * np.arange(8000) / 16_000)
        for speaker in range(4):
            name = f"{speaker}.wav" if word == SILENCE else f"{speaker:x}_nohash_0.wav"
            write_wav(words / word / name, sound, rate=16_000)
    changes = {"net": "8C5s4p2-12-12", "loss": loss, "epochs": 1, "dropout": 0.0}
    changes |= {"levels": 1, "threshold": 1.0, "surrogate": "atan", "time_steps": 10, "threads": 1}
    config = recipe("keywords").config(root=str(words), fold=0, high_hz=3800.0, **changes)
    first = RunFolder.create(tmp_path / "first", config)
    body = train_run(config, first, progress=False).module.net.state_dict()
    changes |= {"net": "8C5s4p2-12-10", "init_from": str(first.path), "lr": 1e-9}
    begun = recipe("spoken-digits").config(root=str(digits), fold=0, **changes)
    found = train_run(begun, RunFolder.create(tmp_path / "second", begun), progress=False).module.net
    assert "but a new last layer for 10 classes" in capsys.readouterr().out
    last = list(dict(found.named_children()))[-1]
    for name, value in dict(found.named_parameters()).items():
        assert (value.shape == body[name].shape) == (not name.startswith(last) or value.dim() == 0), name
        assert name.startswith(last) or torch.allclose(value, body[name], atol=1e-4), name


def test_batches_of_words(digits: Path) -> None:
    data = EventData(_small(digits), False)
    data.setup("fit")
    frames, _ = next(iter(data.train_dataloader()))
    assert frames.shape == (10, 4, 8, 1, 40) and frames.dtype == torch.uint8
    # A step has the frames of the one before, then its own.
    assert torch.equal(frames[1:, :, :4], frames[:-1, :, 4:]) and not frames[0, :, :4].any()
    still = EventData(_small(digits, vary=0.0), False)
    still.setup("fit")
    assert not torch.equal(next(iter(still.train_dataloader()))[0], frames)
    assert data.facts.input_shape == (8, 1, 40)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"step_ms": 25.0}, "step_ms: expected a multiple of 10 ms for spoken-digits, got 25"),
        ({"fold": 3}, r"root: fold: expected an integer in 0\.\.2, got 3"),
        ({"data": "shd", "vary": 0.0, "batch_norm": False, "fold": 1}, "fold: expected none for shd"),
        ({"high_hz": 5000.0}, r"high_hz: .* <= 4000, half the sample rate, got 60 and 5000"),
        ({"shift": 2}, "shift: expected 0 for spoken-digits, which has no frames"),
    ],
)
def test_settings_of_words_that_do_not_fit(digits: Path, changes: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        EventData(_small(digits, **changes), False).setup("fit")


def test_sound_of_any_length_has_an_answer_after_each_step(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    predictor = Predictor.of_trained("keywords")
    generator = np.random.default_rng(0)
    sound = (3000 * generator.standard_normal(40_100) * np.hanning(40_100)).astype(int)
    write_wav(tmp_path / "long.wav", sound, rate=16_000)
    write_wav(tmp_path / "second.wav", sound[:16_000], rate=16_000)
    steps = list(predictor.answers_by_step(tmp_path / "long.wav"))
    # Steps are 40 ms, 640 samples.
    assert [round(1000 * (answer.seconds or 0)) for answer in steps] == list(range(40, 2501, 40))
    # A second of it is what the file of that second is, whose steps are the whole file's.
    (whole,) = predictor.answers(tmp_path / "second.wav")
    assert torch.allclose(steps[24].scores, whole.scores, atol=1e-5)
    # Later the last second decides: what was before that is forgotten, but by neurons and running means.
    assert not torch.allclose(steps[49].scores, torch.stack([step.scores for step in steps[:50]]).mean(0))
    out = done(capsys, "predict", "keywords", tmp_path / "second.wav", "--steps").splitlines()
    assert (
        out[0].split("\t") == ["file", "time", "class", "score", "second class", "score"] and len(out) == 26
    )
    name = predictor.names_of(whole.scores)[0]
    assert out[-1].startswith(f"{tmp_path / 'second.wav'}\t1.000\t{name}\t")
    assert done(capsys, "predict", "keywords", tmp_path / "second.wav").splitlines()[1].split("\t")[1] == name
    err = refused(capsys, "predict", "digits", tmp_path / "second.wav", "--steps")
    assert "steps: expected a net for words, got a net for digits" in err


def test_each_beat_of_a_record_has_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_record(tmp_path, "mine", [(360, 1), (700, 28), (720, 5), (1170, 8)], samples=1500)
    for end in ("hea", "dat", "atr"):
        rows = [
            row.split("\t") for row in done(capsys, "predict", "beats", tmp_path / f"mine.{end}").splitlines()
        ]
        assert rows[0][:3] == ["file", "time", "class"]
        assert [row[1] for row in rows[1:]] == ["1.000", "2.000", "3.250"]
        assert {row[2] for row in rows[1:]} <= {"N", "S", "V"}
    (tmp_path / "mine.atr").unlink()
    err = refused(capsys, "predict", "beats", tmp_path / "mine.hea")
    assert "mine.atr: expected a file of the record, found none" in err


def test_rare_beats_are_drawn_often() -> None:
    targets = torch.tensor([0] * 900 + [1] * 10 + [2] * 40 + [2] * 50)
    records = torch.tensor([7] * 500 + [8] * 460 + [9] * 40)
    drawn = balanced(targets, records, 10_000, torch.Generator().manual_seed(0))
    shares = targets[drawn].bincount() / 10_000
    assert torch.allclose(shares, torch.tensor([0.5, 0.1, 0.4]), atol=0.02)
    of_records = records[drawn][targets[drawn] == 2].bincount()[8:].double()
    # The roots of 50 and 40 beats.
    assert of_records[0] / of_records[1] == pytest.approx((50 / 40) ** 0.5, rel=0.1)


def test_varied_beats_keep_what_they_are() -> None:
    channels = BeatFrames().channels
    beats = torch.full((31, 200, channels), 128, dtype=torch.uint8)
    beats[:, :, :64] = 170
    varied = VaryBeats()(beats)
    assert varied.dtype == torch.uint8 and varied.shape == beats.shape
    mean = varied[..., :64].float().mean((0, 2)) - 128
    assert 35 < float(mean.median()) < 50
    assert VaryBeats()(beats[:, 0]).shape == (31, channels)


def _patient(count: int = 80) -> tuple[torch.Tensor, np.ndarray, np.ndarray]:
    """A signal, R peaks at intervals of which no two are alike, and labels N, S and V."""
    rng = np.random.default_rng(0)
    labels = rng.choice(3, count, p=(0.45, 0.45, 0.1))
    peaks = 300 + np.cumsum(220 + 2 * rng.permutation(count))
    signal = torch.from_numpy(rng.standard_normal((int(peaks[-1]) + 200, 2)))
    return signal, peaks, labels


@pytest.mark.parametrize("runs", RUNS)
def test_joined_records_have_beats_with_their_own_intervals(runs: tuple[int, int]) -> None:
    signal, peaks, labels = _patient()
    found = join_beats(signal, peaks, labels, runs, seed=0)
    assert found is not None
    joined, at, classes = found
    assert len(at) == len(classes) == (1000 if runs[0] else 500)
    assert set(classes) <= {0, 1} and classes.mean() == pytest.approx(runs[0] / sum(runs), abs=0.1)
    own = {int(interval): number for number, interval in enumerate(np.diff(peaks), 1)}
    chosen = np.array([own[int(interval)] for interval in np.diff(at)])
    assert np.array_equal(labels[chosen], classes[1:]) and np.array_equal(labels[chosen - 1], classes[:-1])
    # A piece is as it was but for a shift, to the level at which the one before ended.
    joints = at + 72
    assert torch.equal(joined[joints[:-1]], joined[joints[:-1] - 1])
    for number in (0, 7, 400):
        piece = signal[peaks[chosen[number] - 1] + 72 : peaks[chosen[number]] + 72]
        found_piece = joined[joints[number] : joints[number + 1]]
        assert torch.allclose(found_piece - found_piece[0], piece - piece[0], atol=1e-9)


def test_a_patient_with_few_beats_of_a_class_is_not_joined() -> None:
    signal, peaks, labels = _patient()
    few = np.where((labels == 1) & (np.arange(80) > 15), 0, labels)
    assert join_beats(signal, peaks, few, RUNS[0], seed=0) is None
    assert join_beats(signal, peaks, few, RUNS[2], seed=0) is not None
    assert join_beats(signal, peaks, np.full(80, 2), RUNS[2], seed=0) is None


def test_real_beats_of_patients_who_train_nothing() -> None:
    root = Path(os.environ.get("SNNLIB_DATA", "")) / "mitbih"
    if not os.environ.get("SNNLIB_DATA") or not root.is_dir():
        pytest.skip("SNNLIB_DATA holds no mitbih")
    test = Beats(str(root), "test", 4, BeatFrames())
    # Numbers 4, 9, 14 and 19 of DS1.
    assert set(test.records.tolist()) == {112, 119, 205, 220}
    assert set(test.targets.tolist()) <= {0, 1, 2}
    # Patient 220 alone of these has beats S.
    joined = Beats(str(root), "test", 4, BeatFrames(), joined=True)
    assert torch.equal(joined.targets[joined.records < 1000], test.targets)
    assert set(joined.records.tolist()) - set(test.records.tolist()) == {1220, 2220, 3112, 3119, 3205, 3220}
    beat, label = test[0]
    assert beat.shape == (31, 68) and label == 0
