"""The examples run as a user runs them; each asserts on its own what it shows, and says so at the end."""

import os
import runpy
import sys
from pathlib import Path

import pytest
import torch

EXAMPLES = Path(__file__).parents[2] / "examples"
# Shorter than what the example shows by default, as far as it still learns.
ARGUMENTS = {"nmnist.py": ("--epochs", "2", "--samples", "200")}
# Those that train on all digits, or for long.
SLOW = {
    *(
        "decoupled_heads.py",
        "explain.py",
        "labelled_steps.py",
        "mnist.py",
        "nmnist.py",
        "pipeline.py",
        "published_names.py",
    ),
    *("quantize.py", "voxels.py"),
}
NAMES = [
    pytest.param(path.name, marks=pytest.mark.slow if path.name in SLOW else ())
    for path in sorted(EXAMPLES.glob("*.py"))
]


def run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, *arguments: str
) -> str:
    """What the example prints. In this process: torch takes seconds to import."""
    monkeypatch.chdir(EXAMPLES)
    monkeypatch.syspath_prepend(EXAMPLES)
    monkeypatch.setattr(sys, "argv", [name, *arguments])
    with torch.random.fork_rng():
        runpy.run_path(name, run_name="__main__")
    return capsys.readouterr().out


# Lightning asks torch's trees in a deprecated way.
@pytest.mark.filterwarnings("ignore:.*treespec.*is deprecated")
@pytest.mark.parametrize("name", NAMES)
def test_runs_with_its_defaults(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, capsys, name, *ARGUMENTS.get(name, ())).strip(), "an example prints what it found"


def test_nmnist_on_real_recordings(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if not os.environ.get("SNNLIB_DATA"):
        pytest.skip("SNNLIB_DATA is unset: no real N-MNIST recordings to train on")
    root = Path(os.environ["SNNLIB_DATA"]) / "nmnist_800"
    output = run(monkeypatch, capsys, "nmnist.py", "--root", str(root), "--epochs", "2")
    assert "test accuracy" in output


def test_ecg_on_real_recordings(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    if not os.environ.get("SNNLIB_DATA"):
        pytest.skip("SNNLIB_DATA is unset: no real electrocardiograms to train on")
    root = Path(os.environ["SNNLIB_DATA"]) / "ecg_qtdb"
    output = run(monkeypatch, capsys, "ecg.py", "--root", str(root), "--hidden", "16", "--epochs", "1")
    assert "of the labelled steps" in output
