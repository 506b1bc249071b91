"""Builds, checks and measures snnlib on a GPU machine without network: `make gpu-check`.

    python3 benchmarks/gpu_check.py [--build FOLDER] [--stages ops,step] [--json FILE] [--device cpu --small]

Uses the python3 at hand with its torch, cmake, ninja, pybind11, scikit-build-core and nvcc; installs into FOLDER and
nowhere else. Each stage of gpu_stages.py runs in a process group of its own with a time limit, so that one that fails
or hangs does not stop the others and leaves nothing running; all end within 9 minutes. benchmarks/results/<gpu>.json is
written anew after every stage, and a table is printed last.
Exit status: 0 if every stage passed, 1 if one failed, 2 without a GPU or if the build fails.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
MINUTES = 9.0
# Marks the line of a stage's output that holds its results.
MARK = "RESULTS "


def build(folder: Path, architectures: str) -> None:
    """Install the package into `folder/site`, with the machine's own packages and nothing from a network."""
    define = "--config-settings=cmake.define."
    options = "--quiet --no-build-isolation --no-deps --no-index --upgrade"
    command = [
        *(sys.executable, "-m", "pip", "install", *options.split(), "--target", str(folder / "site")),
        f"--config-settings=build-dir={folder / 'cmake'}",
        f"{define}SNNLIB_CUDA=ON",
        f"{define}CMAKE_CUDA_ARCHITECTURES={architectures}",
        str(ROOT),
    ]
    subprocess.run(command, check=True, timeout=240)


def run_stage(name: str, arguments: argparse.Namespace, seconds: float) -> dict[str, Any]:
    """Results of a stage in a fresh process, or what went wrong."""
    command = [sys.executable, __file__, "--stage", name, "--device", arguments.device]
    command += ["--small"] * arguments.small
    start = time.monotonic()
    ended = ""
    # A file, so that the output of a stage that is stopped is kept.
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as file:
        process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            status = process.wait(seconds)
        except subprocess.TimeoutExpired:
            ended = f"took longer than {seconds:.0f} s"
        finally:
            _stop_group(process)
        file.seek(0)
        output = file.read()
    took: dict[str, Any] = {"seconds": round(time.monotonic() - start, 1)}
    found = re.search(f"^{MARK}(.*)$", output, re.MULTILINE)
    if found:
        # The checks are through; what came after them is the end of the process.
        if ended or status:
            took["end of the process"] = ended or f"exit status {status}"
        return {"passed": True, **took, "results": json.loads(found[1])}
    return {"passed": False, **took, "error": f"{output.strip()[-3000:]}\n{ended}".strip()}


