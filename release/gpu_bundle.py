"""Gathers in build/gpu what `make gpu-check` needs on a machine without git: `make gpu-bundle`.

    python3 release/gpu_bundle.py

That is the commit, wheels of other libraries to measure beside, and where Python 3.12 is here a wheel with kernels for
the H100 and H200: on such machines the sources may not build.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import versions

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "build" / "gpu"
# Libraries of the stages `host` and `peers`, and what they need beside torch and numpy.
PEERS = ("spikingjelly", "snntorch", "loguru")


def main() -> None:
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    describe = ["git", "describe", "--always", "--dirty", "--abbrev=12"]
    (FOLDER / "commit").write_text(subprocess.check_output(describe, text=True, cwd=ROOT))
    pinned = [line for line in (ROOT / "release" / "peers.txt").read_text().split() if line.startswith(PEERS)]
    options = ["--quiet", "--no-deps", "--wheel-dir", FOLDER / "peers"]
    subprocess.run([sys.executable, "-m", "pip", "wheel", *options, *pinned], check=True)
    python = versions.interpreter("3.12")
    if python is None:
        print("no Python 3.12 here, and so no wheel in build/gpu")
    else:
        options = ["-Cbuild-dir=build/gpu-wheel", "-Ccmake.define.SNNLIB_CUDA=ON"]
        options += ["-Ccmake.define.CMAKE_CUDA_ARCHITECTURES=90"]
        wheel = ["wheel", "--quiet", "--no-deps", "--wheel-dir", FOLDER]
        subprocess.run([python, "-m", "pip", *wheel, *options, "."], check=True, cwd=ROOT)
    for file in sorted(FOLDER.rglob("*")):
        if file.is_file():
            print(f"{file.stat().st_size:10} {file.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
