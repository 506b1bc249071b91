"""`snnlib train` on sequences without frames: labels at every step, recordings of different lengths, clear errors."""

import numpy as np
import pytest
import torch
from command import done, metrics, refused, run
from small_sets import write_wav

from snnlib import load
from snnlib.app.errors import ConfigError
from snnlib.app.training import RunFolder, TrainConfig
from snnlib.app.training.data_module import EventData
from snnlib.app.training.run import test_run as run_test
from snnlib.app.training.run import train_run
from snnlib.data import ECG

BANDS = 6


@pytest.fixture(scope="module")
def ecg(tmp_path_factory):
    """Ten sequences of six bands; in band k a channel of its own fires, and 100 steps have no label."""
    scipy_io = pytest.importorskip("scipy.io")
    root = tmp_path_factory.mktemp("ecg")
    rng = np.random.default_rng(0)
    x = (rng.random((10, 1301, 4)) < 0.02).astype(np.int16)
    y = np.zeros((10, 1301, BANDS), np.uint8)
    for band in range(4):
        place = slice(100 + 300 * band, 400 + 300 * band)
        y[:, place, band] = 1
        x[:, place, band] |= (rng.random((10, 300)) < 0.5).astype(np.int16)
    scipy_io.savemat(root / "QTDB_train.mat", {"x": x, "y": y})
    return root


def test_a_label_at_every_step(ecg, tmp_path, capsys):
    folder = tmp_path / "run"
    options = ["--net", "12R-6", "--epochs", 3, "--warmup-epochs", 0, "--batch-size", 2, "--threads", 1]
    code, out, err = run(capsys, "train", "--data", "ecg", "--root", ecg, "--out", folder, *options)
    assert (code, err) == (0, "")
    assert "recipe ecg: a label at every step" in out
    assert "of 2400 labelled steps" in out
    rows = metrics(folder)
    assert len(rows) == 3
    assert float(rows[-1]["train_loss"]) < float(rows[0]["train_loss"])
    assert float(rows[-1]["test_accuracy"]) > 0.6
    page = (folder / "report.html").read_text()
    assert "Classes over time" in page
    assert "of 2400 labelled steps" in page
    assert (folder / "labels_over_time.png").stat().st_size > 1000
    out = done(capsys, "eval", folder)
    assert f"{float(rows[-1]['test_accuracy']):.2%} (" in out
    # The net of `load` predicts as the run did.
    net, transform, classes = load(folder)
    test = ECG(ecg, "test")
    with torch.no_grad():
        answers = torch.stack([net(transform(test[i][0]).unsqueeze(1)).argmax(2)[:, 0] for i in range(2)])
    right = float((answers == test.labels)[test.labels >= 0].float().mean())
    assert right == pytest.approx(float(rows[-1]["test_accuracy"]), abs=1e-6)
    assert classes == ECG.classes
    err = refused(capsys, "export", "c", folder, tmp_path / "program")
    assert err.count("RUN_FOLDER") == 1
    err = refused(capsys, "predict", folder, folder / "config.json")
    assert "expected a net that classifies whole recordings, got a net for ecg" in err


