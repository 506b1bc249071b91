"""The checks for GPU machines run here on the CPU at tiny sizes, so that no slip of the pen waits for a GPU."""

import argparse
import importlib
import json
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest
import torch

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
STAGES = (
    "install", "ops", "scans", "kernels", "pytest", "bandwidth", "layer", "step", "network", "streams",
    "determinism", "exact", "graph", "autocast", "errors", "large", "convolution", "convolution_speed", "sanitizer",
    "training", "graph_training", "recurrent", "recurrent_speed",
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


@pytest.mark.slow
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


def test_a_call_for_some_stages_adds_to_the_report(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A command on a GPU machine is short: what found no time in the first one runs in a second."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    check = importlib.import_module("gpu_check")
    facts = {"commit": "abc", "device": "cuda", "torch": "2"}
    file = tmp_path / "report.json"
    assert check.earlier_stages(file, facts) == check.earlier_stages(None, facts) == {}
    check.write({"facts": facts, "stages": {"ops": {"passed": True}}}, file)
    assert check.earlier_stages(file, facts) == {"ops": {"passed": True}}
    assert check.earlier_stages(file, facts | {"commit": "def"}) == {}
    file.write_text("[]")
    assert check.earlier_stages(file, facts) == {}


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu() -> None:
    run = _script()
    assert run.returncode == 2
    assert run.stderr.startswith("gpu-check needs a GPU, and torch ")
    assert "sees no CUDA device" in run.stderr


def test_a_stage_that_hangs_keeps_its_output_and_leaves_nothing_running(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    check = importlib.import_module("gpu_check")
    child = f"import time; time.sleep(2); open({str(tmp_path / 'late')!r}, 'w')"
    script = tmp_path / "stage.py"
    script.write_text(
        "import subprocess, sys, time\n"
        f"subprocess.Popen([sys.executable, '-c', {child!r}])\n"
        "print('half way', flush=True)\ntime.sleep(60)\n"
    )
    monkeypatch.setattr(check, "__file__", str(script))
    result = check.run_stage("any", argparse.Namespace(device="cpu", small=True), 1.0)
    assert not result["passed"]
    assert result["error"] == "half way\ntook longer than 1 s"
    time.sleep(2.5)
    assert not (tmp_path / "late").exists()


def test_results_count_though_the_process_ends_badly(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    check = importlib.import_module("gpu_check")
    script = tmp_path / "stage.py"
    script.write_text(f"import os\nprint('{check.MARK}' + '{{}}', flush=True)\nos.abort()\n")
    monkeypatch.setattr(check, "__file__", str(script))
    result = check.run_stage("any", argparse.Namespace(device="cpu", small=True), 20.0)
    assert result["passed"] and result["end of the process"] == "exit status -6"
