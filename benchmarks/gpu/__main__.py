"""Builds, checks and measures snnlib on a GPU machine without network, in nine minutes: `make gpu-check`.

    python3 benchmarks/gpu [--build FOLDER] [--copy FOLDER] [--first] [--stages ops,step] [--device cpu --small]

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
import contextlib
import datetime
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stages import DONE, FIRST, RESULTS, STAGES, cuda_tool, note, run_stage

ROOT = Path(__file__).resolve().parents[2]
# Folder that `make gpu-bundle` leaves for a machine that has neither git nor, perhaps, what the build needs.
BUNDLE = ROOT / "build" / "gpu"
# The folder, which Python runs by this file.
PROGRAM = str(Path(__file__).parent)
# A machine that is lent for one command often gives it ten.
MINUTES = 9.0
# Compiling takes about 350 seconds of one core, which such a machine has a dozen of.
BUILD_LIMIT = 110
# Side by side; every stage is a process with torch.
LANES = 4
# Limits are those of a GPU machine; the program itself is tried where there may be two cores.
CPU_PATIENCE = 8
# Set when the whole run is to end: what runs is stopped, and nothing more is started.
STOPPING = threading.Event()


@dataclass(frozen=True)
class Ended:
    """A process that ended or was stopped."""

    status: int
    output: str
    seconds: float
    # Why it was stopped; empty where it ended by itself.
    stopped: str

    @property
    def why(self) -> str:
        """How it ended, where it did not end well."""
        return self.stopped or (f"exit status {self.status}" if self.status else "")

    @property
    def problem(self) -> str:
        """Returns the end of a stage's output and its error."""
        return f"{self.output.strip()[-3000:]}\n{self.why}".strip()


def run_process(
    title: str,
    command: Sequence[str],
    seconds: float,
    file: Path,
    environment: Mapping[str, str] | None = None,
) -> Ended:
    """Run a command; its output is added to `file` under the title, and nothing of the command is left running."""
    start, stopped = time.monotonic(), ""
    with file.open("ab") as output:
        output.write(f"\n== {title}\n".encode())
        output.flush()
        begin = output.tell()
        process = subprocess.Popen(
            # A group, not a session: whoever ends the session of the check ends this too.
            command, stdout=output, stderr=subprocess.STDOUT, env=environment, process_group=0,
        )  # fmt: skip
        try:
            while process.poll() is None and not stopped:
                if STOPPING.wait(0.05):
                    stopped = "stopped with the whole run"
                elif time.monotonic() > start + seconds:
                    stopped = f"took longer than {seconds:.0f} s"
        finally:
            # With what it left behind, which would run beside later measurements.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    status = process.wait()
    text = file.read_bytes()[begin:].decode(errors="replace")
    return Ended(status, text, round(time.monotonic() - start, 1), stopped)


class Report:
    """Facts and stages, in a JSON file that is whole at any time.

    Args:
        file: the JSON file.
        folder: gets a copy of it, and the outputs of stages; the file's own by default.
        facts: what the figures belong to.
    """

    def __init__(self, file: Path, folder: Path | None, facts: dict[str, str]) -> None:
        self.file, self.folder, self.facts = file, folder or file.parent, facts
        self.stages: dict[str, Any] = {}
        self._lock = threading.Lock()
        for place in (self.file.parent, self.folder):
            place.mkdir(parents=True, exist_ok=True)

    def output(self, lane: int) -> Path:
        """The file for what stages print that run one after another in this lane."""
        return self.folder / f"output-{lane}.txt"

    def add(self, name: str, stage: dict[str, Any]) -> None:
        """Note a stage that has ended, and write what is known."""
        with self._lock:
            self.stages[name] = stage
            self.write()
            print(f"{name:18} {'passed' if stage['passed'] else 'FAILED'} {stage['seconds']:6} s", flush=True)

    def write(self) -> None:
        """Writes the results so far, so that they survive the end of the run."""
        text = json.dumps({"facts": self.facts, "stages": self.stages}, indent=2) + "\n"
        for file in {self.file, self.folder / self.file.name}:
            partial = file.with_name(file.name + ".part")
            partial.write_text(text, encoding="utf-8")
            partial.replace(file)

    def add_earlier_stages(self) -> None:
        """Take over the stages of a report of the same code and device, which a call for some stages adds to."""
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            found = json.loads(self.file.read_text(encoding="utf-8"))
            if all(found["facts"][name] == self.facts[name] for name in ("commit", "device", "torch")):
                self.stages = dict(found["stages"])

    def print_table(self) -> None:
        for name, value in self.facts.items():
            print(f"{name:14} {value}")
        for name, stage in self.stages.items():
            print(f"\n{'passed' if stage['passed'] else 'FAILED'}  {name}  ({stage['seconds']} s)")
            if "end of the process" in stage:
                print(f"    the process ended with: {stage['end of the process']}")
            for key, value in stage.get("results", {}).items():
                print(f"    {key:62} {value}")
            if not stage["passed"]:
                # The end of a traceback says what failed.
                print("    " + "\n    ".join(stage["error"].splitlines()[-12:]))
        failed = [name for name, stage in self.stages.items() if not stage["passed"]]
        total, names = len(self.stages), f"; failed: {', '.join(failed)}" * bool(failed)
        print(f"\n{total - len(failed)} of {total} stages passed{names}")


