"""Compiles the CUDA kernels with warnings as errors, and refuses kernels that spill registers.

    python cuda/check.py

Machine code is made for the oldest generation that nvcc 13 knows and for Hopper: the sources ask nowhere for the
architecture, so what compiles for both compiles for those between, at a fraction of the time. A kernel whose registers
do not suffice keeps values in slow memory; ptxas reports that, and here it is an error. Where there is a disassembler
(cuobjdump of CUDA or of Triton's wheel), the kernels for 2 x 2 pooling on Hopper are held to a number of instructions
per window and to loads of 16 bytes. Skips without nvcc.
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
USED = re.compile(r"Used (\d+) registers")
# Instructions per window that memory leaves time for, with the windows of a thread: at 4.3 TB/s an H200 issues 33e12.
MOST_INSTRUCTIONS = 30
PAIRS = re.compile(r"pair_forward_kernel<(float|__half|__nv_bfloat16), (\d), (true|false), true>")
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


def registers(report: str, architecture: str) -> dict[str, int]:
    """Registers of every kernel for one architecture."""
    found: dict[str, int] = {}
    kernel = ""
    for line in report.splitlines():
        if entry := ENTRY.search(line):
            kernel = entry[1] if entry[2] == architecture else ""
        elif kernel and (used := USED.search(line)):
            found[kernel] = int(used[1])
    return found


def demangled(text: str) -> str:
    """C++ names as in the sources, where there is c++filt."""
    if shutil.which("c++filt") is None:
        return text
    return subprocess.run(["c++filt"], input=text, capture_output=True, text=True, check=True).stdout


def instructions(assembly: str) -> dict[str, list[str]]:
    """Instructions of every kernel in what cuobjdump prints, without the padding behind the end."""
    found: dict[str, list[str]] = {}
    now: list[str] = []
    for line in assembly.splitlines():
        if "Function : " in line:
            now = found.setdefault(line.partition("Function : ")[2], [])
        elif step := re.match(r"\s*/\*[0-9a-f]{4,}\*/\s+(.*?);", line):
            now.append(step[1])
    return {
        name: [step for step in steps if not step.startswith(("NOP", "BRA"))] for name, steps in found.items()
    }


def check_pools(kernels: dict[str, list[str]]) -> list[str]:
    """One line per kernel of the 2 x 2 pools; raises SystemExit above the bound or without loads of 16 bytes."""
    lines = []
    for name, steps in kernels.items():
        if not (match := PAIRS.search(name)):
            continue
        cells, channels_last = int(match[2]), match[3] == "true"
        per_window = len(steps) / (cells if channels_last else cells // 2)
        loads = [step for step in steps if "LDG" in step]
        lines.append(f"{match[0]}: {per_window:.1f} instructions per window, {len(loads)} loads of 16 bytes")
        if per_window > MOST_INSTRUCTIONS or not all("LDG.E.128" in load for load in loads):
            sys.exit(f"expected at most {MOST_INSTRUCTIONS} and whole vectors: {lines[-1]}: {loads}")
    if not lines:
        sys.exit("expected kernels for 2 x 2 pooling, got none")
    return lines


def disassembler() -> Path | None:
    """Where cuobjdump is: on the PATH or in Triton's wheel."""
    if tool := shutil.which("cuobjdump"):
        return Path(tool)
    triton = importlib.util.find_spec("triton")
    for folder in (triton.submodule_search_locations or ()) if triton else ():
        tool = Path(folder, "backends", "nvidia", "bin", "cuobjdump")
        if tool.exists():
            return tool
    return None


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
        sys.exit("kernels that use local memory:\n" + demangled("\n".join(found)))
    used = registers(report, "sm_90")
    print(demangled("\n".join(f"{count:4} registers  {name}" for name, count in sorted(used.items()))))
    tool = disassembler()
    if tool is None:
        print("instructions were not counted: there is no cuobjdump")
    else:
        (binary,) = BUILD.rglob("pool.cu.o")
        # It calls nvdisasm, which lies beside it.
        path = os.pathsep.join([str(tool.parent), os.environ["PATH"]])
        assembly = subprocess.run(
            [tool, "-arch", "sm_90", "-sass", binary],
            capture_output=True, text=True, check=True, env={**os.environ, "PATH": path},
        ).stdout  # fmt: skip
        print("\n".join(check_pools(instructions(demangled(assembly)))))
    kernels = len(ENTRY.findall(report))
    print(
        f"cuda-check passed: {kernels} kernels for {', '.join(sorted(architectures))}, none uses local memory"
    )


if __name__ == "__main__":
    main()
