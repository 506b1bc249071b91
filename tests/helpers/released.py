"""State of the sources between two releases, in which stored results of new models may be missing."""

from pathlib import Path

CHANGELOG = Path(__file__).parents[2] / "CHANGELOG.md"
# True until the newest section of the changelog has a date: a release writes what is stored anew.
UNRELEASED = " - unreleased" in CHANGELOG.read_text(encoding="utf-8").split("\n## ")[1].splitlines()[0]
