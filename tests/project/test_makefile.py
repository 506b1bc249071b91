"""Files that the Makefile and its programs in release/ name exist."""

import importlib
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = re.search(r"^\.PHONY: (.+)$", MAKEFILE, re.MULTILINE)[1].split()  # type: ignore[index]


def commands(target: str) -> str:
    """Returns the commands of a target, with all its prerequisites taken as done."""
    command = ["make", "--dry-run", "--no-print-directory", "--assume-old=.venv/.built", target]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("target", TARGETS)
def test_files_of_every_target_exist(target: str) -> None:
    named = re.findall(
        r"\b(?:release|benchmarks|tests|cuda|docs/site)/[\w/]+\.(?:py|txt)\b", commands(target)
    )
    assert all((ROOT / file).exists() for file in named), named
    # Targets that need no program of ours.
    assert named or target in {
        "demo",
        "env",
        "test",
        "test-slow",
        "test-processors",
        "lint",
        "format",
        "gpu-check",
        "clean",
    }


def test_documented_targets_exist() -> None:
    pages = [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        *(ROOT / "docs").glob("*.md"),
        ROOT / ".ci" / "run",
    ]
    named = {
        name
        for page in pages
        for name in re.findall(r"(?:`|^ {4}|^)make ([a-z][a-z-]+)(?=[ `\n])", page.read_text(), re.MULTILINE)
    }
    assert named - {"check"} <= set(TARGETS), named
    assert {"test", "lint", "bench", "gpu-check"} <= named


def test_sanitized_test_files_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "release")
    sanitize = importlib.import_module("sanitize")
    for names in (sanitize.MEMORY_TESTS, sanitize.THREAD_TESTS, sanitize.EMULATION_TESTS):
        assert all((ROOT / file).exists() for file in sanitize.files(names))


def test_the_readme_of_benchmarks_names_every_program() -> None:
    text = (ROOT / "benchmarks" / "README.md").read_text()
    named = set(re.findall(r"python3? (benchmarks/[a-z]+/[a-z_]+\.py)", text))
    files = (ROOT / "benchmarks").glob("*/*.py")
    # `python3 benchmarks/gpu` runs its folder.
    programs = {
        file.relative_to(ROOT).as_posix()
        for file in files
        if file.stem != "__main__" and '__main__":' in file.read_text()
    }
    # It is no program to call: others start it, to have their peak in a process of its own.
    assert named == programs - {"benchmarks/cpu/peak_memory.py"}
