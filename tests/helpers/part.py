"""`pytest --part core`: the tests of one part of release/house.py, without the parts that they may not import."""

import importlib
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
# Tests beside those of packages, by their part.
FOLDERS = {"core": ["native"]}
# Examples of `models.load`, one of the two doors of core through the fence.
GATED = "snnlib/models/trained.py"


def add_option(parser: pytest.Parser) -> None:
    """Declares `--part`."""
    parser.addoption("--part", help="tests of one part alone, as `make test PART=core` runs them")


def house() -> ModuleType:
    """Returns release/house.py, which has the table of parts."""
    sys.path.insert(0, str(ROOT / "release"))
    return importlib.import_module("house")


class Part:
    """Leaves out the files of other parts, and refuses to import parts that the tests may not import."""

    def __init__(self, name: str) -> None:
        parts = house().PARTS
        if name not in parts:
            raise pytest.UsageError(f"--part: expected one of {', '.join(parts)}, got {name}")
        self.kept = {*parts[name].modules.split(), *FOLDERS.get(name, [])}
        self.left_out = (*house().GATE_TESTS, GATED) if name == "core" else ()
        known = {name, *parts[name].tested_with.split()}
        others = (part.modules.split() for other, part in parts.items() if other not in known)
        sys.meta_path.insert(
            0, Refusal(name, {f"snnlib.{module}" for modules in others for module in modules})
        )

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        """Returns True for a file or folder of another part, or of none, such as a page."""
        top, *inner = (*collection_path.relative_to(ROOT).parts, "")
        if top not in ("tests", "snnlib", ""):
            return True
        kept = inner[:1] in ([], [""]) or inner[0].removesuffix(".py") in self.kept
        return None if kept and not collection_path.as_posix().endswith(self.left_out) else True


class Refusal:
    """Finder in front of Python's own, which raises for modules of these packages."""

    def __init__(self, part: str, packages: set[str]) -> None:
        self.part, self.packages = part, packages

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Raises ImportError for a module of these packages."""
        if ".".join(name.split(".")[:2]) in self.packages:
            raise ImportError(f"{name}: tests of {self.part} run without it", name=name)
        return None
