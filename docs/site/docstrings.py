"""Docstrings as Markdown, in which examples are blocks of code, and signatures as they are at run time."""

from __future__ import annotations

import importlib
import pkgutil
import sys
from pathlib import Path
from typing import Any

import griffe

sys.path.insert(0, str(Path(__file__).parent))
signatures: Any = importlib.import_module("signatures")


class Docstrings(griffe.Extension):
    """Rewrites every docstring before it is parsed, and signatures that the source does not say."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrites the docstring of a module, class, function or attribute."""
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)

    def on_class(self, *, cls: griffe.Class, **_: Any) -> None:
        """Gives a class the `__init__` that its signature at run time has, where the source has another."""
        if not cls.name.startswith("_"):
            found = run_time_parameters(cls)
            if found is not None and as_shown(cls.parameters)[1:] != as_shown(found)[1:]:
                cls.set_member("__init__", griffe.Function("__init__", parameters=found))

    def on_function(self, *, func: griffe.Function, **_: Any) -> None:
        """Gives a function of a module the parameters that it has at run time, where the source has others."""
        if func.parent is func.module and not func.name.startswith("_"):
            found = run_time_parameters(func)
            if found is not None and as_shown(func.parameters) != as_shown(found):
                func.parameters = found


def run_time_parameters(obj: griffe.Class | griffe.Function) -> griffe.Parameters | None:
    """Returns the parameters of a class's `__init__` or of a function of snnlib; None where Python has none."""
    if not obj.module.path.startswith("snnlib"):
        # A page documents an array of events, for which numpy with its tests is read.
        return None
    try:
        target = pkgutil.resolve_name(f"{obj.module.path}:{obj.path.removeprefix(obj.module.path + '.')}")
    except (ImportError, AttributeError):
        # A module that needs a package which is not installed, or a name that exists for type checkers alone.
        return None
    found = signatures.parameters(target)
    if found is None:
        return None
    first = [griffe.Parameter("self")] if obj.is_class else []
    kinds = {kind.value: kind for kind in griffe.ParameterKind}
    return griffe.Parameters(
        *first,
        *(
            griffe.Parameter(name, annotation=annotation, kind=kinds[kind], default=default)
            for name, kind, annotation, default in found
        ),
    )


def as_shown(parameters: griffe.Parameters) -> list[tuple[str, Any, bool]]:
    """Returns name, kind and whether there is a default of each parameter."""
    variadic = griffe.ParameterKind.var_positional, griffe.ParameterKind.var_keyword
    return [
        (each.name, each.kind, each.default is not None and each.kind not in variadic) for each in parameters
    ]


def as_markdown(text: str) -> str:
    """Fences around `>>>` examples up to the next empty line, and one colon before other blocks of code."""
    lines: list[str] = []
    fence: str | None = None
    for line in [*text.split("\n"), ""]:
        if fence is None and line.lstrip().startswith(">>>"):
            indent = line[: line.index(">")]
            lines.append(f"{indent}```pycon")
            fence = f"{indent}```"
        elif fence is not None and not line.strip():
            lines.append(fence)
            fence = None
        lines.append(one_colon(line) if fence is None else line)
    return "\n".join(lines)


def one_colon(line: str) -> str:
    """A line that ends in two colons, the mark of a block of code, as a reader expects it; two alone say nothing."""
    if line.strip() == "::":
        return ""
    return line[:-1] if line.endswith("::") else line
