"""Compiles the CUDA kernels with warnings as errors, and refuses kernels that spill registers.

    python cuda/check.py [sm_75 sm_90]

Machine code is made for the oldest generation that nvcc 13 knows and for Hopper: the sources ask nowhere for the
architecture, so what compiles for both compiles for those between, at a fraction of the time; `compute_75` compiles for
it up to PTX, which takes half as long and leaves its registers unchecked. A kernel whose registers
do not suffice keeps values in slow memory; ptxas reports that, and here it is an error. Where there is a disassembler
(cuobjdump of CUDA or of Triton's wheel), kernels for Hopper are held to a number of instructions per neuron and step or
per window and to the width of their loads, and the share of a copy's speed that follows is printed. Skips without nvcc.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from assembly import (
    ADJOINT,
    ANY_ADJOINT,
    BACKWARD,
    EVENTS,
    FORWARD,
    POOLED_ADJOINT,
    POOLED_CREDIT,
    POOLED_FORWARD,
    POOLED_LAST_ADJOINT,
    POOLED_LAST_FORWARD,
    POOLED_WEIGHT_CREDIT,
    RECIPROCAL_ADJOINT,
    Instruction,
    Phase,
    functions,
    per_step,
)

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build" / "cuda-check"
ARCHITECTURES = ("sm_75", "sm_90")
# Lines of ptxas: "Compiling entry function '<name>' for 'sm_90'", then the memory that the function uses.
USED = re.compile(r"Used (\d+) registers")
# Instructions per window that memory leaves time for, with the windows of a thread: at 4.3 TB/s an H200 issues 33e12.
MOST_INSTRUCTIONS = 30
PAIRS = re.compile(r"pair_forward_kernel<(float|__half|__nv_bfloat16), (\d), (true|false), true>")
# Cells of 16 bytes.
_VECTOR = {"float": 4, "__half": 8, "__nv_bfloat16": 8}
# Lane instructions and bytes copied per second by an H200: 132 multiprocessors at 1.98 GHz issue 4 x 32 each.
ISSUED, COPIED = 33.4e12, 4.3e12


class Bound(NamedTuple):
    """Bounds of the instructions and bytes of a neuron-step.

    The groups of the pattern are the element type and the number of neurons of a thread.
    """

    name: str
    pattern: str
    phases: tuple[Phase, ...]
    neurons: dict[str, int]
    tensors: float  # of the current's size that are read or written
    most: dict[str, float]
    # Rows of so many neurons that a thread has.
    rows: int = 1


_TYPES = "(float|__half|__nv_bfloat16)"
# Currents as they are; kernels that normalise them do more per step.
_PLAIN = "snnlib::cuda::AsTheyAre"
_PAIRS, _PACKS = {"float": 2, "__half": 2, "__nv_bfloat16": 2}, _VECTOR
_HALVES = {"float": 1, "__half": 2, "__nv_bfloat16": 2}
BOUNDS = (
    Bound("SRM forward", rf"srm_forward_kernel<{_TYPES}, (\d)>", FORWARD, _PACKS, 2,
          {"float": 16, "__half": 16, "__nv_bfloat16": 16}),
    Bound("SRM backward", rf"srm_backward_kernel<{_TYPES}, (\d), true>", BACKWARD, _PAIRS, 4,
          {"float": 43, "__half": 45, "__nv_bfloat16": 45}),
    Bound("SRM backward, weights only", rf"srm_backward_kernel<{_TYPES}, (\d), false>", BACKWARD, _PAIRS, 3,
          {"float": 43, "__half": 45, "__nv_bfloat16": 45}),
    Bound("LIF forward", rf"::forward_kernel<{_TYPES}, 1, false, false, (\d), false, {_PLAIN}>", FORWARD, _HALVES, 2,
          {"float": 18, "__half": 16, "__nv_bfloat16": 16}),
    Bound("LIF backward, triangle", rf"::backward_kernel<{_TYPES}, 1, false, false, false, (\d), false, {_PLAIN}>",
          ADJOINT, _HALVES, 3, {"float": 36, "__half": 31, "__nv_bfloat16": 31}),
    Bound("LIF backward, ATan", rf"::backward_kernel<{_TYPES}, 1, false, false, false, (\d), false, {_PLAIN}>",
          RECIPROCAL_ADJOINT, _HALVES, 3, {"float": 39, "__half": 34, "__nv_bfloat16": 34}),
    Bound("Izhikevich forward", rf"::forward_kernel<{_TYPES}, 2, false, true, (\d), false, {_PLAIN}>",
          FORWARD, _HALVES, 2, {"float": 47}),
    Bound("Izhikevich backward", rf"::backward_kernel<{_TYPES}, 2, false, false, true, (\d), false, {_PLAIN}>",
          ANY_ADJOINT, _HALVES, 3, {"float": 191}),
    Bound("BRF forward", rf"::forward_kernel<{_TYPES}, 3, false, true, (\d), false, {_PLAIN}>", FORWARD, _HALVES, 2,
          {"float": 69}),
    Bound("BRF backward, learned", rf"::backward_kernel<{_TYPES}, 3, false, true, true, (\d), false, {_PLAIN}>",
          ANY_ADJOINT, _HALVES, 4, {"float": 331}),
    Bound("LIF and pool forward", rf"scan_pool_forward_kernel<{_TYPES}, (\d), false, {_PLAIN}>",
          POOLED_FORWARD, _PAIRS, 1.25, {"float": 15, "__half": 16, "__nv_bfloat16": 16}, 2),
    Bound("LIF and pool backward, triangle", rf"scan_pool_backward_kernel<{_TYPES}, (\d), false, {_PLAIN}>",
          POOLED_ADJOINT, _PAIRS, 2.25, {"float": 28, "__half": 33, "__nv_bfloat16": 33}, 2),
    Bound("LIF and pool forward, channels-last", rf"scan_pool_forward_kernel<{_TYPES}, (\d), true, {_PLAIN}>",
          POOLED_LAST_FORWARD, _HALVES, 1.25, {"float": 17, "__half": 16, "__nv_bfloat16": 16}, 4),
    Bound("LIF and pool backward, triangle, channels-last",
          rf"scan_pool_backward_kernel<{_TYPES}, (\d), true, {_PLAIN}>", POOLED_LAST_ADJOINT,
          _HALVES, 2.25, {"float": 32, "__half": 30, "__nv_bfloat16": 30}, 4),
    Bound("SRM and pool forward", rf"srm_pool_forward_kernel<{_TYPES}, (\d), false>", POOLED_FORWARD, _PAIRS, 1.25,
          {"float": 15, "__half": 17, "__nv_bfloat16": 17}, 2),
    Bound("SRM and pool backward", rf"srm_pool_backward_kernel<{_TYPES}, (\d), false, true>", POOLED_CREDIT, _PAIRS,
          3.25, {"float": 52, "__half": 56, "__nv_bfloat16": 56}, 2),
    Bound("SRM and pool backward, weights only", rf"srm_pool_backward_kernel<{_TYPES}, (\d), false, false>",
          POOLED_WEIGHT_CREDIT, _PAIRS, 2.25, {"float": 39, "__half": 42, "__nv_bfloat16": 42}, 2),
)  # fmt: skip
# Sums of recurrent neurons: what a kernel adds up, and the instructions that a term may cost.
SUMS = (
    ("recurrent currents, an event", r"recurrent_forward_kernel<float, 1, false, false, true>", 8),
    ("recurrent credit, a weight", r"recurrent_adjoint_kernel<float, 1, false, false, false, true>", 6),
    ("recurrent weight gradient, an event", r"recurrent_weight_kernel<float>", 10),
)
# Delays per channel: instructions per element, of a thread with so many elements.
SHIFTS = re.compile(r"delay_shift_kernel<float, unsigned int, (\d), (true|false)>")
MOST_SHIFT = {1: 80, 4: 25}
ENTRY = re.compile(r"Compiling entry function '(\S+)' for '(sm_\w+)'")
# Turing rounds to bfloat16 in software, with which these loops are too long for the compiler to unroll: up to 496 bytes
# for a thread hold what the loops index. docs/cuda.md says so.
KNOWN = re.compile(
    r"(scan_pool_backward_kernel<__nv_bfloat16, 2, true|::backward_kernel<__nv_bfloat16, 1, false, false, false, 2), "
    r".* for sm_75:"
)
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


def check_pools(kernels: dict[str, list[Instruction]]) -> list[str]:
    """Returns a line per kernel of the 2 x 2 pools; raises SystemExit above the bound or without loads of 16 bytes."""
    lines = []
    for name, steps in kernels.items():
        # Threads of fewer cells, for rows that are no whole vectors, are not bound.
        if not (match := PAIRS.search(name)) or int(match[2]) != _VECTOR[match[1]]:
            continue
        cells, channels_last = int(match[2]), match[3] == "true"
        length = sum(not step.name.startswith(("NOP", "BRA")) for step in steps)
        per_window = length / (cells if channels_last else cells // 2)
        loads = [step.text for step in steps if step.name.startswith("LDG")]
        lines.append(f"{match[0]}: {per_window:.1f} instructions per window, {len(loads)} loads of 16 bytes")
        if per_window > MOST_INSTRUCTIONS or not all("LDG.E.128" in load for load in loads):
            sys.exit(f"expected at most {MOST_INSTRUCTIONS} and whole vectors: {lines[-1]}: {loads}")
    if not lines:
        sys.exit("expected kernels for 2 x 2 pooling, got none")
    return lines


def expected_share(instructions: float, moved: float) -> float:
    """Returns the share of a copy's speed by instructions and bytes per element (docs/measurements/cuda.md)."""
    issue = instructions * COPIED / moved / ISSUED
    return float(0.95 / (1 + issue**3) ** (1 / 3))


