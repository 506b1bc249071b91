"""Installs the package for check.py: from its sources, or where they do not build from the wheel of a bundle."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

from . import processes
from .report import BUNDLE, ROOT

# Compiling takes about 350 seconds of one core, which such a machine has a dozen of.
LIMIT = 110


def cuda_tool(name: str) -> str | None:
    """A program of the CUDA toolkit: on the PATH, or where toolkits are installed."""
    homes = [*filter(None, [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH")]), "/usr/local/cuda"]
    homes += [*map(str, sorted(Path("/usr/local").glob("cuda-*"), reverse=True)), "/opt/cuda"]
    return shutil.which(name) or shutil.which(name, path=os.pathsep.join(f"{home}/bin" for home in homes))


def command(source: Path, folder: Path, architectures: str) -> list[str]:
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


def build(folder: Path, architectures: str, output: Path, limit: float = LIMIT) -> dict[str, Any]:
    """The stage that installs: what is installed is among its results, and nothing if neither way works."""
    environment = dict(os.environ)
    # CMake looks on the PATH alone.
    if "CUDACXX" not in environment and (nvcc := cuda_tool("nvcc")):
        environment["CUDACXX"] = nvcc
    first = processes.run("build", command(ROOT, folder, architectures), limit, output, environment)
    stage: dict[str, Any] = {"passed": first.well, "seconds": first.seconds, "results": {}}
    if first.well:
        stage["results"] = {"installed": "from the sources"}
        return stage
    stage["error"] = first.problem
    for wheel in sorted(BUNDLE.glob("*.whl")):
        second = processes.run(wheel.name, command(wheel, folder, architectures), 30, output)
        stage["seconds"] = round(stage["seconds"] + second.seconds, 1)
        if second.well:
            stage["results"] = {"installed": wheel.name}
            break
        stage["error"] += f"\n{wheel.name}: {second.problem}"
    return stage
