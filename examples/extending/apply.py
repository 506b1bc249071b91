"""Puts an example of docs/extending.md into the sources: `python examples/extending/apply.py NAME`, or into a copy.

An example is a folder of whole new files at their places, and an `edits.toml` for files that are there: `lines` go
behind the line that ends the text `after`, or take the place of the text `replace`, which stand in their file once, or
go to their place among the lines that begin with the expression `sorted`. Places are the head of a class, of a list or
of a table, which other changes leave alone.
`git restore .` and `git clean -i` take it back.
"""

import argparse
import re
import shutil
import tomllib
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parent
EDITS = "edits.toml"


def new_files(name: str) -> list[str]:
    """The files that an example brings."""
    folder = EXAMPLES / name
    found = (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return sorted(path.relative_to(folder).as_posix() for path in found if path.name != EDITS)


def edits(name: str) -> list[dict[str, str]]:
    """Its changes of files that are there."""
    return tomllib.loads((EXAMPLES / name / EDITS).read_text(encoding="utf-8"))["edit"]


def files(name: str) -> list[str]:
    """All files that it takes."""
    return sorted({*new_files(name), *(edit["file"] for edit in edits(name))})


def edited(text: str, edit: dict[str, str], name: str) -> str:
    """A file's text with one change of an example.

    Raises:
        ValueError: the place is not there, or several are; names the example's edits and the file.
    """
    if "sorted" in edit:
        lines = text.splitlines(keepends=True)
        places = [place for place, line in enumerate(lines) if re.match(edit["sorted"], line)]
        if not places:
            raise ValueError(
                f"examples/extending/{name}/{EDITS}: expected lines that begin with {edit['sorted']!r} in "
                f"{edit['file']}, found none: name the beginning of other lines"
            )
        place = next((place for place in places if lines[place] > edit["lines"]), places[-1] + 1)
        return "".join([*lines[:place], edit["lines"], *lines[place:]])
    marker = edit["after"] if "after" in edit else edit["replace"]
    if text.count(marker) != 1:
        raise ValueError(
            f"examples/extending/{name}/{EDITS}: expected {marker!r} once in {edit['file']}, "
            f"found it {text.count(marker)} times: name another line of that file"
        )
    if "replace" in edit:
        return text.replace(marker, edit["lines"])
    end = text.index("\n", text.index(marker) + len(marker.rstrip("\n"))) + 1
    return text[:end] + edit["lines"] + text[end:]


def apply(name: str, tree: Path) -> None:
    """Puts an example into the sources in a folder.

    Raises:
        ValueError: a new file is there already, or a place for lines is not.
    """
    for file in new_files(name):
        if (tree / file).exists():
            raise ValueError(f"{file}: expected no such file before {name} brings it")
        (tree / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(EXAMPLES / name / file, tree / file)
    for edit in edits(name):
        path = tree / edit["file"]
        path.write_text(edited(path.read_text(encoding="utf-8"), edit, name), encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = sorted(path.parent.name for path in EXAMPLES.glob(f"*/{EDITS}"))
    parser.add_argument("name", choices=names)
    parser.add_argument("folder", nargs="?", type=Path, default=EXAMPLES.parents[1], help="default: this one")
    arguments = parser.parse_args()
    apply(arguments.name, arguments.folder)
    print("\n".join(files(arguments.name)))