def check_scans(kernels: dict[str, list[Instruction]]) -> list[str]:
    """Returns a line per bound and element type; raises SystemExit above a bound or where a kernel is missing."""
    lines = []
    for bound in BOUNDS:
        found = {
            match[1]: steps
            for name, steps in kernels.items()
            if (match := re.search(bound.pattern, name)) and int(match[2]) == bound.neurons.get(match[1])
        }
        if set(found) != set(bound.most):
            sys.exit(
                f"{bound.name}: expected kernels for {', '.join(bound.most)}, got {', '.join(found) or 'none'}"
            )
        for element, steps in found.items():
            cost = per_step(steps, bound.phases) / (bound.neurons[element] * bound.rows)
            moved = bound.tensors * (4 if element == "float" else 2)
            lines.append(
                f"{bound.name}, {element.strip('_')}: {cost:.1f} instructions per neuron-step, {moved:g} bytes, "
                f"{expected_share(cost, moved):.0%} of a copy expected"
            )
            if cost > bound.most[element]:
                sys.exit(f"expected at most {bound.most[element]:g}: {lines[-1]}")
    return lines


def check_sums(kernels: dict[str, list[Instruction]]) -> list[str]:
    """Returns a line per sum of recurrent neurons; raises SystemExit above a bound or where a kernel is missing."""
    lines = []
    for name, pattern, most in SUMS:
        found = [steps for kernel, steps in kernels.items() if re.search(pattern, kernel)]
        if len(found) != 1:
            sys.exit(f"{name}: expected one kernel {pattern}, got {len(found)}")
        cost = per_step(found[0], EVENTS)
        lines.append(f"{name}: {cost:.1f} instructions")
        if cost > most:
            sys.exit(f"expected at most {most}: {lines[-1]}")
    return lines