@pytest.fixture(scope="module")
def shd(tmp_path_factory):
    """Speech of 20 classes in miniature: a band of channels each, recordings of 30 to 120 ms, three speakers."""
    h5py = pytest.importorskip("h5py")
    root = tmp_path_factory.mktemp("shd")
    rng = np.random.default_rng(0)
    for part, number, speakers in (("train", 80, (0, 1)), ("test", 40, (2,))):
        labels = np.arange(number) % 20
        times, units = [], []
        for label in labels:
            last = rng.uniform(0.03, 0.12)
            times.append(np.sort(np.append(rng.uniform(0, last, 199), last)).astype(np.float16))
            units.append((label * 35 + rng.integers(0, 35, 200)).astype(np.uint16))
        with h5py.File(root / f"shd_{part}.h5", "w") as file:
            for name, values, kind in (("times", times, np.float16), ("units", units, np.uint16)):
                ragged = file.create_dataset(f"spikes/{name}", (number,), h5py.vlen_dtype(kind))
                for index, value in enumerate(values):
                    ragged[index] = value
            file["labels"] = labels
            file["extra/speaker"] = np.asarray(speakers)[np.arange(number) // 20 % len(speakers)]
    return root


SETTINGS = {
    "data": "shd",
    "net": "16R-20",
    "neuron": "cubalif",
    "tau_m": 10.0,
    "step_ms": 5.0,
    "batch_size": 8,
    "shift": 0,
    "rotate": 0.0,
    "warp": 0.0,
    "val_split": 0.1,
}


def test_recordings_of_different_lengths(shd, tmp_path):
    config = TrainConfig(root=str(shd), epochs=5, clip_norm=1.0, threads=1, device="cpu", **SETTINGS)
    folder = RunFolder.create(tmp_path / "run", config)
    result = train_run(config, folder, progress=False)
    # The validation set is the second speaker; one of twenty is right by chance.
    assert [int(part.sum()) for part in (result.test.confusion,)] == [40]
    assert "val_accuracy" in result.history[-1]
    assert result.test.accuracy > 0.25
    # The last batch of the test set holds other lengths alone than in batches of eight.
    alone = run_test(config.changed(batch_size=1), folder, progress=False)
    assert torch.equal(alone.confusion, result.test.confusion)
    assert alone.loss == pytest.approx(result.test.loss, rel=1e-5)
    for a, b in zip(alone.layers, result.test.layers, strict=True):
        assert a == b


def test_batches_hold_like_lengths_and_all_samples(shd):
    data = EventData(TrainConfig(root=str(shd), **SETTINGS), progress=False)
    data.setup("fit")
    loader = data.train_dataloader()
    seen, padding = 0, 0
    for x, labels, lengths in loader:
        assert x.dtype == torch.uint8
        assert x.shape == (int(lengths.max()), len(labels), 700)
        assert not x[int(lengths.min()) :, lengths.argmin()].any()
        seen, padding = seen + len(labels), padding + int((x.shape[0] - lengths).sum())
    assert seen == len(data.train_set) == 40
    assert padding < 0.2 * sum(data.train_set.lengths)
    assert data.first_batch().shape[0] <= min(sorted(data.train_set.lengths)[20:])


@pytest.mark.parametrize(
    ("changes", "field", "message"),
    [
        ({"shift": 2}, "shift", "0 for shd, which has no frames, got 2"),
        ({"batch_norm": True}, "batch_norm", "as padding would be part of its statistics"),
        (
            {"loss": "first-spike"},
            "loss",
            "one of count, count+, cross-entropy, cross-entropy+, tet, mean-potential for shd",
        ),
        ({"data": "ecg", "loss": "count"}, "loss", "one of tet for ecg, got 'count'"),
        ({"crop": "8x8+0+0"}, "crop", "none for shd, which has no sensor"),
    ],
)
def test_settings_that_do_not_fit(changes, field, message):
    with pytest.raises(ConfigError, match=field) as error:
        TrainConfig(root="somewhere", **{**SETTINGS, **changes})
    assert message in str(error.value)


def test_nets_that_do_not_fit(shd, capsys, tmp_path):
    still = ["--shift", 0, "--rotate", 0, "--warp", 0]
    common = ["train", "--root", shd, "--data", "shd", *still, "--out", tmp_path / "run"]
    recurrent = ["--net", "16R-20"]
    for options, message in (
        (recurrent, "--net: expected a neuron with a surrogate gradient for '16R'"),
        (
            ["--net", "16R-20", "--neuron", "alif"],
            "--neuron: expected lif, cubalif, adlif or brf for recurrent layers",
        ),
        (
            [*recurrent, "--neuron", "lif", "--surrogate", "atan"],
            "--surrogate: expected triangle or rectangle",
        ),
        (["--net", "16R-10", "--neuron", "lif"], "--net: expected 20 output neurons"),
    ):
        err = refused(capsys, *common, "--recipe", "digits", *options)
        assert message in err
    err = refused(capsys, *common[:2], tmp_path, *common[3:], "--recipe", "digits")
    assert "expected a file of SHD, found none" in err


def test_the_command_takes_trained_nets_that_classify_whole_files(tmp_path, capsys):
    write_wav(tmp_path / "tone.wav", 8000 * np.sin(2 * np.pi * 500 * np.arange(8000) / 8000))
    out = done(capsys, "predict", "spoken-digits", tmp_path / "tone.wav")
    assert out.splitlines()[1].split("\t")[1] in "0123456789"
    err = refused(capsys, "predict", "ecg", tmp_path / "tone.wav")
    assert "NAME: expected a net that classifies whole files, got ecg" in err
