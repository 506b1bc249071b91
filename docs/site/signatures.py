"""Signatures as they are at run time, for the pages of the site and for the check of built pages.

A neuron's arguments are fields, of which its `__init__` is made, and layers hand options on to the class below them. A
reader of the source sees neither, and would show signatures with which no call works.
"""

from __future__ import annotations

import ast
import html
import inspect
import pkgutil
import re
from typing import Any, NamedTuple

_SHOWN = re.compile(
    r'<h\d id="(snnlib\.[\w.]+)"[^>]*doc-heading(?:(?!<h\d).)*?<div class="[^"]*doc-signature[^"]*">(.*?)</div>',
    re.DOTALL,
)


class Parameter(NamedTuple):
    """A parameter as text; the kind in Python's words, None for no annotation or no default."""

    name: str
    kind: str
    annotation: str | None
    default: str | None


def parameters(target: Any) -> list[Parameter] | None:
    """Returns the parameters of `inspect.signature` but `self`; None of a property, and of a class without one."""
    if not callable(target):
        return None
    try:
        signature = inspect.signature(target)
    except ValueError:
        return None
    empty = inspect.Parameter.empty
    return [
        Parameter(
            each.name,
            each.kind.description,
            None if each.annotation is empty else _annotation(each.annotation),
            None if each.default is empty else _default(each.default),
        )
        for each in signature.parameters.values()
        if each.name != "self"
    ]


def _annotation(annotation: Any) -> str:
    """Text of an annotation, without the modules of its names."""
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return re.sub(r"\b(?:[A-Za-z_]\w*\.)+(?=[A-Za-z_])", "", text)


def _default(value: Any) -> str:
    """Text of a default; `...` for a value that no expression gives, such as the result of a dataclass's factory."""
    text: str = value.__qualname__ if inspect.isclass(value) or inspect.isroutine(value) else repr(value)
    try:
        ast.parse(text, mode="eval")
    except SyntaxError:
        return "..."
    return text


def wrong_on(page: str) -> list[str]:
    """Returns the classes and functions of a built page whose parameters are not those of run time."""
    wrong = []
    for path, marked in _SHOWN.findall(page):
        expected = parameters(pkgutil.resolve_name(path))
        if expected is None:
            continue
        shown = html.unescape(re.sub(r"<[^>]+>", "", marked))
        if _named(shown) != [(each.name, each.default is not None) for each in expected]:
            wrong.append(path)
    return wrong


def _named(signature: str) -> list[tuple[str, bool]] | None:
    """Names of a signature's parameters, and whether they have defaults; None if the text is no Python."""
    try:
        (made,) = ast.parse(f"def {signature.strip()}: ...").body
    except SyntaxError:
        return None
    assert isinstance(made, ast.FunctionDef)
    given = made.args
    by_place = [*given.posonlyargs, *given.args]
    required = len(by_place) - len(given.defaults)
    return [
        *((each.arg, number >= required) for number, each in enumerate(by_place)),
        *((each.arg, False) for each in [given.vararg] if each),
        *(
            (each.arg, value is not None)
            for each, value in zip(given.kwonlyargs, given.kw_defaults, strict=True)
        ),
        *((each.arg, False) for each in [given.kwarg] if each),
    ]