def check_shifts(kernels: dict[str, list[Instruction]]) -> list[str]:
    """Returns a line per kernel that delays channels; raises SystemExit above the bound or without a kernel."""
    lines, found = [], set()
    for name, steps in kernels.items():
        if not (match := SHIFTS.search(name)):
            continue
        elements, earlier = int(match[1]), match[2] == "true"
        found.add((elements, earlier))
        cost = sum(not step.name.startswith(("NOP", "BRA")) for step in steps) / elements
        lines.append(
            f"delayed {'gradient' if earlier else 'sequence'}, {elements} at a time: {cost:.1f} instructions per "
            f"element, 8 bytes, {expected_share(cost, 8):.0%} of a copy expected"
        )
        if cost > MOST_SHIFT[elements]:
            sys.exit(f"expected at most {MOST_SHIFT[elements]}: {lines[-1]}")
    expected = {(elements, earlier) for elements in MOST_SHIFT for earlier in (False, True)}
    if found != expected:
        sys.exit(f"delays: expected kernels {sorted(expected)}, got {sorted(found)}")
    return lines


def check_all(kernels: dict[str, list[Instruction]]) -> None:
    """Raises SystemExit where a kernel divides integers, or stores past the cache what the next kernel reads."""
    for name, steps in kernels.items():
        if any(step.name.startswith("STG") and ".EF" in step.name for step in steps):
            sys.exit(f"expected stores that stay in the cache, got evict-first stores in {name}")
        # A division converts its divisor with rounding up. Windows that overlap have several, and their kernels divide.
        divides = [step for step in steps if step.name.startswith("I2F") and ".RP" in step.name]
        divisions = 0 if "::pool_" in name else len(divides)
        if divisions:
            sys.exit(f"expected divisions by Divider, got {divisions} of integers in {name}")


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


