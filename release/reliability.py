"""Runs the commands of docs/reliability.md: `make reliability ROWS="1 16"`; by default those of all rows."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ROW = re.compile(r"^\| (\d+) \| .+ \| `(.+)` \|$", re.MULTILINE)


def rows() -> dict[int, list[str]]:
    """Returns the words of each row's command."""
    page = (ROOT / "docs" / "reliability.md").read_text()
    return {int(number): shlex.split(command) for number, command in ROW.findall(page)}


def main(wanted: list[str]) -> int:
    failed = []
    # A make of its own, not a part of the one that called.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    for number, (tool, *words) in rows().items():
        if wanted and str(number) not in wanted:
            continue
        command = [sys.executable, "-m", "pytest", "-q", *words] if tool == "pytest" else [tool, *words]
        status = subprocess.run(command, check=False, cwd=ROOT, env=environment).returncode
        failed += [number] if status else []
        print(f"{number}: {'FAILED' if status else 'passed'}", flush=True)
    return len(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
