"""Builds, checks and measures snnlib on a GPU machine without network, in nine minutes: `make gpu-check`.

    python3 benchmarks/gpu [--build FOLDER] [--copy FOLDER] [--stages ops,step] [--device cpu --small]

Uses the python3 at hand with its torch, cmake, ninja, pybind11, scikit-build-core and nvcc; installs into FOLDER and
nowhere else. If the sources do not build, the wheel of build/gpu is installed, which `make gpu-bundle` makes elsewhere.
Each stage of stages.py runs in a process group of its own with a time limit, so that one that fails or hangs does
not stop the others and leaves nothing running. Those that measure have the GPU one after another; the others follow,
four at a time. The report is written anew after every stage, the output of a stage as it comes, and a table last. A
signal to end stops what runs and still gives the table.
Exit status: 0 if every stage passed, 1 if one failed, 2 without a GPU or if there is nothing to check.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
import time
from collections import deque
from pathlib import Path
from typing import Any

from . import build, processes
from .report import ROOT, Report, facts
from .stages import DONE, RESULTS, STAGES, note, run

# The folder, which Python runs by its __main__.py.
PROGRAM = str(Path(__file__).parent)
# A machine that is lent for one command often gives it ten.
MINUTES = 9.0
# Side by side; such a machine has a dozen cores, and every stage is a process with torch.
LANES = 4
# Limits are those of a GPU machine; the script itself is tried where there may be two cores.
CPU_PATIENCE = 8


def patience(arguments: argparse.Namespace) -> int:
    """How many times its limit a stage may take."""
    return 1 if arguments.device == "cuda" else CPU_PATIENCE


def run_stage(name: str, arguments: argparse.Namespace, seconds: float, output: Path) -> dict[str, Any]:
    """Results of a stage in a fresh process, and what went wrong."""
    command = [sys.executable, PROGRAM, "--stage", name, "--device", arguments.device]
    command += ["--small"] * arguments.small
    environment = dict(os.environ)
    if name in STAGES and not STAGES[name].alone:
        environment["OMP_NUM_THREADS"] = str(max(1, (os.cpu_count() or 1) // LANES))
    ended = processes.run(name, command, seconds, output, environment)
    results: dict[str, Any] = {}
    lines = ended.output.splitlines()
    for line in lines:
        if line.startswith(RESULTS):
            results |= json.loads(line.removeprefix(RESULTS))
    stage: dict[str, Any] = {"passed": DONE in lines, "seconds": ended.seconds, "results": results}
    if not stage["passed"]:
        stage["error"] = ended.problem
    elif not ended.well:
        # The checks are through; what came after them is the end of the process.
        stage["end of the process"] = ended.stopped or f"exit status {ended.status}"
    return stage


def run_stages(names: list[str], arguments: argparse.Namespace, report: Report, end: float) -> None:
    """Those that need the GPU alone one after another, then the others side by side, until this time."""

    def lane(waiting: deque[str], number: int) -> None:
        while waiting:
            try:
                name = waiting.popleft()
            except IndexError:
                return
            left = end - time.monotonic()
            limit = patience(arguments) * STAGES[name].limit if name in STAGES else 60
            if processes.STOPPING.is_set() or left < 5:
                report.add(name, {"passed": False, "seconds": 0, "error": "no time was left"})
            else:
                report.add(name, run_stage(name, arguments, min(limit, left), report.output(number)))

    alone = deque(name for name in names if name in STAGES and STAGES[name].alone)
    beside = deque(name for name in names if name not in alone)
    lane(alone, 1)
    threads = [threading.Thread(target=lane, args=(beside, number + 1)) for number in range(LANES)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def describe_machine(output: Path) -> None:
    """Into the output: what the machine has and has installed."""
    tools = (["nvidia-smi"], [build.cuda_tool("nvcc") or "nvcc", "--version"])
    for command in (*tools, [sys.executable, "-m", "pip", "list", "--disable-pip-version-check"]):
        try:
            processes.run(" ".join(command), command, 20, output)
        except FileNotFoundError:
            continue


def problem_with(device: str) -> str:
    """Why the checks cannot run on this machine; empty if they can."""
    try:
        import torch  # noqa: PLC0415
    except ImportError:
        return f"{sys.executable} has no torch"
    if device == "cuda" and not torch.cuda.is_available():
        return f"torch {torch.__version__} of {sys.executable} sees no CUDA device"
    return ""


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--build", type=Path, help="install the package into this folder first, and use it")
    parser.add_argument("--architectures", default="native", help="of the build, in CMake's words")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--small", action="store_true", help="tiny sizes, to try the script itself")
    parser.add_argument("--stages", help="names, separated by commas; default: all")
    parser.add_argument("--json", type=Path, default=ROOT / "build" / "gpu-check" / "report.json")
    parser.add_argument(
        "--copy", type=Path, help="write the report here too, and the outputs; default: beside the report"
    )
    parser.add_argument("--commit", default="", help="default: git's, or what build/gpu/commit says")
    parser.add_argument("--minutes", type=float, default=MINUTES, help="after which nothing more is started")
    parser.add_argument("--stage", help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> int:
    arguments = _arguments()
    if arguments.stage:
        note(run(arguments.stage, arguments.device, arguments.small))
        print(DONE, flush=True)
        return 0

    end = time.monotonic() + arguments.minutes * 60
    problem = problem_with(arguments.device)
    if problem:
        print(f"gpu-check needs a GPU, and {problem}", file=sys.stderr)
        return 2
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: processes.STOPPING.set())
    report = Report(arguments.json, arguments.copy, facts(arguments.device, arguments.commit))
    if arguments.stages:
        report.add_earlier_stages()
    else:
        for lane in range(1, LANES + 1):
            report.output(lane).unlink(missing_ok=True)
    report.write()
    describe_machine(report.output(1))
    if arguments.build:
        folder = arguments.build.resolve()
        limit = patience(arguments) * build.LIMIT
        report.add("build", build.build(folder, arguments.architectures, report.output(1), limit))
        if not report.stages["build"]["results"]:
            report.print_table()
            return 2
        path = [str(folder / "site"), *filter(None, [os.environ.get("PYTHONPATH")])]
        os.environ["PYTHONPATH"] = os.pathsep.join(path)
        os.environ["SNNLIB_CHECKED_SITE"] = str(folder / "site")
    run_stages(arguments.stages.split(",") if arguments.stages else list(STAGES), arguments, report, end)
    print()
    report.print_table()
    return 0 if all(stage["passed"] for stage in report.stages.values()) else 1
