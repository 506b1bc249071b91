"""A wheel per Python, tried by the installed smoke suite against every named torch: the matrix of supported versions.

    python release/versions.py [--pairs 3.11:2.6.0 3.12:2.13.0 ...] [--build build/versions]

One wheel serves all torch versions of its Python, as the compiled module does not link torch. Interpreters are looked
for as `python3.X` on PATH and under pyenv; what is not there, or whose torch does not install, is printed as such. The
exit status is 1 where a suite failed, and 0 where pairs were missing.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PINNED = re.search(r"^torch==(\S+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE)[1]  # type: ignore[index]
# The oldest torch with the Pythons that it knows, the pinned one with all, and the newest Python with the newest torch.
PAIRS = [
    *((python, "2.6.0") for python in ("3.11", "3.12", "3.13")),
    *((python, PINNED) for python in ("3.11", "3.12", "3.13", "3.14")),
    ("3.14", "newest"),
]
# Wheels without CUDA stay below this.
MOST_BYTES = 3_000_000


def interpreter(version: str) -> str | None:
    """A Python of this version on this machine, if there is one."""
    if found := shutil.which(f"python{version}"):
        return found
    pyenv = sorted((Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/python"))
    return str(pyenv[-1]) if pyenv else None


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    """A finished command with its output."""
    return subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, check=False, cwd=ROOT
    )


def last_line(text: str) -> str:
    """What a tool said at its end."""
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")


def build(python: str, folder: Path) -> Path | str:
    """The wheel for an interpreter, built in isolation from a source distribution; else what went wrong."""
    done = run(python, "-m", "venv", "--clear", folder / "builder")
    tool = folder / "builder" / "bin" / "python"
    for command in (
        (tool, "-m", "pip", "install", "--quiet", "build"),
        (tool, "-m", "build", "--outdir", folder, "-Ccmake.define.SNNLIB_CUDA=OFF", "."),
    ):
        done = run(*command)
        if done.returncode:
            return last_line(done.stderr) or last_line(done.stdout)
    wheel = next(folder.glob("snnlib-*.whl"))
    size = wheel.stat().st_size
    return wheel if size < MOST_BYTES else f"the wheel has {size} bytes, expected less than {MOST_BYTES}"


def check(python: str, torch: str, wheel: Path, folder: Path) -> tuple[bool | None, str]:
    """(whether the smoke suite passed, its last line); None where the environment could not be made."""
    run(python, "-m", "venv", "--clear", folder)
    tool = folder / "bin" / "python"
    wanted = "torch" if torch == "newest" else f"torch=={torch}"
    for packages in ([wanted, "numpy", "pytest"], [str(wheel)]):
        done = run(tool, "-m", "pip", "install", "--quiet", "--only-binary", ":all:", *packages)
        if done.returncode:
            return None, last_line(done.stderr)
    # Outside the source tree, so that the installed package is the one that is found.
    done = subprocess.run(
        [str(tool), "-m", "pytest", "-q", "-p", "no:cacheprovider", "--pyargs", "snnlib.testing.smoke"],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
    )
    return done.returncode == 0, last_line(done.stdout)


def main() -> int:
    """Print a line per pair."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", nargs="+", metavar="PYTHON:TORCH", help="default: all that are supported")
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "versions")
    args = parser.parse_args()
    pairs = [tuple(pair.split(":")) for pair in args.pairs] if args.pairs else PAIRS
    wheels: dict[str, Path | str] = {}
    failed = False
    for version, torch in pairs:
        folder = args.build.resolve() / version
        python = interpreter(version)
        if python is None:
            print(f"Python {version}, torch {torch}: not tried, no interpreter", flush=True)
            continue
        if version not in wheels:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            wheels[version] = build(python, folder)
        wheel = wheels[version]
        if isinstance(wheel, str):
            print(f"Python {version}, torch {torch}: no wheel: {wheel}", flush=True)
            failed = True
            continue
        passed, said = check(python, torch, wheel, folder / f"torch-{torch}")
        state = "not tried" if passed is None else "passed" if passed else "FAILED"
        print(
            f"Python {version}, torch {torch}: {state} ({wheel.stat().st_size / 1e6:.1f} MB): {said}",
            flush=True,
        )
        failed = failed or passed is False
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
