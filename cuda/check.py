"""Compiles the CUDA kernels with warnings as errors, and refuses kernels that spill registers.

    python cuda/check.py

Machine code is made for the oldest generation that nvcc 13 knows and for Hopper: the sources ask nowhere for the
architecture, so what compiles for both compiles for those between, at a fraction of the time. A kernel whose registers
do not suffice keeps values in slow memory; ptxas reports that, and here it is an error. Skips without nvcc.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build" / "cuda-check"
ARCHITECTURES = ("sm_75", "sm_90")
# Lines of ptxas: "Compiling entry function '<name>' for 'sm_90'", then the memory that the function uses.
ENTRY = re.compile(r"Compiling entry function '(\S+)' for '(sm_\w+)'")
MEMORY = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")


def spills(report: str) -> tuple[set[str], list[str]]:
    """Architectures in a report of `ptxas -v`, and the kernels in it that use local memory."""
    architectures: set[str] = set()
    found: list[str] = []
    kernel = ""
    for line in report.splitlines():
        if entry := ENTRY.search(line):
            kernel = f"{entry[1]} for {entry[2]}"
            architectures.add(entry[2])
        elif (memory := MEMORY.search(line)) and any(int(count) for count in memory.groups()):
            found.append(f"{kernel}: {memory[0]}")
    return architectures, found


def compile_kernels() -> str:
    """What nvcc and ptxas say about a build from scratch."""
    pybind11 = importlib.util.find_spec("pybind11")
    folder = (
        pybind11.submodule_search_locations[0] if pybind11 and pybind11.submodule_search_locations else ""
    )
    # The programs of this Python's environment come first, as in a build by pip.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path}
    commands = (
        [
            *("cmake", "-S", str(ROOT), "-B", str(BUILD), "-G", "Ninja", "-DSNNLIB_CUDA=ON"),
            "-DCMAKE_CUDA_ARCHITECTURES=" + ";".join(name[3:] + "-real" for name in ARCHITECTURES),
            *(
                "-DCMAKE_CUDA_FLAGS=-Xptxas=-v --Werror=all-warnings",
                f"-Dpybind11_DIR={folder}/share/cmake/pybind11",
            ),
            f"-DPYTHON_EXECUTABLE={sys.executable}",
        ],
        ["cmake", "--build", str(BUILD), "--target", "snnlib_cuda"],
    )
    output = ""
    for command in commands:
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        output = done.stdout + done.stderr
        if done.returncode:
            sys.exit(f"{' '.join(command)} failed:\n{output}")
    return output


def main() -> None:
    """Compile and judge."""
    if shutil.which("nvcc") is None:
        print("cuda-check skipped: there is no nvcc on the PATH")
        return
    shutil.rmtree(BUILD, ignore_errors=True)
    report = compile_kernels()
    architectures, found = spills(report)
    if architectures != set(ARCHITECTURES):
        sys.exit(f"expected code for {', '.join(ARCHITECTURES)}, got {sorted(architectures)}")
    if found:
        names = subprocess.run(
            ["c++filt"], input="\n".join(found), capture_output=True, text=True, check=False
        )
        sys.exit(f"kernels that use local memory:\n{names.stdout or found}")
    kernels = len(ENTRY.findall(report))
    print(
        f"cuda-check passed: {kernels} kernels for {', '.join(sorted(architectures))}, none uses local memory"
    )


if __name__ == "__main__":
    main()
