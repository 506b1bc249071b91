"""Lines of code without blanks, comments and docstrings, of Python and of C++ and CUDA."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from pathlib import Path

PYTHON, NATIVE = frozenset({".py"}), frozenset({".cpp", ".h", ".cu", ".cuh"})
# Suffixes of the engine in C, which lies in a package.
C = frozenset({".c", ".h"})

# Literals stay, as `//` within one begins no comment: raw strings, strings, characters; then both kinds of comments.
_COMMENT = re.compile(
    r'(?P<literal>R"(?P<mark>[^\s()\\]*)\(.*?\)(?P=mark)"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\')'
    r"|//(?:\\\n|[^\n])*|/\*.*?\*/",
    re.DOTALL,
)


def lines_of_code(file: Path) -> int:
    """Lines that hold code."""
    text = file.read_text(encoding="utf-8")
    return python_lines(text) if file.suffix in PYTHON else native_lines(text)


def python_lines(text: str) -> int:
    r"""Lines of Python with a token that is no comment and no docstring, such as also stand below fields.

    >>> python_lines('def f():\n    "Returns 1."\n\n    return 1  # one\n')
    2
    """
    docstrings = {
        (node.lineno, node.col_offset)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    }
    lines: set[int] = set()
    in_docstring = False
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        # A docstring may be several literals, one after the other, up to the end of the line.
        in_docstring = token.type != tokenize.NEWLINE and (in_docstring or token.start in docstrings)
        # Indents and ends of lines are tokens of blanks.
        if token.string.strip() and token.type != tokenize.COMMENT and not in_docstring:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines)


def native_lines(text: str) -> int:
    r"""Lines of C++ that are left without comments.

    >>> native_lines('// One.\nint one = 1;  /* and\n more */\nauto text = "// no comment";\n')
    2
    """

    def without(match: re.Match[str]) -> str:
        return match[0] if match["literal"] else "\n" * match[0].count("\n") + " "

    return sum(bool(line.strip()) for line in _COMMENT.sub(without, text).splitlines())
