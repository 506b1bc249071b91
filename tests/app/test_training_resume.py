"""A run that was stopped, killed or damaged ends as one that never was: weights, numbers and best checkpoint."""

import math
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import jitter
import pytest
import torch
from interrupt import interrupted
from torch import Tensor

import snnlib
from snnlib.app.training import CheckpointError, RunFolder, TrainConfig
from snnlib.app.training.checkpoint_io import SafeCheckpointIO
from snnlib.app.training.classifier import SpikingClassifier
from snnlib.app.training.run import TrainResult, test_run, train_run
from snnlib.app.training.summary import run_facts

# Its name is no test's.
test_run.__test__ = False  # type: ignore[attr-defined]


def start(config: TrainConfig, folder: Path) -> TrainResult:
    return train_run(config, RunFolder.create(folder, config), progress=False)


def go_on(folder: Path) -> TrainResult:
    run, config = RunFolder.open(folder, "resume")
    return train_run(config, run, resume=True, progress=False)


def assert_same(one: TrainResult, other: TrainResult, folders: tuple[Path, Path]) -> None:
    left, right = one.module.state_dict(), other.module.state_dict()
    assert left.keys() == right.keys()
    for name, value in left.items():
        assert torch.equal(value, right[name]), name
    clocks = {"samples_per_s", "seconds"}
    assert [{k: v for k, v in row.items() if k not in clocks} for row in one.history] == [
        {k: v for k, v in row.items() if k not in clocks} for row in other.history
    ]
    assert torch.equal(one.test.confusion, other.test.confusion)
    best = [SafeCheckpointIO().load_checkpoint(folder / "checkpoints/best.ckpt") for folder in folders]
    assert best[0]["epoch"] == best[1]["epoch"]
    for name, value in best[0]["state_dict"].items():
        assert torch.equal(value, best[1]["state_dict"][name]), name


@pytest.fixture(scope="module")
def whole(config: TrainConfig, tmp_path_factory: pytest.TempPathFactory) -> tuple[TrainResult, Path]:
    folder = tmp_path_factory.mktemp("whole")
    return start(config, folder), folder


