"""Checkpoint files: torn, changed and killed writes leave the old file or the new one."""

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from snnlib.app.training import CheckpointError
from snnlib.app.training.checkpoint_io import SafeCheckpointIO, find_intact, previous_of


@pytest.fixture
def files() -> SafeCheckpointIO:
    return SafeCheckpointIO()


def test_round_trip_and_plain_torch_load(files: SafeCheckpointIO, tmp_path: Path) -> None:
    content = {"epoch": 3, "weight": torch.randn(4, 5), "nested": {"list": [1, "two"]}}
    files.save_checkpoint(content, tmp_path / "new/a.ckpt")
    for loaded in (
        files.load_checkpoint(tmp_path / "new/a.ckpt"),
        torch.load(tmp_path / "new/a.ckpt", weights_only=True),
    ):
        assert loaded["epoch"] == 3
        assert loaded["nested"] == content["nested"]
        assert torch.equal(loaded["weight"], content["weight"])
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["a.ckpt"]


def test_keeps_one_version_before(files: SafeCheckpointIO, tmp_path: Path) -> None:
    path = tmp_path / "a.ckpt"
    for epoch in range(3):
        files.save_checkpoint({"epoch": epoch}, path)
    assert files.load_checkpoint(path)["epoch"] == 2
    assert files.load_checkpoint(previous_of(path))["epoch"] == 1


def test_damaged_file_does_not_replace_the_good_one_before(files: SafeCheckpointIO, tmp_path: Path) -> None:
    path = tmp_path / "a.ckpt"
    files.save_checkpoint({"epoch": 0}, path)
    files.save_checkpoint({"epoch": 1}, path)
    path.write_bytes(b"damaged")
    files.save_checkpoint({"epoch": 2}, path)
    assert files.load_checkpoint(previous_of(path))["epoch"] == 0


def test_truncations_and_a_changed_bit_in_any_byte_are_found(files: SafeCheckpointIO, tmp_path: Path) -> None:
    path = tmp_path / "a.ckpt"
    files.save_checkpoint({"weight": torch.arange(8.0)}, path)
    data = path.read_bytes()
    draw = random.Random(0)
    damaged = [data[:size] for size in (0, 1, 22, 97, *draw.choices(range(len(data)), k=50))]
    for place in range(len(data)):
        damaged.append(data[:place] + bytes([data[place] ^ (1 << draw.randrange(8))]) + data[place + 1 :])
    for content in damaged:
        path.write_bytes(content)
        with pytest.raises(CheckpointError, match=r"a\.ckpt: expected a whole checkpoint, got \d+ bytes"):
            files.load_checkpoint(path)


def test_code_is_not_loaded(files: SafeCheckpointIO, tmp_path: Path) -> None:
    files.save_checkpoint({"code": os.getcwd}, tmp_path / "a.ckpt")
    with pytest.raises(CheckpointError, match="refuses with weights_only=True"):
        files.load_checkpoint(tmp_path / "a.ckpt", weights_only=False)


def test_missing_file(files: SafeCheckpointIO, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"a\.ckpt: expected a checkpoint, got No such file"):
        files.load_checkpoint(tmp_path / "a.ckpt")
    with pytest.raises(CheckpointError, match=r"a\.ckpt: expected a checkpoint, got a file that is missing"):
        find_intact(tmp_path / "a.ckpt")


@pytest.mark.skipif(sys.platform == "win32", reason="needs limits of POSIX systems")
def test_full_disk_keeps_the_old_file(files: SafeCheckpointIO, tmp_path: Path) -> None:
    import resource  # noqa: PLC0415 - POSIX only

    path = tmp_path / "a.ckpt"
    files.save_checkpoint({"epoch": 0}, path)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            files.save_checkpoint({"epoch": 1, "weight": torch.zeros(10_000)}, path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert files.load_checkpoint(path)["epoch"] == 0
    assert not list(tmp_path.glob(".*.tmp"))


KILLS = int(os.environ.get("SNNLIB_TEST_KILLS", "40"))

# Forks children that save without end, and kills each after a random time; forks are cheap where imports are not.
SAVER = """
import os, random, signal, sys, time
import torch
from snnlib.app.training.checkpoint_io import SafeCheckpointIO, find_intact

torch.set_num_threads(1)
path, trials = sys.argv[1], int(sys.argv[2])
files, draw = SafeCheckpointIO(), random.Random(0)
newest = 0
files.save_checkpoint({"number": newest, "weight": torch.zeros(2_000)}, path)
for trial in range(trials):
    child = os.fork()
    if not child:
        while True:
            newest += 1
            files.save_checkpoint({"number": newest, "weight": torch.full((2_000,), newest)}, path)
    time.sleep(draw.uniform(0, 0.05))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    content = files.load_checkpoint(path)
    assert content["number"] >= newest, (content["number"], newest)
    assert bool((content["weight"] == content["number"]).all())
    newest = content["number"]
print(newest)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_kills_while_saving(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SAVER, str(tmp_path / "a.ckpt"), str(KILLS)]
    child = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    assert child.returncode == 0, child.stderr
    # Some saves were finished, so that the kills hit every part of one.
    assert int(child.stdout) > KILLS // 10
