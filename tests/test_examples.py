"""The examples run as a user runs them; each asserts on its own what it shows, and says so at the end."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"


def run(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments], cwd=EXAMPLES, capture_output=True, text=True, check=False, timeout=280
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.glob("*.py")))
def test_runs_with_its_defaults(name: str) -> None:
    assert run(name).strip(), "an example prints what it found"


def test_nmnist_on_real_recordings() -> None:
    if "SNNLIB_DATA" not in os.environ:
        pytest.skip("SNNLIB_DATA is unset: no real N-MNIST recordings to train on")
    root = Path(os.environ["SNNLIB_DATA"]) / "nmnist_800"
    output = run("nmnist.py", "--root", str(root), "--epochs", "2")
    assert "test accuracy" in output
