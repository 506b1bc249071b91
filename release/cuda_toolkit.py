"""Installs the CUDA compiler from Python packages: what a wheel with kernels is built with, on any Linux machine.

    python release/cuda_toolkit.py FOLDER [--mark]

Prints the address of nvcc, for the variable CUDACXX. `--mark` gives the version in `snnlib/__init__.py` the suffix that
tells such a wheel from one without kernels, `+cu130`: a build in a copy of the sources does that.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# A driver of 580 or newer runs what 13.0 makes; torch's own wheels of that version ask for the same.
VERSION = "13.0"
PACKAGES = ("nvidia-cuda-nvcc", "nvidia-nvvm", "nvidia-cuda-crt", "nvidia-cuda-runtime", "nvidia-cuda-cccl")
# Machine code of every generation since 2018: Turing, both Amperes, Ada, Hopper, both Blackwells. For those to come PTX
# of the last.
ARCHITECTURES = "75-real;80-real;86-real;89-real;90-real;100-real;120"
SETTINGS = {"SNNLIB_CUDA": "ON", "CMAKE_CUDA_ARCHITECTURES": ARCHITECTURES}


def install(folder: Path) -> Path:
    """Returns nvcc, installed into a folder with all that it compiles and links with."""
    wanted = [f"{name}=={VERSION}.*" for name in PACKAGES]
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", folder]
    subprocess.run([*pip, *wanted], check=True)
    toolkit = folder / "nvidia" / "cu13"
    # Where nvcc looks for the static runtime.
    (toolkit / "lib64").symlink_to("lib")
    return toolkit / "bin" / "nvcc"


def mark(sources: Path) -> None:
    """Gives the version of these sources its suffix."""
    file = sources / "snnlib" / "__init__.py"
    suffix = f"+cu{VERSION.replace('.', '')}"
    marked, count = re.subn(r'(?m)^(__version__ = "[^"+]+)"$', rf'\1{suffix}"', file.read_text())
    if count != 1:
        raise ValueError(f"{file}: expected one line with a version without suffix, got {count}")
    file.write_text(marked)


if __name__ == "__main__":
    print(install(Path(sys.argv[1]).resolve()))
    if "--mark" in sys.argv[2:]:
        mark(ROOT)
