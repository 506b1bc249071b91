"""A wheel per Python, tried by the installed smoke suite against every named torch: the matrix of supported versions.

    python release/versions.py [--pairs 3.11:2.6.0 3.12:2.13.0 here:pinned ...] [--build build/versions] [--kernels]

`here` is the Python that runs this, `pinned` the torch of constraints.txt, `oldest` the oldest that is supported,
`newest` the newest there is. One wheel serves all torch versions of its Python, as the compiled module does not link
torch. It is built in isolation, from the source distribution; with `--kernels` it holds CUDA kernels
(`cuda_toolkit.py`) and says so in its version. Interpreters are looked for as `python3.X` on PATH and under pyenv; what
is not there is printed as such. Every environment is removed when its suite has run; the wheels stay. At the end comes
the matrix for docs/reliability.md. The exit status is 1 where a suite failed or a torch did not install, and 0 where
interpreters were missing.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import cuda_toolkit

ROOT = Path(__file__).resolve().parents[1]
PINNED = re.search(r"^torch==(\S+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE)[1]  # type: ignore[index]
OLDEST = "2.6.0"
# The oldest torch with the Pythons that it knows, the pinned one with all, and the newest Python with the newest torch.
HERE = f"{sys.version_info.major}.{sys.version_info.minor}"
PAIRS = [
    *((python, OLDEST) for python in ("3.11", "3.12", "3.13")),
    *((python, PINNED) for python in ("3.11", "3.12", "3.13", "3.14")),
    ("3.14", "newest"),
]
# States of a pair that fail the whole: a torch that does not install is none that is supported.
FAILURES = ("FAILED", "no wheel", "not installed")
# Where a virtual environment has its programs.
PROGRAMS = "Scripts" if os.name == "nt" else "bin"
# Wheels stay below this, trained nets of 0.3 MB among them: without CUDA kernels, and with those of seven generations.
MOST_BYTES, MOST_BYTES_WITH_KERNELS = 3_500_000, 30_000_000
# Seconds of processor time that a wheel may take to install where torch is, and `import snnlib` after that of torch.
MOST_TO_INSTALL, MOST_TO_IMPORT = 10.0, 0.2
# The collector is off: its pass over torch's objects, of 0.1 s, is due at whatever is imported after torch.
IMPORT = """
import gc, time, torch, numpy
gc.disable()
start = time.process_time()
import snnlib
print(time.process_time() - start)
"""


def interpreter(version: str) -> str | None:
    """Returns a Python of this version, if there is one that runs: a shim of pyenv may have none behind it."""
    if version == HERE:
        return sys.executable
    pyenv = sorted((Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/python"))
    for found in (shutil.which(f"python{version}"), *map(str, reversed(pyenv))):
        if found and run(found, "-c", "import venv").returncode == 0:
            return found
    return None


def run(*command: str | Path, folder: Path = ROOT, **variables: str) -> subprocess.CompletedProcess[str]:
    """A finished command with its output."""
    words, environment = [str(part) for part in command], {**os.environ, **variables}
    return subprocess.run(words, capture_output=True, text=True, check=False, cwd=folder, env=environment)


def last_line(*texts: str) -> str:
    """Returns the end of the first text of a tool that is not empty."""
    return next((text.strip().splitlines()[-1].strip() for text in texts if text.strip()), "")


def build(python: str, folder: Path, kernels: bool) -> Path | str:
    """The wheel for an interpreter, built in isolation from a source distribution; else what went wrong."""
    run(python, "-m", "venv", "--clear", folder / "builder")
    tool = folder / "builder" / PROGRAMS / "python"
    for command in (
        (tool, "-m", "pip", "install", "--quiet", "build"),
        (tool, "-m", "build", "--sdist", "--outdir", folder, "."),
    ):
        done = run(*command)
        if done.returncode:
            return last_line(done.stderr, done.stdout)
    with tarfile.open(next(folder.glob("snnlib-*.tar.gz"))) as archive:
        archive.extractall(folder / "sources", filter="data")
    (sources,) = (folder / "sources").iterdir()
    settings, variables = {"SNNLIB_CUDA": "OFF"}, {}
    if kernels:
        settings, variables["CUDACXX"] = cuda_toolkit.SETTINGS, str(cuda_toolkit.install(folder / "toolkit"))
        cuda_toolkit.mark(sources)
    options = [f"-Ccmake.define.{name}={value}" for name, value in settings.items()]
    done = run(tool, "-m", "build", "--wheel", "--outdir", folder, *options, sources, **variables)
    for made in ("builder", "sources", "toolkit"):
        shutil.rmtree(folder / made, ignore_errors=True)
    if done.returncode:
        return last_line(done.stderr, done.stdout)
    wheel = next(folder.glob("snnlib-*.whl"))
    size, most = wheel.stat().st_size, MOST_BYTES_WITH_KERNELS if kernels else MOST_BYTES
    return wheel if size < most else f"the wheel has {size} bytes, expected less than {most}"


def processor_seconds(*command: str | Path) -> tuple[float, subprocess.CompletedProcess[str]]:
    """(seconds that a command and its children computed, 0 on Windows, the finished command)."""
    # Processor time of children, by the user and by the system.
    before = sum(os.times()[2:4])
    done = run(*command)
    return sum(os.times()[2:4]) - before, done


def check(python: str, torch: str, wheel: Path, folder: Path) -> tuple[str, str, str]:
    """(state of the smoke suite, its last line, torch's version)."""
    run(python, "-m", "venv", "--clear", folder)
    tool = folder / PROGRAMS / "python"
    wanted = "torch" if torch == "newest" else f"torch=={torch}"
    for packages in ([wanted, "numpy", "pytest"], [str(wheel)]):
        installing = (tool, "-m", "pip", "install", "--quiet", "--only-binary", ":all:", *packages)
        install, done = processor_seconds(*installing)
        if done.returncode:
            return "not installed", last_line(done.stderr), torch
    version = run(tool, "-c", "import importlib.metadata as m; print(m.version('torch'))").stdout.strip()
    # The fastest of several, as other programs can only make it slower; the first one compiles the modules.
    imports = [float(run(tool, "-c", IMPORT).stdout or "inf") for _ in range(5)]
    if install > MOST_TO_INSTALL or min(imports) > MOST_TO_IMPORT:
        most = f"most: {MOST_TO_INSTALL}, {MOST_TO_IMPORT}"
        return "FAILED", f"install {install:.1f} s, import {min(imports):.2f} s; {most}", version
    # GPUs that the compiled module is for, among the facts about it.
    facts = run(folder / PROGRAMS / "snnlib", "doctor").stdout
    cuda = re.search(r"^CUDA +((?:built|not) .+)$", facts, re.MULTILINE)
    # Outside the source tree, so that the installed package is the one that is found, and without the settings of the
    # project's own tests, which name plugins that are not there.
    # Which of torch's operations a neuron's step may have depends on torch, so that their test runs beside the suite.
    shutil.copy(ROOT / "tests" / "neurons" / "test_program_rules.py", folder)
    suite = ("--pyargs", "snnlib.testing.smoke", "test_program_rules.py")
    smoke = ("-q", "-p", "no:cacheprovider", "-c", os.devnull, *suite)
    done = run(tool, "-m", "pytest", *smoke, folder=folder)
    if done.returncode:
        print(done.stdout[-5000:], done.stderr[-2000:], flush=True)
    state = "passed" if done.returncode == 0 and cuda is not None else "FAILED"
    took = f"installed in {install:.1f} s, imported in {min(imports):.2f} s of processor time"
    return state, f"{last_line(done.stdout)}; {took}; snnlib doctor: {cuda and cuda[1]}", version


def tried(
    version: str, torch: str, folder: Path, wheels: dict[str, Path | str], kernels: bool
) -> tuple[str, str, str]:
    """(state, version of torch, what was said) of a pair; a wheel that is made is kept for the next."""
    if (python := interpreter(version)) is None:
        return "not tried", torch, "no interpreter"
    if version not in wheels:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        wheels[version] = build(python, folder, kernels)
    wheel = wheels[version]
    if isinstance(wheel, str):
        return "no wheel", torch, wheel
    environment = folder / f"torch-{torch}"
    state, said, found = check(python, torch, wheel, environment)
    # Builds with CUDA take gigabytes.
    shutil.rmtree(environment)
    return state, found, f"wheel of {wheel.stat().st_size / 1e6:.2f} MB; {said}"


def main() -> int:
    """Print a line per pair, then the matrix."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", nargs="+", metavar="PYTHON:TORCH", help="default: all that are supported")
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "versions")
    parser.add_argument(
        "--kernels", action="store_true", help="build wheels with CUDA kernels; Linux on x86-64"
    )
    args = parser.parse_args()
    named = {"here": HERE, "pinned": PINNED, "oldest": OLDEST}
    pairs = [tuple(named.get(part, part) for part in pair.split(":")) for pair in args.pairs or ()] or PAIRS
    wheels: dict[str, Path | str] = {}
    matrix: list[str] = []
    for version, torch in pairs:
        state, found, said = tried(version, torch, args.build.resolve() / version, wheels, args.kernels)
        print(f"Python {version}, torch {found}: {state}: {said}", flush=True)
        matrix.append(f"| {version} | {found} | {state} | {said} |")
    print("\n".join(["", "| Python | torch | smoke suite | |", "| --- | --- | --- | --- |", *matrix]))
    return int(any(f"| {state} |" in row for row in matrix for state in FAILURES))


if __name__ == "__main__":
    sys.exit(main())
