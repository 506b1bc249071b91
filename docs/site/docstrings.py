"""Docstrings as Markdown: examples become blocks of code, which would otherwise be read as text and links."""

from __future__ import annotations

from typing import Any

import griffe


class Docstrings(griffe.Extension):
    """Rewrites every docstring before it is parsed."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """The docstring of a module, class, function or attribute."""
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)


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
