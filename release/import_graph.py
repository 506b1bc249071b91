"""Imports among the modules of packages and includes among native sources: circles, and arrows against an order.

An import within a function counts as well; one under `if TYPE_CHECKING` never runs and counts where it is asked for. As
in the sources, `import a.b.c` is an import of that module alone, not of the packages around it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from itertools import chain
from pathlib import Path


@dataclass(frozen=True, order=True)
class Import:
    """An import of one module by another, or an include of one file by another."""

    importer: str
    imported: str
    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.importer} -> {self.imported}"


@cache
def nodes_of(file: Path) -> tuple[ast.AST, ...]:
    """Returns the nodes of a file's syntax, which is read once."""
    return tuple(ast.walk(ast.parse(file.read_text(encoding="utf-8"))))


def modules_of(root: Path, packages: Sequence[str]) -> dict[str, Path]:
    """Modules of these packages in a folder, by their dotted names."""
    found = {}
    for file in sorted(chain.from_iterable((root / package).rglob("*.py") for package in packages)):
        parts = file.relative_to(root).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return found


def imports_of(root: Path, packages: Sequence[str], *, unrun: bool = False) -> list[Import]:
    """All imports among the modules of these packages in a folder; `unrun`: those for type checkers as well."""
    modules = modules_of(root, packages)
    found = set()
    for name, file in modules.items():
        shown = file.relative_to(root).as_posix()
        package = name if file.name == "__init__.py" else name.rpartition(".")[0]
        for target, line in _imports(file, package, modules, unrun):
            if target != name:
                found.add(Import(name, target, shown, line))
    return sorted(found)


def imported_by(file: Path, modules: Mapping[str, Path]) -> list[str]:
    """Returns the modules of these that a file outside their packages imports."""
    return sorted({target for target, _ in _imports(file, "", modules, False)})


def includes_of(root: Path, files: Iterable[Path], folders: Sequence[str]) -> list[Import]:
    """All includes of these native files, found beside the file or in the folders, as paths below the root."""
    found = []
    for file in files:
        shown = file.relative_to(root).as_posix()
        for line, text in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            included = re.match(r'\s*#include "([^"]+)"', text)
            places = (
                folder / included[1] for folder in (file.parent, *map(root.joinpath, folders)) if included
            )
            place = next(filter(Path.exists, places), None)
            if place:
                found.append(
                    Import(shown, place.resolve().relative_to(root.resolve()).as_posix(), shown, line)
                )
    return found


def _imports(file: Path, package: str, modules: Mapping[str, Path], unrun: bool) -> Iterator[tuple[str, int]]:
    """Yields the modules that a file imports, with the line."""
    nodes = nodes_of(file)
    unread = {
        inner
        for node in nodes
        if not unrun and isinstance(node, ast.If) and "TYPE_CHECKING" in map(_name, ast.walk(node.test))
        for one in node.body
        for inner in ast.walk(one)
    }
    for node in nodes:
        if isinstance(node, ast.Import | ast.ImportFrom) and node not in unread:
            yield from ((target, node.lineno) for target in _targets(node, package, modules))
        elif isinstance(node, ast.Call) and _name(node.func) in ("importorskip", "import_module"):
            names = (name.value for name in node.args if isinstance(name, ast.Constant))
            yield from ((name, node.lineno) for name in names if name in modules)


def _name(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _targets(node: ast.Import | ast.ImportFrom, package: str, modules: Mapping[str, Path]) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names if alias.name in modules)
        return
    base = node.module or ""
    if node.level:
        around = package.split(".")[: len(package.split(".")) - node.level + 1]
        base = ".".join([*around, *([base] if base else [])])
    for alias in node.names:
        # A name is a module of the package, or something in it.
        inner = f"{base}.{alias.name}"
        if inner in modules:
            yield inner
        elif base in modules:
            yield base


def circle_of(imports: Sequence[Import]) -> list[str]:
    """Returns the modules of one circle, the first of them at both ends; none if there is no circle."""
    sorter: TopologicalSorter[str] = TopologicalSorter()
    for found in imports:
        sorter.add(found.imported, found.importer)
    try:
        sorter.prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def part_of(module: str) -> str:
    """The part of its package that a module belongs to: `snnlib.nn` for `snnlib.nn.layers.spike_pool`."""
    return ".".join(module.split(".")[:2])


def upward(imports: Sequence[Import], order: Sequence[str]) -> list[Import]:
    """Imports by a part of a package of one above it in the order, which begins at the bottom.

    Raises:
        ValueError: a part has no place in the order.
    """
    parts = {part_of(name) for found in imports for name in (found.importer, found.imported)}
    missing = sorted(parts - set(order))
    if missing:
        raise ValueError(f"order: expected a place for every part, got none for {', '.join(missing)}")
    places = {part: place for place, part in enumerate(order)}
    return [found for found in imports if places[part_of(found.importer)] < places[part_of(found.imported)]]