def disassembled(tool: Path, source: str) -> str:
    """Returns the output of cuobjdump on a source's machine code for Hopper."""
    (binary,) = BUILD.rglob(f"{source}.cu.o")
    # It calls nvdisasm, which lies beside it.
    path = os.pathsep.join([str(tool.parent), os.environ["PATH"]])
    command = [tool, "-arch", "sm_90", "-sass", binary]
    environment = {**os.environ, "PATH": path}
    return subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout


def compile_kernels(architectures: Sequence[str]) -> str:
    """Returns the output of nvcc and ptxas in a build from scratch."""
    kinds = {"sm": "real", "compute": "virtual"}
    parts = [name.split("_") for name in architectures]
    wanted = ";".join(f"{number}-{kinds[kind]}" for kind, number in parts)
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
            f"-DCMAKE_CUDA_ARCHITECTURES={wanted}",
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
    wanted = sys.argv[1:] or ARCHITECTURES
    shutil.rmtree(BUILD, ignore_errors=True)
    report = compile_kernels(wanted)
    architectures, found = spills(report)
    if architectures != {name for name in wanted if name.startswith("sm_")}:
        sys.exit(f"expected code for {', '.join(wanted)}, got {sorted(architectures)}")
    new = [kernel for kernel in demangled("\n".join(found)).splitlines() if not KNOWN.search(kernel)]
    if new:
        sys.exit("kernels that use local memory:\n" + "\n".join(new))
    used = registers(report, "sm_90")
    print(demangled("\n".join(f"{count:4} registers  {name}" for name, count in sorted(used.items()))))
    tool = disassembler()
    if tool is None:
        print("instructions were not counted: there is no cuobjdump")
    else:
        kernels = {}
        recurrent = ("recurrent", "recurrent_backward", "recurrent_weights")
        for source in ("srm", "srm_pool", "scan", "scan_pool", "pool", "delay", *recurrent):
            kernels[source] = functions(demangled(disassembled(tool, source)))
            check_all(kernels[source])
        scans = kernels["srm"] | kernels["srm_pool"] | kernels["scan"] | kernels["scan_pool"]
        sums = check_sums({name: steps for source in recurrent for name, steps in kernels[source].items()})
        shifts = check_shifts(kernels["delay"])
        print("\n".join([*check_scans(scans), *check_pools(kernels["pool"]), *sums, *shifts]))
    number = len(ENTRY.findall(report))
    print(
        f"cuda-check passed: {number} kernels for {', '.join(sorted(architectures))}, "
        f"{len(found)} known to use local memory"
    )


if __name__ == "__main__":
    main()
