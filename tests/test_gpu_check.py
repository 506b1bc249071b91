"""The checks for GPU machines run here on the CPU at tiny sizes, so that no slip of the pen waits for a GPU."""

import importlib
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
STAGES = (
    "install", "ops", "bandwidth", "layer", "step", "network", "streams", "determinism", "graph", "autocast",
    "errors", "large", "convolution", "convolution_speed", "sanitizer", "training",
)  # fmt: skip


@pytest.fixture
def stages(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("gpu_stages")


@pytest.mark.parametrize("name", STAGES)
def test_stage(name: str, stages: ModuleType) -> None:
    results = stages.run(name, "cpu", True)
    assert results
    assert json.loads(json.dumps(results)) == results


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_compiled_stage(stages: ModuleType) -> None:
    torch._dynamo.reset()
    assert stages.run("compiled", "cpu", True)


def test_every_stage_is_here(stages: ModuleType) -> None:
    assert {*STAGES, "compiled"} == set(stages.LIMITS)


def _script(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, BENCHMARKS / "gpu_check.py", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)


def test_script(tmp_path: Path) -> None:
    """A stage that fails is told apart, and does not stop the next."""
    file = tmp_path / "report.json"
    run = _script(
        "--device", "cpu", "--small", "--stages", "errors,nothing", "--json", file, "--commit", "abc"
    )
    assert run.returncode == 1, run.stderr
    report = json.loads(file.read_text())
    assert report["facts"]["commit"] == "abc"
    assert report["stages"]["errors"]["passed"] and not report["stages"]["nothing"]["passed"]
    assert "KeyError: 'nothing'" in report["stages"]["nothing"]["error"]
    assert run.stdout.rstrip().endswith("1 of 2 stages passed; failed: nothing")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu() -> None:
    run = _script()
    assert run.returncode == 2
    assert run.stderr.startswith("gpu-check needs a GPU, and torch ")
    assert "sees no CUDA device" in run.stderr
