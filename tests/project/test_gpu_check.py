"""The checks for GPU machines run here on the CPU at tiny sizes, so that no slip of the pen waits for a GPU."""

import argparse
import heapq
import importlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest
import torch
from script import ROOT, script

PROGRAM = ROOT / "benchmarks" / "gpu"
STAGES = (
    "install", "ops", "scans", "kernels", "pytest", "bandwidth", "step", "vgg", "network", "streams",
    "determinism", "exact", "graph", "autocast", "errors", "large", "convolution", "memcheck", "racecheck",
    "synccheck", "initcheck", "accuracy", "recurrent", "recurrent_speed", "host", "launches", "peers", "captured",
    "batch_norm",
)  # fmt: skip


@pytest.fixture(autouse=True)
def _path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(PROGRAM)


@pytest.fixture
def stages() -> ModuleType:
    return importlib.import_module("stages")


@pytest.fixture
def check() -> ModuleType:
    return script("benchmarks/gpu/__main__.py")


@pytest.mark.parametrize("name", STAGES)
def test_stage(name: str, stages: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    """Programs that a stage starts are started too: they read their arguments and import what they need."""
    results = stages.run_stage(name, "cpu", True, whole=False)
    assert results
    assert json.loads(json.dumps(results)) == results
    for line in capsys.readouterr().out.splitlines():
        # Not of a program that it started.
        assert not line.startswith(stages.DONE)
        if line.startswith(stages.RESULTS):
            assert json.loads(line.removeprefix(stages.RESULTS))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_compiled_stage(stages: ModuleType) -> None:
    torch._dynamo.reset()
    assert stages.run_stage("compiled", "cpu", True)


def test_every_stage_is_here(stages: ModuleType) -> None:
    assert {*STAGES, "compiled"} == set(stages.STAGES)


def test_all_stages_fit_into_one_call(stages: ModuleType, check: ModuleType) -> None:
    """Even if every one of them takes all the time that it may; those of `--first` into four minutes."""
    assert sum(stages.STAGES[name].limit for name in stages.FIRST) <= 240
    others = [stage for name, stage in stages.STAGES.items() if name not in stages.FIRST]
    alone = sum(stage.limit for stage in others if stage.alone)
    lanes = [0.0] * check.LANES
    for stage in others:
        if not stage.alone:
            # The next stage goes to the lane that is free first.
            heapq.heappush(lanes, heapq.heappop(lanes) + stage.limit)
    assert check.BUILD_LIMIT + alone + max(lanes) <= check.MINUTES * 60


def test_the_installer_takes_the_command(
    check: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = check.build_command(ROOT, tmp_path, "90")
    monkeypatch.delenv("PIP_NO_COMPILE", raising=False)
    done = subprocess.run([*command, "--dry-run"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_stage_that_hangs_keeps_its_output_and_results_and_leaves_nothing_running(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, check: ModuleType, stages: ModuleType
) -> None:
    child = f"import time; time.sleep(2); open({str(tmp_path / 'late')!r}, 'w')"
    lines = (
        "import json, subprocess, sys, time",
        f"subprocess.Popen([sys.executable, '-c', {child!r}])",
        f"print({stages.RESULTS!r} + json.dumps({{'first': 1}}), flush=True)",
        "print('half way', flush=True)",
        "time.sleep(60)",
    )
    (tmp_path / "stage.py").write_text("\n".join(lines))
    monkeypatch.setattr(check, "PROGRAM", str(tmp_path / "stage.py"))
    arguments = argparse.Namespace(device="cpu", small=True)
    result = check.stage_apart("any", arguments, 1.0, tmp_path / "output.txt")
    assert not result["passed"]
    assert str(result["error"]).endswith("half way\ntook longer than 1 s")
    assert result["results"] == {"first": 1}
    assert "half way" in (tmp_path / "output.txt").read_text()
    time.sleep(2.5)
    assert not (tmp_path / "late").exists()


# The script itself, with stages `quick` and `endless`.
DRIVER = """
import sys
sys.path[:0] = [{helpers!r}, {program!r}]
from script import script
check = script("benchmarks/gpu/__main__.py")
check.PROGRAM = {stage!r}
check.LANES = 2
# torch is not needed for this.
check.problem_with = lambda device: ""
check.facts = lambda device, commit: {{"commit": commit, "device": device, "torch": "2"}}
sys.argv = ["gpu", "--device", "cpu", "--stages", "quick,endless", "--commit", "abc"]
sys.argv += ["--json", {report!r}, "--copy", {copy!r}]
sys.exit(check.main())
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["ended", "killed"])
def test_a_run_that_is_stopped_leaves_what_it_knows(
    number: signal.Signals, tmp_path: Path, stages: ModuleType
) -> None:
    stage = tmp_path / "stage.py"
    stage.write_text(
        "import os, pathlib, sys, time\n"
        "if 'endless' in sys.argv:\n"
        f"    pathlib.Path({str(tmp_path / 'pid')!r}).write_text(str(os.getpid()))\n"
        "    print('half way', flush=True)\n"
        "    time.sleep(600)\n"
        f"print({stages.DONE!r})\n"
    )
    kept, copy = tmp_path / "kept" / "report.json", tmp_path / "copy"
    driver = DRIVER.format(
        helpers=str(ROOT / "tests" / "helpers"),
        program=str(PROGRAM),
        stage=str(stage),
        report=str(kept),
        copy=str(copy),
    )
    command = [sys.executable, "-c", driver]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("quick") and "passed" in line
        endless = copy / "output-2.txt"
        while not endless.exists() or "half way" not in endless.read_text():
            time.sleep(0.05)
        process.send_signal(number)
        rest = process.stdout.read() if number == signal.SIGTERM else ""
        status = process.wait()
    if number == signal.SIGKILL:
        # Groups of their own: what ends a session, as the end of a container, would end these.
        os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
    for file in (kept, copy / "report.json"):
        report = json.loads(file.read_text())
        assert report["facts"]["commit"] == "abc"
        assert report["stages"]["quick"]["passed"]
    if number == signal.SIGTERM:
        assert status == 1
        assert report["stages"]["endless"]["error"] == "half way\nstopped with the whole run"
        assert rest.rstrip().endswith("1 of 2 stages passed; failed: endless")


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_dry_run(tmp_path: Path, stages: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every command of the run on a GPU to its end: the build with kernels, all stages, an epoch of training."""
    if stages.cuda_tool("nvcc") is None:
        pytest.skip("there is no nvcc")
    # An architecture by name, as there is no GPU to ask.
    options = ("--device", "cpu", "--small", "--minutes", "35", "--architectures", "90")
    folders = ("--copy", tmp_path / "out", "--json", tmp_path / "report.json")
    command = [sys.executable, PROGRAM, *options, *folders]
    # Stands for the file that leads imports to the sources, where the package is installed as it lies.
    (tmp_path / "_editable_skbc_snnlib.py").touch()
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path / "build" / "site"), str(tmp_path)]))
    for way in (("--first", "--build", tmp_path / "build"), ()):
        run = subprocess.run([*command, *way], capture_output=True, text=True, check=False, timeout=2300)
        assert run.returncode == 0, run.stdout + run.stderr
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert set(report["stages"]) == {*STAGES, "compiled", "build"}
    assert report["stages"]["build"]["results"] == {"installed": "from the sources"}
    assert "for 90" in report["stages"]["install"]["results"]["CUDA"]
    assert report["stages"]["accuracy"]["results"]["32-true, per cent after an epoch"]
    assert "yes" in report["stages"]["captured"]["results"]["loss after"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu(
    check: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["gpu"])
    assert check.main() == 2
    error = capsys.readouterr().err
    assert error.startswith("gpu-check needs a GPU, and torch ")
    assert "sees no CUDA device" in error
