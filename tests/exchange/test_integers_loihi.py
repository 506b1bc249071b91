"""Nets of neurons in fixed point as integers: torch, the native engine, its definition and C give the same spikes."""

import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from loihi_nets import random_net

import snnlib
from snnlib.exchange import export_c


def _check(seed: int, folder: Path) -> int:
    """Spikes of the output, once four ways agree on all of them."""
    net, x = random_net(seed)
    spikes = net(x)
    small = snnlib.to_integers(net, x)
    assert torch.equal(small(x), spikes)
    with snnlib.use_path("reference"):
        assert torch.equal(small(x), spikes) and torch.equal(net(x), spikes)
    if shutil.which("cc") and shutil.which("make"):
        export_c(small, folder, x, binary=False)
        command = ["make", "check", "CFLAGS=-O1 -march=native -Werror"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "2 samples, outputs that differ: 0 by events, 0 by frames" in done.stdout
    return int(spikes.sum())


@pytest.mark.parametrize("seed", range(6))
def test_random_nets(seed: int, tmp_path: Path) -> None:
    _check(seed, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_hundred_random_nets(tmp_path: Path) -> None:
    fired = [_check(seed, tmp_path / str(seed)) for seed in range(100)]
    assert sum(count > 0 for count in fired) > 60