def test_under_slurm_no_run_begins_with_the_state_of_another(
    whole: tuple[TrainResult, Path], config: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranks = dict.fromkeys(("PROCID", "LOCALID", "NODEID"), "0")
    for name, value in {**ranks, "NTASKS": "1", "JOB_NAME": "first", "JOB_ID": "4711"}.items():
        monkeypatch.setenv(f"SLURM_{name}", value)
    monkeypatch.chdir(tmp_path)
    run = RunFolder.create(tmp_path / "run", config)
    # Checkpoint that Lightning saves when Slurm tells its processes that their time ends.
    for folder in (tmp_path, run.path):
        shutil.copy(whole[1] / "checkpoints/last.ckpt", folder / "hpc_ckpt_1.ckpt")
    assert_same(whole[0], go_on(run.path), (whole[1], run.path))


@pytest.mark.filterwarnings("ignore:.*fork")
def test_one_seed_gives_one_net(whole: tuple[TrainResult, Path], config: TrainConfig, tmp_path: Path) -> None:
    """With processes that read the data as well."""
    assert_same(whole[0], start(config.changed(workers=2), tmp_path), (whole[1], tmp_path))


def test_another_seed_gives_another_net(
    whole: tuple[TrainResult, Path], config: TrainConfig, tmp_path: Path
) -> None:
    other = start(config.changed(seed=1, epochs=1), tmp_path)
    assert not torch.equal(other.module.net.fc1.weight, whole[0].module.net.fc1.weight)


def test_training_is_fused_and_the_test_sees_every_neuron(
    config: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fused = []
    step = SpikingClassifier.training_step

    def note(module: SpikingClassifier, *arguments: Any) -> Tensor:
        fused.append(isinstance(module.net, snnlib.nn.fusion.fuse.Fused))
        return step(module, *arguments)

    monkeypatch.setattr(SpikingClassifier, "training_step", note)
    result = start(config.changed(epochs=1), tmp_path)
    assert fused == [True] * 4
    conv1 = result.test.layers[0]
    assert conv1.neurons == 4 * 8 * 8
    assert type(result.module.net) is torch.nn.Sequential
    assert test_run(config, RunFolder(tmp_path), progress=False).layers[0] == conv1


def test_a_run_that_is_tested_once_ends_with_the_same_net(config: TrainConfig, tmp_path: Path) -> None:
    whole = config.changed(val_split=0.0)
    once = whole.changed(test_after="training")
    every, last = start(whole, tmp_path / "every"), start(once, tmp_path / "once")
    for name, value in every.module.state_dict().items():
        assert torch.equal(value, last.module.state_dict()[name]), name
    assert torch.equal(every.test.confusion, last.test.confusion)
    clocks = {"samples_per_s", "seconds"}
    rows = [{name: row[name] for name in row.keys() - clocks} for row in every.history]
    of_test = {name for name in rows[0] if name.startswith(("test_", "rate_", "dead_"))}
    for row in rows[:-1]:
        for name in of_test:
            del row[name]
    assert [{name: row[name] for name in row.keys() - clocks} for row in last.history] == rows
    assert all(0 < row["samples_per_s"] < math.inf for row in last.history)


def test_validation_is_followed_by_a_test_after_every_epoch(
    whole: tuple[TrainResult, Path], config: TrainConfig, tmp_path: Path
) -> None:
    once = start(config.changed(test_after="training"), tmp_path)
    assert_same(whole[0], once, (whole[1], tmp_path))


@pytest.mark.parametrize("epoch", [0, 1, 2])
def test_stopped_between_epochs(
    epoch: int,
    whole: tuple[TrainResult, Path],
    config: TrainConfig,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with interrupted(epoch, monkeypatch):
        start(config, tmp_path)
    assert_same(whole[0], go_on(tmp_path), (whole[1], tmp_path))


KILLED = """
import os, signal, sys
from pathlib import Path
from snnlib.app.training import RunFolder, TrainConfig
from snnlib.app.training.classifier import SpikingClassifier
from snnlib.app.training.run import train_run

step = SpikingClassifier.training_step

def step_or_die(self, batch, index):
    if (self.current_epoch, index) == (1, 2):
        os.kill(os.getpid(), signal.SIGKILL)
    return step(self, batch, index)

SpikingClassifier.training_step = step_or_die
run, config = RunFolder.open(Path(sys.argv[1]), "resume")
train_run(config, run, progress=False)
"""


def test_killed_within_an_epoch(whole: tuple[TrainResult, Path], config: TrainConfig, tmp_path: Path) -> None:
    RunFolder.create(tmp_path, config)
    child = subprocess.run(
        [sys.executable, "-c", jitter.in_child() + KILLED, tmp_path],
        check=False,
        capture_output=True,
        text=True,
    )
    assert child.returncode == -signal.SIGKILL, child.stderr
    assert_same(whole[0], go_on(tmp_path), (whole[1], tmp_path))


def test_damaged_checkpoint_falls_back(
    whole: tuple[TrainResult, Path], config: TrainConfig, tmp_path: Path
) -> None:
    start(config, tmp_path)
    last = tmp_path / "checkpoints/last.ckpt"
    data = bytearray(last.read_bytes())
    data[len(data) // 2] ^= 1
    last.write_bytes(data)
    with pytest.warns(UserWarning, match=r"last\.ckpt is damaged: continuing from last\.ckpt\.previous"):
        result = go_on(tmp_path)
    assert_same(whole[0], result, (whole[1], tmp_path))


def test_no_intact_checkpoint(config: TrainConfig, tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path, config)
    run.checkpoints.mkdir()
    (run.checkpoints / "last.ckpt").write_bytes(b"nonsense")
    with pytest.raises(
        CheckpointError, match=r"last\.ckpt: expected a checkpoint, got a file that is damaged"
    ):
        train_run(config, run, resume=True, progress=False)


def test_finished_run_trains_no_more(whole: tuple[TrainResult, Path]) -> None:
    last = whole[1] / "checkpoints/last.ckpt"
    before = last.stat().st_mtime_ns
    assert_same(whole[0], go_on(whole[1]), (whole[1], whole[1]))
    assert last.stat().st_mtime_ns == before


def test_evaluation_repeats_the_last_test(whole: tuple[TrainResult, Path], config: TrainConfig) -> None:
    result = test_run(config, RunFolder(whole[1]), progress=False)
    assert torch.equal(result.confusion, whole[0].test.confusion)
    assert result.layers == whole[0].test.layers
    best = test_run(config, RunFolder(whole[1]), checkpoint="best", progress=False)
    chosen = max(whole[0].history, key=lambda row: row["val_accuracy"])
    assert best.accuracy == pytest.approx(chosen["test_accuracy"], abs=1e-6)


def test_data_are_learned(config: TrainConfig, tmp_path: Path) -> None:
    result = start(config.changed(net="10", epochs=15, lr=0.05), tmp_path)
    assert result.history[-1]["train_loss"] < result.history[0]["train_loss"]
    assert result.test.accuracy > 0.4


def test_of_equal_epochs_the_first_is_best_also_in_a_folder_that_was_moved(
    config: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No epoch changes anything.
    same = config.changed(lr=1e-30, epochs=2)
    with interrupted(1, monkeypatch):
        start(same, tmp_path / "first")
    result = go_on((tmp_path / "first").rename(tmp_path / "moved"))
    assert result.history[0]["val_accuracy"] == result.history[1]["val_accuracy"]
    best = SafeCheckpointIO().load_checkpoint(tmp_path / "moved/checkpoints/best.ckpt")
    assert best["epoch"] == 0
    assert run_facts(result)["best epoch (checkpoint best)"].startswith("1: ")
    assert not (tmp_path / "first").exists()
