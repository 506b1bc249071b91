"""Training runs of a grid as cells, one JSON file each, and the part of a page that is drawn from them."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from snnlib.files.atomic import write_bytes_atomically

Cell = dict[str, Any]
Key = tuple[str, ...]
RESULTS = Path(__file__).parents[1] / "results"
# The page that shows them; its part between two lines with a table's name is written anew.
PAGE = RESULTS.parents[1] / "docs" / "measurements" / "learning.md"


def grid_parser(description: str | None, folder: str, seeds: int) -> argparse.ArgumentParser:
    """The options of a program that runs a grid: the folder of its cells, its seeds, and its table alone."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, default=Path(folder))
    parser.add_argument("--seeds", type=int, nargs="*", default=[*range(seeds)], metavar="SEED")
    parser.add_argument("--table", action="store_true", help="print what is there and train nothing")
    return parser


def file_of(folder: Path, key: Key) -> Path:
    """The file of a cell; the first word of its key is a folder."""
    return folder / key[0] / f"{'-'.join(key[1:])}.json"


def run_missing(
    folder: Path, keys: Iterable[Key], run: Callable[[Key], Cell | None], within: float | None = None
) -> int:
    """Runs the cells that have no file yet, in their order, and returns how many were run; None stores nothing.

    A file is written beside and renamed, so that a run that is stopped loses one cell. No cell is begun after `within`
    seconds of the clock.
    """
    began, done = time.monotonic(), 0
    for key in keys:
        file = file_of(folder, key)
        if file.exists():
            continue
        if within is not None and time.monotonic() - began >= within:
            break
        cell = run(key)
        if cell is None:
            continue
        file.parent.mkdir(parents=True, exist_ok=True)
        # A line per entry.
        entries = ",\n".join(f" {json.dumps(name)}: {json.dumps(value)}" for name, value in cell.items())
        write_bytes_atomically(file, f"{{\n{entries}\n}}\n".encode())
        done += 1
    return done


def read(folder: Path, key: Key) -> Cell | None:
    """A cell that was run, or None."""
    file = file_of(folder, key)
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else None


def redraw(page: Path, name: str, text: str) -> None:
    """Writes `text` between the two marks of a table on a page.

    Raises:
        ValueError: the page has not both marks.
    """
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    old = page.read_text(encoding="utf-8")
    if old.count(begin) != 1 or old.count(end) != 1:
        raise ValueError(f"{page}: expected one line {begin} and one line {end}")
    head, tail = old.split(begin)[0], old.split(end)[1]
    write_bytes_atomically(page, f"{head}{begin}\n{text}\n{end}{tail}".encode())