def _stop_group(process: subprocess.Popen[bytes]) -> None:
    """End what a stage started and left behind: it would run beside later measurements."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def facts(device: str, commit: str) -> dict[str, str]:
    """What the figures belong to."""
    import torch  # noqa: PLC0415

    found = {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": commit or _commit(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "device": device,
    }
    if device == "cuda":
        found["device"] = torch.cuda.get_device_name()
        found["CUDA of torch"] = str(torch.version.cuda)
        found["cuDNN"] = str(torch.backends.cudnn.version())
        query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        try:
            found["driver"] = subprocess.run(query, capture_output=True, text=True, check=True).stdout.strip()
        except (OSError, subprocess.CalledProcessError):
            found["driver"] = "unknown"
    return found


def _commit() -> str:
    try:
        command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=12"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def print_table(report: dict[str, Any]) -> None:
    for name, value in report["facts"].items():
        print(f"{name:14} {value}")
    for name, stage in report["stages"].items():
        print(f"\n{'passed' if stage['passed'] else 'FAILED'}  {name}  ({stage['seconds']} s)")
        if "end of the process" in stage:
            print(f"    the process ended with: {stage['end of the process']}")
        for key, value in stage.get("results", {}).items():
            print(f"    {key:58} {value}")
        if not stage["passed"]:
            # The end of a traceback says what failed.
            print("    " + "\n    ".join(stage["error"].splitlines()[-12:]))
    failed = [name for name, stage in report["stages"].items() if not stage["passed"]]
    total = len(report["stages"])
    print(
        f"\n{total - len(failed)} of {total} stages passed" + f"; failed: {', '.join(failed)}" * bool(failed)
    )


def write(report: dict[str, Any], file: Path | None) -> None:
    """What is known so far; whatever ends this run, it stays."""
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        partial = file.with_name(file.name + ".part")
        partial.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
        partial.replace(file)


def earlier_stages(file: Path | None, facts: dict[str, str]) -> dict[str, Any]:
    """Stages of a report of the same code and device, which a call for some stages adds to."""
    try:
        found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file is not None else {}
        same = all(found["facts"][name] == facts[name] for name in ("commit", "device", "torch"))
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return dict(found["stages"]) if same else {}


def problem_with(device: str) -> str:
    """Why the checks cannot run on this machine; empty if they can."""
    try:
        import torch  # noqa: PLC0415
    except ImportError:
        return f"{sys.executable} has no torch"
    if device == "cuda" and not torch.cuda.is_available():
        return f"torch {torch.__version__} of {sys.executable} sees no CUDA device"
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--build", type=Path, help="install the package into this folder first, and use it")
    parser.add_argument("--architectures", default="native", help="of the build, in CMake's words")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--small", action="store_true", help="tiny sizes, to try the script itself")
    parser.add_argument("--stages", help="names, separated by commas; default: all")
    parser.add_argument("--json", type=Path, help="default: benchmarks/results/<gpu>.json; none on a CPU")
    parser.add_argument("--commit", default="", help="where the sources have no .git")
    parser.add_argument("--stage", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.stage:
        import gpu_stages  # noqa: PLC0415

        print(MARK + json.dumps(gpu_stages.run(arguments.stage, arguments.device, arguments.small)))
        return 0

    start = time.monotonic()
    problem = problem_with(arguments.device)
    if problem:
        print(f"gpu-check needs a GPU, and {problem}", file=sys.stderr)
        return 2
    if arguments.build:
        try:
            build(arguments.build.resolve(), arguments.architectures)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            print(f"gpu-check: the build failed: {error}", file=sys.stderr)
            return 2
        path = [str(arguments.build.resolve() / "site"), *filter(None, [os.environ.get("PYTHONPATH")])]
        os.environ["PYTHONPATH"] = os.pathsep.join(path)
        os.environ["SNNLIB_CHECKED_SITE"] = str(arguments.build.resolve() / "site")
    report: dict[str, Any] = {"facts": facts(arguments.device, arguments.commit), "stages": {}}
    report["facts"]["seconds to build"] = str(round(time.monotonic() - start, 1))
    from gpu_stages import LIMITS  # noqa: PLC0415

    file = arguments.json
    if file is None and arguments.device == "cuda":
        gpu = re.sub(r"[^a-z0-9]+", "-", report["facts"]["device"].lower())
        file = ROOT / "benchmarks" / "results" / f"{gpu}.json"
    if arguments.stages:
        report["stages"] = earlier_stages(file, report["facts"])
    write(report, file)
    for name in arguments.stages.split(",") if arguments.stages else LIMITS:
        left = MINUTES * 60 - (time.monotonic() - start)
        if left < 10:
            report["stages"][name] = {"passed": False, "seconds": 0, "error": "no time was left"}
        else:
            report["stages"][name] = run_stage(name, arguments, min(LIMITS.get(name, 60), left))
        print(name, "passed" if report["stages"][name]["passed"] else "FAILED", flush=True)
        write(report, file)
    print()
    print_table(report)
    return 0 if all(stage["passed"] for stage in report["stages"].values()) else 1


if __name__ == "__main__":
    sys.exit(main())
