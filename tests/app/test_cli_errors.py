"""Mistakes and mishaps of the `snnlib` command: one line that names the option or the file, and exit codes."""

import re
from pathlib import Path

import pytest
import torch
from command import metrics, options, refused, run

from snnlib.app.cli import main
from snnlib.app.training import TrainConfig
from snnlib.app.training.checkpoint_io import SafeCheckpointIO


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--epochs", "0"], r"error: --epochs: expected an integer >= 1, got 0"),
        (["--tau-m", "0.5"], r"error: --tau-m: expected a number >= 1, got 0\.5"),
        (["--target-rate", "2"], r"error: --target-rate: expected a rate .*, got 2\.0"),
        (["--net", "12X5-10"], r"error: --net: expected words like 12C5p1, .*, got '12X5'"),
        (["--net", "4C5-P2-7"], r"error: --net: expected 10 output neurons.*, got '7'"),
        (["--data", "nmnist"], r"error: --root: expected the folder of the N-MNIST copy .*, got none"),
        (["--data", "nmnist", "--root", "absent"], r"error: --root: root 'absent': expected a folder .*found nothing"),
        (["--root", "recordings"], r"error: --root: expected --data beside --root, .*, got --root recordings alone"),
        (["--resume", "absent"], r"error: --resume: expected the folder of a run .*, got nothing there: 'absent'"),
        (
            ["--data", "ecg", "--root", "x", "--time-steps", "10"],
            "error: --time-steps: expected no value for ecg, whose sequences keep their own lengths, got 10",
        ),
        (["--resume", "."], r"error: --resume: expected the folder of a run .*, got a folder without config\.json"),
        (["--device", "cuda", "--devices", "99"], r"error: --device: expected 99 CUDA device\(s\) .*, got \d+"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    err = refused(capsys, "train", *arguments)
    assert re.fullmatch(message + r".*\n", err), err


@pytest.mark.parametrize(
    ("option", "value"), [("--data", "cifar"), ("--epochs", "many"), ("--loss", "hinge")]
)
def test_wrong_words_name_the_option(option: str, value: str, capsys: pytest.CaptureFixture[str]) -> None:
    err = refused(capsys, "train", option, value)
    assert f"Invalid value for {option}" in err.replace("'", "")


def test_damaged_config_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config.json").write_text("{")
    for arguments in (("train", "--resume", tmp_path), ("eval", tmp_path)):
        err = refused(capsys, *arguments)
        assert re.match(r"error: .*config\.json: expected JSON", err)


DAMAGED = {
    "text": lambda last: last.write_bytes(b"PK damaged"),
    "a link to itself": lambda last: last.symlink_to("last.ckpt"),
}


CONTENTS = {
    "a list": [1, 2],
    "other weights": {"state_dict": {"net.fc1.weight": torch.zeros(3)}},
    "no weights": {"state_dict": 5},
    "a class": {"state_dict": Path("x")},
    "no epoch": {"state_dict": {}, "epoch": -5},
    "an epoch to come": {"state_dict": {}, "epoch": 10**12},
}


@pytest.mark.parametrize("content", [*DAMAGED, *CONTENTS])
def test_checkpoint_of_other_content_is_named(
    content: str, config: TrainConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config.save(tmp_path / "config.json")
    last, said = tmp_path / "checkpoints/last.ckpt", "expected .*"
    last.parent.mkdir()
    if content in DAMAGED:
        DAMAGED[content](last)
        said = "expected a checkpoint, got a file that is damaged.*"
    else:
        SafeCheckpointIO().save_checkpoint(CONTENTS[content], last)  # type: ignore[arg-type]
    for arguments in (("train", "--resume", tmp_path), ("eval", tmp_path)):
        err = refused(capsys, *arguments)
        assert re.fullmatch(rf"error: .*last\.ckpt: {said}\n", err), err


@pytest.mark.usefixtures("undrawn")
def test_batches_that_fit_no_memory_are_named(
    config: TrainConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    long = options(config, time_steps=10**9)
    err = refused(capsys, "train", *long, "--out", tmp_path / "run")
    assert re.fullmatch(r"error: --time-steps: expected batches that fit into memory, .* alone\n", err), err
    assert not (tmp_path / "run").exists()
    monkeypatch.setattr("snnlib.app.training.run._LARGE_BATCH", 1000)
    # The largest seed, too.
    code, out, err = run(
        capsys, "train", *options(config, epochs=1, seed=2**63 - 1), "--out", tmp_path / "run"
    )
    assert code == 0 and "a batch has 8 steps and 0.0 GB of frames; a step of training takes" in out + err


def test_net_that_fits_no_memory_is_named(
    config: TrainConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    huge = options(config, net="9999999999C5-10")
    err = refused(capsys, "train", *huge, "--out", tmp_path / "run")
    assert re.fullmatch(r"error: --net: expected layers that fit into memory, got '9999999999C5-10'.*\n", err)


def test_diverged_run_says_so_and_keeps_its_report(
    config: TrainConfig, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    diverging = options(config, lr=1e30, loss="tet", warmup_epochs=0.0)
    with pytest.warns(UserWarning, match="expected finite scores, got NaN for 30 of 30 samples"):
        code, out, err = run(capfd, "train", *diverging, "--out", tmp_path / "run")
    assert code == 1
    assert re.search(r"training diverged in epoch 1: the loss is (nan|inf); stopped\..*lower --lr", out + err)
    assert len(metrics(tmp_path / "run")) == 1
    page = (tmp_path / "run/report.html").read_text()
    assert "diverged in epoch 1" in page and "data:image/png" in page
    # Nothing that is lost holds a checkpoint.
    assert not (tmp_path / "run/checkpoints/last.ckpt").exists()


def test_debug_shows_the_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SNNLIB_DEBUG", "1")
    with pytest.raises(ValueError, match="epochs"):
        main(["train", "--epochs", "0"])
