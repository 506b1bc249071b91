"""Run folders: one process at a time, the version that wrote them, and no folder after a failed start."""

import json
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

import snnlib
from snnlib.app.training import ConfigError, RunFolder, TrainConfig
from snnlib.app.training.checkpoint_io import SafeCheckpointIO
from snnlib.app.training.run import train_run

BUSY = r"{}: expected a run that no process is training, got '.*', which is in training"


def test_a_folder_belongs_to_one_process(config: TrainConfig, tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run", config)
    with run.lock():
        with pytest.raises(ConfigError, match=BUSY.format("out")):
            RunFolder.create(tmp_path / "run", config)
        with pytest.raises(ConfigError, match=BUSY.format("resume")):
            train_run(config, run, resume=True, progress=False)
    # Free again, also for the resume of a run that never began.
    with run.lock():
        pass


def test_a_killed_process_holds_nothing(config: TrainConfig, tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run", config)
    code = (
        "import os, sys; from pathlib import Path; from snnlib.app.training import RunFolder\n"
        "with RunFolder(Path(sys.argv[1])).lock(): os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", code, run.path], check=False)
    with run.lock():
        pass


def test_of_two_starts_in_one_folder_the_second_fails(config: TrainConfig, tmp_path: Path) -> None:
    RunFolder.create(tmp_path / "run", config)
    other = config.changed(epochs=99)
    with pytest.raises(ConfigError, match="out: expected a new or empty folder"):
        RunFolder.create(tmp_path / "run", other)
    assert TrainConfig.load(tmp_path / "run/config.json") == config


@pytest.mark.parametrize(
    "changes", [{"root": "absent"}, {"net": "4C5-P2-7"}, {"device": "cuda", "devices": 99}]
)
def test_failed_start_leaves_no_folder(
    changes: dict[str, object], config: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    wrong = config.changed(**changes)  # type: ignore[arg-type]
    for path in (None, Path("mine")):
        with pytest.raises(ConfigError):
            train_run(wrong, RunFolder.create(path, wrong), progress=False)
    assert list(tmp_path.iterdir()) == []


def test_config_names_the_version(config: TrainConfig, tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path, config)
    values = json.loads(run.config.read_text())
    assert values["snnlib_version"] == snnlib.__version__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert RunFolder.open(tmp_path, "resume")[1] == config
    values["snnlib_version"] = "0.3.0.dev1"
    del values["copies"]
    run.config.write_text(json.dumps(values))
    message = (
        rf"written by snnlib 0\.3\.0\.dev1, read by {snnlib.__version__}; .* missing from the file: copies=1$"
    )
    with pytest.warns(UserWarning, match=message):
        assert RunFolder.open(tmp_path, "resume")[1] == config.changed(copies=1)


def test_leftovers_of_killed_saves_are_removed(config: TrainConfig, tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path, config.changed(epochs=1))
    run.checkpoints.mkdir()
    left = [run.path / ".metrics.csv.0123.tmp", run.checkpoints / ".best.ckpt.0123.tmp"]
    for path in left:
        path.write_bytes(b"half")
    # And a checkpoint that is no start for a resumed run: it was killed between its first two.
    SafeCheckpointIO().save_checkpoint({"epoch": 0}, run.checkpoints / "best.ckpt")
    result = train_run(config.changed(epochs=1), run, resume=True, progress=False)
    assert len(result.history) == 1
    assert not any(path.exists() for path in left)
    saved = SafeCheckpointIO().load_checkpoint(run.checkpoints / "last.ckpt")
    assert saved["snnlib_version"] == snnlib.__version__
