"""Runs tests with the kernels under sanitizers: `make sanitize`, `make cuda-emulation-asan`.

    python release/sanitize.py memory|threads|emulation ...

`memory` and `threads` compile the CPU kernels with AddressSanitizer and UBSan, or with ThreadSanitizer, into a folder
of their own; `emulation` runs the CUDA kernels as loops on the CPU, which its tests compile themselves.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

MEMORY_TESTS = (
    "test_fuzz", "test_op_checks", "test_ops", "test_layouts", "test_backward_paths", "test_half", "test_taps",
    "test_winograd", "test_scan_pool", "test_rare_spikes", "test_cpu_memory",
)  # fmt: skip
# The reference has no kernels to check; a comparison with it runs them as tests of values do.
MEMORY_CHOICE = "(not reference and not native_equals) or test_equals_reference"
# Sequences of several tasks for every op, then what random calls do.
THREAD_TESTS = (
    "test_thread_sanitizer", "test_invariance", "test_batch_norm", "test_recurrent", "test_delays", "test_fuzz",
    "test_taps",
)  # fmt: skip
THREAD_CHOICE = "not reference and not instruction and not twenty_calls and not large"
EMULATION_TESTS = ("test_cuda_emulation", "test_cuda_nets", "test_cuda_recurrent", "test_cuda_delays")

# Python itself is not compiled for the sanitizers: what it keeps until the end is no leak of the kernels.
MEMORY_OPTIONS = {"ASAN_OPTIONS": "detect_leaks=0", "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1"}


def files(names: tuple[str, ...]) -> list[str]:
    """The test files of these names, in whatever folder of tests."""
    found = {file.stem: str(file.relative_to(ROOT)) for file in (ROOT / "tests").rglob("test_*.py")}
    return [found[name] for name in names]


def module(folder: Path, sanitizers: str) -> Path:
    """The compiled module with these sanitizers."""
    options = ["-Ccmake.define.SNNLIB_CUDA=OFF", f"-Ccmake.define.SNNLIB_SANITIZE={sanitizers}"]
    options += [f"-Cbuild-dir={folder}/build", "--no-deps", "--no-build-isolation", "--upgrade"]
    # Keeps a make from sharing out the cores itself.
    environment = {**os.environ, "MAKEFLAGS": ""}
    command = [sys.executable, "-m", "pip", "install", "--quiet", *options, "--target", folder, ROOT]
    subprocess.run(command, check=True, env=environment)
    return next(folder.glob("snnlib/_C.*"))


def runtime(*libraries: str) -> str:
    """The compiler's libraries of sanitizers, which are loaded before Python."""
    commands = (["c++", f"-print-file-name={library}.so"] for library in libraries)
    return " ".join(subprocess.check_output(command, text=True).strip() for command in commands)


def pytest(names: tuple[str, ...], libraries: tuple[str, ...], choice: str, **environment: str) -> int:
    """Exit status of these test files, with the compiler's libraries of sanitizers loaded before Python."""
    environment = {**os.environ, **environment, "LD_PRELOAD": runtime(*libraries)}
    command = [sys.executable, "-m", "pytest", "-q", "--numprocesses", "auto", "-k", choice, *files(names)]
    return subprocess.run(command, check=False, cwd=ROOT, env=environment).returncode


def memory() -> int:
    """Accesses out of bounds and undefined behaviour of the CPU kernels."""
    built = str(module(ROOT / "build" / "sanitize", "address,undefined"))
    libraries = ("libasan", "libubsan")
    return pytest(MEMORY_TESTS, libraries, MEMORY_CHOICE, **MEMORY_OPTIONS, SNNLIB_TEST_MODULE=built)


def threads() -> int:
    """Races of the CPU kernels on three threads, on one in torch, whose loops are not compiled for the sanitizer."""
    options = {
        "SNNLIB_TEST_MODULE": str(module(ROOT / "build" / "sanitize-threads", "thread")),
        "SNNLIB_TEST_THREADS": "3",
        "OMP_NUM_THREADS": "1",
        "TSAN_OPTIONS": f"halt_on_error=1:suppressions={ROOT / 'tests' / 'native' / 'thread_sanitizer.supp'}",
    }
    return pytest(THREAD_TESTS, ("libtsan",), THREAD_CHOICE, **options)


def emulation() -> int:
    """Accesses out of bounds and undefined behaviour of the CUDA kernels, as loops on the CPU."""
    options = {**MEMORY_OPTIONS, "SNNLIB_SANITIZE": "address,undefined"}
    return pytest(EMULATION_TESTS, ("libasan", "libubsan"), "", **options)


CHECKS = {check.__name__: check for check in (memory, threads, emulation)}

if __name__ == "__main__":
    asked = sys.argv[1:]
    if not asked or not set(asked) <= CHECKS.keys():
        sys.exit(f"checks: expected some of {', '.join(CHECKS)}, got {' '.join(asked) or 'none'}")
    sys.exit(next(filter(None, (CHECKS[name]() for name in asked)), 0))
