"""How long the files of tests took: `make test` hands out the longest first, so that no core waits for another's last.

python tests/helpers/durations.py      # keep those of the last `make test` for clones that have run nothing yet
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
# Durations of the last whole run here, and those that stand for it before the first.
LAST, STORED = ROOT / "build" / "test_durations.json", Path(__file__).parents[1] / "stored" / "durations.json"


def read() -> dict[str, float]:
    """Returns seconds by file; those that are not named take no time worth to tell."""
    file = next((file for file in (LAST, STORED) if file.exists()), None)
    return {} if file is None else dict(json.loads(file.read_text()))


def write(seconds: Mapping[str, float], file: Path = LAST) -> None:
    """Stores files of a second and more, the longest first."""
    longest = sorted(((round(took), name) for name, took in seconds.items() if round(took)), reverse=True)
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps({name: took for took, name in longest}, indent=0) + "\n")


if __name__ == "__main__":
    write(json.loads(LAST.read_text()), STORED)
