"""Private names that are used outside the package of `snnlib` that defines them."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

# Names of Python and torch that a class of ours has too.
_OF_OTHERS = frozenset({"_base", "_fields", "_parameters", "_version"})
_BY_NAME = frozenset({"getattr", "setattr", "hasattr", "attrgetter"})


def used_elsewhere(nodes: Mapping[str, Sequence[ast.AST]]) -> list[str]:
    """Uses of a name with one leading underscore that only other packages define, by file and line.

    Args:
        nodes: syntax of the modules by file.
    """
    homes: defaultdict[str, set[str]] = defaultdict(set)
    for file, found in nodes.items():
        for node in found:
            for name in _defined(node):
                homes[name].add(package_of(file))
    return [
        f"{file}:{line}: {name} of {', '.join(sorted(homes[name]))}"
        for file, found in nodes.items()
        for node in found
        for name, line in _used(node)
        if homes[name] and package_of(file) not in homes[name]
    ]


def package_of(file: str) -> str:
    """`snnlib.nn` for `snnlib/nn/layers/spike_pool.py`, `snnlib.losses` for `snnlib/losses.py`."""
    return ".".join(file.removesuffix(".py").split("/")[:2])


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name != "_" and name not in _OF_OTHERS


def _defined(node: ast.AST) -> Iterator[str]:
    names: list[str] = []
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        names = [node.name]
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        names = [node.id]
    elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
        # To write to an attribute of another object is to use it.
        names = [node.attr] if isinstance(node.value, ast.Name) and node.value.id in ("self", "cls") else []
    yield from filter(_is_private, names)


def _used(node: ast.AST) -> Iterator[tuple[str, int]]:
    names: list[str] = []
    if isinstance(node, ast.Attribute):
        names = [node.attr]
    elif isinstance(node, ast.ImportFrom):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _BY_NAME:
        names = [
            word.value for word in node.args if isinstance(word, ast.Constant) and isinstance(word.value, str)
        ]
    yield from ((name, node.lineno) for name in names if _is_private(name))
