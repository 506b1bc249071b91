"""Checks of the English in a checkout: openings of docstrings, comments and pages, subjects of commits."""

from __future__ import annotations

import ast
import io
import re
import shutil
import subprocess
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path

# Docstrings and comments begin with a verb or the name of the thing. These words make a sentence without a subject.
OPENERS = "What|Which|Whether|Of|By|Those|That|One|The same|None|In|Beside"
_OPENS = re.compile(rf"({OPENERS})\b(?!-)")  # "One-hot ..." and "In-place ..." name things.

# A reader sees within a screen how the thing is used.
LINES_BEFORE_CODE = 25
# Pages without code, or of reference, which nobody reads from the top.
PAGES_OF_REFERENCE = {
    *("architecture", "cuda-performance", "design-decisions", "glossary", "index", "limits", "performance"),
    *("reliability", "upgrading"),
}

# The last commit before subjects were checked.
FIRST_COMMIT = "4919f43f8c1a4a80a48b35f2a55d93b34f8f1478"
LONGEST_SUBJECT = 72
_SUBJECT = re.compile(r'[\w][\w ./,-]*: [a-z0-9`"].*[^.]|Revert ".+"')

# A comment of C++ or CUDA, and what stands before it in its line; not the `//` of an address.
_NATIVE_COMMENT = re.compile(r"(.*?)(?<!:)//+\s*(.*)")


def docstring_openings(shown: str, nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Docstrings of a file, of fields too, that open with one of `OPENERS`, each with its line."""
    for node in nodes:
        # A text that is a statement documents what it stands in or behind.
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            docstring = str(node.value.value).lstrip()
            if _OPENS.match(docstring):
                yield f"{shown}:{node.lineno}: {docstring.splitlines()[0]}"


def comment_openings(shown: str, text: str) -> Iterator[str]:
    """Comments of a file that open with one of `OPENERS`, each with its line.

    A comment goes on in the next line, up to an empty one, behind which a new paragraph begins.
    """
    find = _python_comments if shown.endswith(".py") else _native_comments
    before = -1
    for line, alone, words in find(text):
        if _OPENS.match(words) and not (alone and line == before + 1):
            yield f"{shown}:{line}: {words}"
        before = line if alone and words else -1


def _python_comments(text: str) -> Iterator[tuple[int, bool, str]]:
    """Yields the line of each comment, whether nothing stands before it, and its words."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            alone = not token.line[: token.start[1]].strip()
            yield token.start[0], alone, token.string.lstrip("#: ")


def _native_comments(text: str) -> Iterator[tuple[int, bool, str]]:
    for line, code in enumerate(text.splitlines(), 1):
        if found := _NATIVE_COMMENT.fullmatch(code):
            yield line, not found[1].strip(), found[2]


def late_code(root: Path) -> Iterator[str]:
    """Pages of docs/ whose first block of code comes late, or that have none."""
    for page in sorted((root / "docs").glob("*.md")):
        if page.stem in PAGES_OF_REFERENCE:
            continue
        lines = page.read_text(encoding="utf-8").splitlines()
        first = next(
            (number for number, line in enumerate(lines, 1) if line.lstrip().startswith("```")), None
        )
        if first is None or first > LINES_BEFORE_CODE:
            yield f"docs/{page.name}: {'no code' if first is None else f'first code in line {first}'}"


def commit_subjects(root: Path, first: str = FIRST_COMMIT) -> Iterator[str]:
    """Subjects of commits since `first` other than `area: imperative object`, merges left out.

    A checkout without git, or whose history is too short to hold `first`, has nothing to check.
    """
    if shutil.which("git") is None or _git(root, "merge-base", "--is-ancestor", first, "HEAD").returncode:
        return
    for line in _git(root, "log", "--no-merges", "--format=%h %s", f"{first}..HEAD").stdout.splitlines():
        subject = line.partition(" ")[2]
        if len(subject) > LONGEST_SUBJECT or not _SUBJECT.fullmatch(subject):
            yield line


def _git(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False)