def _line_of(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def facts(device: str, commit: str) -> dict[str, str]:
    """Returns machine, versions and commit of the figures; the commit is the one named, git's, or the bundle's."""
    import torch  # noqa: PLC0415

    noted = BUNDLE / "commit"
    found = {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": commit
        or _line_of("git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=12")
        or (noted.read_text(encoding="utf-8").strip() if noted.exists() else "unknown"),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "device": device,
    }
    if device == "cuda":
        found["device"] = torch.cuda.get_device_name()
        found["CUDA of torch"] = str(torch.version.cuda)
        found["cuDNN"] = str(torch.backends.cudnn.version())
        query = ("--query-gpu=driver_version", "--format=csv,noheader")
        found["driver"] = _line_of("nvidia-smi", *query) or "unknown"
    return found


def build_command(source: Path, folder: Path, architectures: str) -> list[str]:
    """Installs sources or a wheel into `folder/site`, with the machine's own packages and nothing from a network."""
    options = "--quiet --no-build-isolation --no-deps --no-index --upgrade"
    install = [sys.executable, "-m", "pip", "install", *options.split(), "--target", str(folder / "site")]
    if source.is_dir():
        define = "--config-settings=cmake.define."
        install += [
            f"--config-settings=build-dir={folder / 'cmake'}",
            f"{define}SNNLIB_CUDA=ON",
            # The kernels of narrower vectors would never be chosen.
            f"{define}SNNLIB_INSTRUCTION_SETS=NATIVE",
            f"{define}CMAKE_CUDA_ARCHITECTURES={architectures}",
        ]
    return [*install, str(source)]


def build(folder: Path, architectures: str, output: Path, limit: float = BUILD_LIMIT) -> dict[str, Any]:
    """The stage that installs: what is installed is among its results, and nothing if neither way works."""
    environment = dict(os.environ)
    # CMake looks on the PATH alone.
    if "CUDACXX" not in environment and (nvcc := cuda_tool("nvcc")):
        environment["CUDACXX"] = nvcc
    seconds, problems = 0.0, []
    for source in (ROOT, *sorted(BUNDLE.glob("*.whl"))):
        name, allowed = ("from the sources", limit) if source is ROOT else (source.name, 30)
        command = build_command(source, folder, architectures)
        ended = run_process(f"build {name}", command, allowed, output, environment)
        seconds = round(seconds + ended.seconds, 1)
        if not ended.why:
            peers = sorted((BUNDLE / "peers").glob("*.whl"))
            if peers:
                command = build_command(peers[0], folder, architectures)
                run_process("other libraries", [*command, *map(str, peers[1:])], allowed, output)
            stage = {"passed": source is ROOT, "seconds": seconds, "results": {"installed": name}}
            return stage | ({"error": "\n".join(problems)} if problems else {})
        problems.append(ended.problem if source is ROOT else f"{name}: {ended.problem}")
    return {"passed": False, "seconds": seconds, "results": {}, "error": "\n".join(problems)}


def patience(arguments: argparse.Namespace) -> int:
    """How many times its limit a stage may take."""
    return 1 if arguments.device == "cuda" else CPU_PATIENCE


def stage_apart(name: str, arguments: argparse.Namespace, seconds: float, output: Path) -> dict[str, Any]:
    """Results of a stage in a fresh process, and what went wrong."""
    command = [sys.executable, PROGRAM, "--stage", name, "--device", arguments.device]
    command += ["--small"] * arguments.small
    environment = dict(os.environ)
    if name in STAGES and not STAGES[name].alone:
        environment["OMP_NUM_THREADS"] = str(max(1, (os.cpu_count() or 1) // LANES))
    ended = run_process(name, command, seconds, output, environment)
    results: dict[str, Any] = {}
    lines = ended.output.splitlines()
    for line in lines:
        if line.startswith(RESULTS):
            results |= json.loads(line.removeprefix(RESULTS))
    stage: dict[str, Any] = {"passed": DONE in lines, "seconds": ended.seconds, "results": results}
    if not stage["passed"]:
        stage["error"] = ended.problem
    elif ended.why:
        # The checks are through; what came after them is the end of the process.
        stage["end of the process"] = ended.why
    return stage


def run_stages(names: list[str], arguments: argparse.Namespace, report: Report, end: float) -> None:
    """Runs stages that need the GPU alone one after another, then the others side by side, until this time."""

    def lane(waiting: deque[str], number: int) -> None:
        with contextlib.suppress(IndexError):
            while True:
                name = waiting.popleft()
                left = end - time.monotonic()
                limit = patience(arguments) * STAGES[name].limit if name in STAGES else 60
                if STOPPING.is_set() or left < 5:
                    report.add(name, {"passed": False, "seconds": 0, "error": "no time was left"})
                else:
                    report.add(name, stage_apart(name, arguments, min(limit, left), report.output(number)))

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
    tools = (["nvidia-smi"], [cuda_tool("nvcc") or "nvcc", "--version"])
    for command in (*tools, [sys.executable, "-m", "pip", "list", "--disable-pip-version-check"]):
        if shutil.which(command[0]):
            run_process(" ".join(command), command, 20, output)


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
    parser.add_argument("--small", action="store_true", help="tiny sizes, to try the program itself")
    parser.add_argument("--stages", help="names, separated by commas; default: all but those of --first")
    parser.add_argument(
        "--first", action="store_true", help="host, peers and other comparisons, in four minutes"
    )
    parser.add_argument("--kernels", help="names of kernels for the sanitizers, as a regular expression")
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
        note(run_stage(arguments.stage, arguments.device, arguments.small))
        print(DONE, flush=True)
        return 0

    end = time.monotonic() + arguments.minutes * 60
    problem = problem_with(arguments.device)
    if problem:
        print(f"gpu-check needs a GPU, and {problem}", file=sys.stderr)
        return 2
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: STOPPING.set())
    report = Report(arguments.json, arguments.copy, facts(arguments.device, arguments.commit))
    if arguments.stages or not arguments.build:
        report.add_earlier_stages()
    else:
        for lane in range(1, LANES + 1):
            report.output(lane).unlink(missing_ok=True)
    report.write()
    describe_machine(report.output(1))
    if arguments.build:
        folder = arguments.build.resolve()
        limit = patience(arguments) * BUILD_LIMIT
        report.add("build", build(folder, arguments.architectures, report.output(1), limit))
        if not report.stages["build"]["results"]:
            report.print_table()
            return 2
        path = [str(folder / "site"), *filter(None, [os.environ.get("PYTHONPATH")])]
        os.environ["PYTHONPATH"] = os.pathsep.join(path)
        os.environ["SNNLIB_CHECKED_SITE"] = str(folder / "site")
    if arguments.kernels:
        os.environ["SNNLIB_KERNELS"] = arguments.kernels
    names = [name for name in STAGES if (name in FIRST) == arguments.first]
    run_stages(arguments.stages.split(",") if arguments.stages else names, arguments, report, end)
    print()
    report.print_table()
    return 0 if all(stage["passed"] for stage in report.stages.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
