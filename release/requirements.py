"""Requirements of the extras of pyproject.toml, one per line, without the package itself.

python release/requirements.py EXTRA ...
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"
EXTRAS: dict[str, list[str]] = tomllib.loads(PROJECT.read_text())["project"]["optional-dependencies"]


def requirements(extra: str) -> Iterator[str]:
    """Packages of an extra; `snnlib[a,b]` stands for those of other extras."""
    for needed in EXTRAS[extra]:
        if needed.startswith("snnlib["):
            for other in needed.removeprefix("snnlib[").removesuffix("]").split(","):
                yield from requirements(other)
        else:
            yield needed


if __name__ == "__main__":
    print("\n".join(dict.fromkeys(package for extra in sys.argv[1:] for package in requirements(extra))))
