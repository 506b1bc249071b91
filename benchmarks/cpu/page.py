"""One HTML page of the figures that the benchmarks wrote: tables, pictures, the machine and the fair settings.

    python benchmarks/cpu/page.py FOLDER

FOLDER holds `NAME.json` and `NAME.png` of benchmarks (`--json`, `--picture`); the page becomes FOLDER/index.html.
"""

from __future__ import annotations

import argparse
import base64
import datetime
import importlib.metadata
import json
import subprocess
from html import escape
from pathlib import Path
from typing import Any

from turns import COLUMNS, Table

import snnlib

PEERS = ("spikingjelly", "snntorch", "norse", "sinabs")
STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 75rem; margin: 2rem auto; padding: 0 1rem; color: #1c2733; }
table { border-collapse: collapse; margin: 1rem 0; display: block; overflow-x: auto; }
th, td { padding: .25rem .8rem; text-align: right; border-bottom: 1px solid #d8dee4; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
img { max-width: 100%; } pre { white-space: pre-wrap; color: #57606a; font-size: .85rem; }
"""
FAIR = (
    "All nets of a table run in turns in one process, with the same threads and data, memory that the allocator keeps, "
    "and layers calibrated to the same rates. Every library runs in its fastest layout. A ratio is the median over "
    "turns of a row's time over the first row's."
)


def version(name: str) -> str:
    """The version of a package, if it is installed."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def table_html(title: str, table: Table) -> str:
    """A table of figures as the terminal shows it."""
    keys = list(dict.fromkeys(key for row in table.values() for key in row))
    heads = "".join(f"<th>{escape(COLUMNS[key][0])}</th>" for key in keys)
    rows = "".join(
        f"<tr><td>{escape(name)}</td>"
        + "".join(f"<td>{row[key]:.{COLUMNS[key][1]}f}</td>" if key in row else "<td></td>" for key in keys)
        + "</tr>"
        for name, row in table.items()
    )
    return f"<table><tr><th>{escape(title)}</th>{heads}</tr>{rows}</table>"


def accuracy_html(figures: dict[str, Any]) -> str:
    """The table of `accuracy.py`: accuracy against the time that training took."""
    rows = "".join(
        f"<tr><td>{escape(row['method'])}</td><td>{row['mean']:.1%}</td><td>{row['error']:.1%}</td>"
        f"<td>{row['cpu_seconds'] / figures['folds']:.0f}</td></tr>"
        for row in figures["methods"]
    )
    what = f"{figures['data']}, {figures['samples']} samples, {figures['folds']} folds, {figures['epochs']} epochs"
    return (
        f"<p>{escape(what)}</p><table><tr><th>method</th><th>test accuracy</th><th>standard error</th>"
        f"<th>CPU s per fold</th></tr>{rows}</table>"
    )


def _program(name: str) -> Path:
    """The file of a benchmark whose figures are on the page."""
    files = (Path(__file__).parents[1] / folder / f"{name}.py" for folder in ("cpu", "learning"))
    return next(file for file in files if file.exists())


def section(file: Path) -> str:
    """Title, purpose, tables and picture of one benchmark."""
    figures = json.loads(file.read_text(encoding="utf-8"))
    source = _program(file.stem).read_text(encoding="utf-8")
    title, _, purpose = source.split('"""')[1].partition("\n")
    parts = [f"<h2>{escape(title)}</h2>"]
    if "methods" in figures:
        parts.append(accuracy_html(figures))
    else:
        parts += [table_html(name, table) for name, table in figures["tables"].items()]
        parts.append(
            "<p>" + escape("; ".join(f"{key}: {value}" for key, value in figures["facts"].items())) + "</p>"
        )
    picture = file.with_suffix(".png")
    if picture.exists():
        data = base64.b64encode(picture.read_bytes()).decode()
        parts.append(f'<img alt="{escape(title)}" src="data:image/png;base64,{data}">')
    parts.append(
        f"<details><summary>How it is measured</summary><pre>{escape(purpose.strip())}</pre></details>"
    )
    return "\n".join(parts)


def commit() -> str:
    """The commit that was measured, if this is a checkout."""
    answer = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parent,
    )
    return answer.stdout.strip() or "unknown"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    files = sorted(folder.glob("*.json"), key=lambda file: file.stat().st_mtime)
    if not files:
        raise SystemExit(f"folder: expected the JSON files of benchmarks, got none in {folder}")
    versions = ", ".join(f"{name} {version(name)}" for name in ("torch", *PEERS))
    made = f"snnlib {snnlib.__version__} ({commit()}), {datetime.date.today().isoformat()}; {versions}"
    body = "\n".join(section(file) for file in files)
    page = (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>snnlib and other libraries</title><style>{STYLE}</style>"
        f"<h1>snnlib and other libraries</h1><p>{escape(made)}</p><p>{escape(FAIR)}</p>{body}</html>\n"
    )
    (folder / "index.html").write_text(page, encoding="utf-8")
    print(f"page: {folder / 'index.html'}")


if __name__ == "__main__":
    main()
