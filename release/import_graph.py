"""Imports among the modules of packages, read from their sources: circles, and arrows against an order of parts.

An import counts where it runs when the module is imported; one within a function is told apart, and those under
`if TYPE_CHECKING` never run and are left out. As in the sources, `import a.b.c` is an import of that module alone, not
of the packages around it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

try:
    import networkx
except ImportError as error:
    raise SystemExit(
        "release/house.py finds circles by the package networkx, which comes with torch and is missing: "
        "run `make env`, then `.venv/bin/python release/house.py`"
    ) from error

Graph = Mapping[str, set[str]]


@dataclass(frozen=True, order=True)
class Import:
    """An import of one module by another."""

    importer: str
    imported: str
    file: str
    line: int
    in_function: bool

    def __str__(self) -> str:
        where = " (in a function)" if self.in_function else ""
        return f"{self.file}:{self.line}: {self.importer} -> {self.imported}{where}"


def modules_of(root: Path, packages: Sequence[str]) -> dict[str, Path]:
    """Modules of these packages in a folder, by their dotted names."""
    found = {}
    for file in sorted(chain.from_iterable((root / package).rglob("*.py") for package in packages)):
        parts = file.relative_to(root).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return found


def imports_of(root: Path, packages: Sequence[str]) -> list[Import]:
    """All imports among the modules of these packages in a folder."""
    modules = modules_of(root, packages)
    found = set()
    for name, file in modules.items():
        shown = file.relative_to(root).as_posix()
        package = name if file.name == "__init__.py" else name.rpartition(".")[0]
        tree = ast.parse(file.read_text(encoding="utf-8"))
        for node, in_function in _import_nodes(tree.body, False):
            for target in _targets(node, package, modules):
                if target != name:
                    found.add(Import(name, target, shown, node.lineno, in_function))
    return sorted(found)


def imported_by(file: Path, modules: Mapping[str, Path]) -> list[str]:
    """Returns those of these modules that a file outside their packages imports."""
    nodes = _import_nodes(ast.parse(file.read_text(encoding="utf-8")).body, False)
    return sorted({target for node, _ in nodes for target in _targets(node, "", modules)})


def _import_nodes(
    body: Sequence[ast.AST], in_function: bool
) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    for node in body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node, in_function
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            yield from _import_nodes(node.orelse, in_function)
        else:
            function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            yield from _import_nodes(list(ast.iter_child_nodes(node)), in_function or function)


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


def part_of(module: str) -> str:
    """The part of its package that a module belongs to: `snnlib.nn` for `snnlib.nn.layers.spike_pool`."""
    return ".".join(module.split(".")[:2])


def graph_of(imports: Sequence[Import], by_part: bool = False) -> dict[str, set[str]]:
    """Returns the imports of each module, or of each part of a package."""
    graph: dict[str, set[str]] = {}
    for found in imports:
        ends = (found.importer, found.imported)
        importer, imported = map(part_of, ends) if by_part else ends
        if importer != imported:
            graph.setdefault(importer, set()).add(imported)
            graph.setdefault(imported, set())
    return graph


def circles(graph: Graph) -> list[list[str]]:
    """Sets of two modules or more of which each imports all the others, directly or through others."""
    components = networkx.strongly_connected_components(networkx.DiGraph(graph))
    return sorted(sorted(members) for members in components if len(members) > 1)


def upward(imports: Sequence[Import], order: Sequence[str]) -> dict[tuple[str, str], list[Import]]:
    """Imports by a part of a package of one above it in the order, which begins at the bottom.

    Raises:
        ValueError: a part has no place in the order.
    """
    parts = {part_of(name) for found in imports for name in (found.importer, found.imported)}
    missing = sorted(parts - set(order))
    if missing:
        raise ValueError(f"order: expected a place for every part, got none for {', '.join(missing)}")
    arrows: dict[tuple[str, str], list[Import]] = {}
    for found in imports:
        importer, imported = part_of(found.importer), part_of(found.imported)
        if order.index(importer) < order.index(imported):
            arrows.setdefault((importer, imported), []).append(found)
    return arrows
