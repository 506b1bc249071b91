"""Run the commands of docs/reliability.md and note the day of those that pass: `make reliability ROWS="1 16"`.

python release/reliability.py [ROW ...]       # all rows by default
"""

from __future__ import annotations

import argparse
import datetime
import os
import re
import shlex
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "reliability.md"
ROW = re.compile(r"^\| (\d+) \| (.+) \| `(.+)` \| (.+) \|$", re.MULTILINE)


@dataclass(frozen=True)
class Row:
    """A promise, the command that proves it, and the day on which it last passed, or why it has not."""

    number: int
    promise: str
    command: str
    passed: str

    def arguments(self) -> list[str]:
        """The command for this interpreter."""
        words = shlex.split(self.command)
        return [sys.executable, "-m", "pytest", "-q", *words[1:]] if words[0] == "pytest" else words


def rows() -> list[Row]:
    """The table as it stands."""
    return [Row(int(match[1]), match[2], match[3], match[4]) for match in ROW.finditer(PAGE.read_text())]


def note(row: Row, day: str) -> None:
    """Write the day into the row, in the file as it is now."""
    before = f"`{row.command}` | {row.passed} |"
    text = PAGE.read_text()
    if text.count(before) != 1:
        raise SystemExit(f"{PAGE}: expected row {row.number} once as it was read")
    PAGE.write_text(text.replace(before, f"`{row.command}` | {day} |"))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("rows", nargs="*", type=int, metavar="ROW")
    wanted = parser.parse_args().rows
    failed = False
    # A make of its own, not a part of the one that called.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    for row in rows():
        if wanted and row.number not in wanted:
            continue
        start = time.monotonic()
        done = subprocess.run(
            row.arguments(), capture_output=True, text=True, check=False, cwd=ROOT, env=environment
        )
        lines = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
        state = "passed" if done.returncode == 0 else "FAILED"
        print(
            f"{row.number}: {state} in {time.monotonic() - start:.0f} s: {lines[-1] if lines else ''}",
            flush=True,
        )
        if done.returncode == 0:
            note(row, datetime.datetime.now(tz=datetime.UTC).date().isoformat())
        else:
            print("\n".join(lines[-40:]), flush=True)
            failed = True
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
