"""Sets the tags of releases and prints them: v0.1.0 at the commit that it was, and the version of the sources here.

    python release/tags.py            # what would be tagged, and what is missing for it
    python release/tags.py --set      # sets what is not there yet; pushes nothing

A tag that is there is never moved. The exit status is 1 where something is missing.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# Releases from before this program.
EARLIER = {"v0.1.0": "e6afc0e6852942ae7e8c9619661a191b377793cb"}


def git(*words: str) -> str:
    """Returns what git prints, or an empty text where it fails."""
    return subprocess.run(
        ["git", *words], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.strip()


def version() -> str:
    """Returns the version that snnlib/__init__.py states, the only place that does."""
    source = (ROOT / "snnlib" / "__init__.py").read_text(encoding="utf-8")
    found = re.search(r'^__version__ = "([^"]+)"$', source, re.MULTILINE)
    assert found is not None
    return found[1]


def missing(number: str) -> list[str]:
    """Returns what keeps the sources from being a release."""
    wants = []
    if not re.fullmatch(r"\d+\.\d+\.\d+", number):
        wants.append(f"snnlib/__init__.py: {number} is a version before a release")
    if f"\n## {number}" not in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"):
        wants.append(f"CHANGELOG.md: no section '## {number}'")
    if git("status", "--porcelain"):
        wants.append("git: changes that are not committed")
    return wants


def unknown_addresses() -> list[str]:
    """Returns the names of the addresses that nobody has filled in; a tag does not need them, a published page does."""
    urls = tomllib.loads((ROOT / "release" / "addresses.toml").read_text(encoding="utf-8"))["project"]["urls"]
    return [name for name, address in urls.items() if not address]


def main() -> int:
    """Prints a line per tag, and sets those that are not there if asked to."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--set", action="store_true", help="set the tags that are not there")
    asked = parser.parse_args().set
    number = version()
    wants = missing(number)
    tags = EARLIER if wants else {**EARLIER, f"v{number}": git("rev-parse", "HEAD")}
    for tag, commit in tags.items():
        there = git("rev-parse", "--verify", "--quiet", f"{tag}^{{commit}}")
        if not there and asked:
            git("tag", "--annotate", tag, commit, "--message", f"snnlib {tag[1:]}")
            there = git("rev-parse", "--verify", "--quiet", f"{tag}^{{commit}}")
        print(f"{tag}  {there or commit}  {'is set' if there else 'not set'}")
    for want in wants:
        print(f"v{number} waits: {want}")
    if unknown := unknown_addresses():
        print(f"release/addresses.toml: no address for {', '.join(unknown)}")
    return int(bool(wants))


if __name__ == "__main__":
    sys.exit(main())
