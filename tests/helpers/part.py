"""`pytest --part core`: the tests of one part of release/house.py; those of core run without the other parts."""

import importlib
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Tests beside those of packages, by their part.
FOLDERS = {"core": ["native"]}
# Cards of trained nets name front ends of data: `models.load` is the one door of core through the fence.
OF_CARDS = ("tests/models/test_models_trained.py", "snnlib/models/trained.py")


def add_option(parser: pytest.Parser) -> None:
    """Declares `--part`."""
    parser.addoption("--part", help="tests of one part alone, as `make test PART=core` runs them")


def modules_by_part() -> dict[str, list[str]]:
    """Returns the modules of `snnlib` by the part that has them."""
    sys.path.insert(0, str(ROOT / "release"))
    return {name: part.modules.split() for name, part in importlib.import_module("house").PARTS.items()}


class Part:
    """Leaves out the files of other parts and, for core, refuses to import other parts."""

    def __init__(self, name: str) -> None:
        parts = modules_by_part()
        if name not in parts:
            raise pytest.UsageError(f"--part: expected one of {', '.join(parts)}, got {name}")
        self.kept = {*parts.pop(name), *FOLDERS.get(name, [])}
        self.left_out = OF_CARDS if name == "core" else ()
        if name == "core":
            others = {f"snnlib.{module}" for modules in parts.values() for module in modules}
            sys.meta_path.insert(0, Refusal(others))

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        """Returns True for a file or folder of another part, or of none, such as a page."""
        top, *inner = (*collection_path.relative_to(ROOT).parts, "")
        if top not in ("tests", "snnlib", ""):
            return True
        kept = inner[:1] in ([], [""]) or inner[0].removesuffix(".py") in self.kept
        return None if kept and not collection_path.as_posix().endswith(self.left_out) else True


class Refusal:
    """Finder in front of Python's own, which raises for modules of these packages."""

    def __init__(self, packages: set[str]) -> None:
        self.packages = packages

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Raises ImportError for a module of these packages."""
        if ".".join(name.split(".")[:2]) in self.packages:
            raise ImportError(f"{name}: tests of core run without it", name=name)
        return None
