"""Makes the notebooks of examples/notebooks from the tutorials in docs/, run once, with outputs and pictures.

    python release/notebooks.py [NAME ...]

Prose becomes text cells, code blocks become code cells without prompts and results. A comment in a page

    <!-- notebook
    code, such as that of a picture
    -->

is a code cell that the page does not show. An example that shows an error is a cell of its own. A notebook whose other
library is not installed is left as it is. The curves of MNIST are those of its files where MNIST=FOLDER names them.
"""

from __future__ import annotations

import base64
import doctest
import json
import re
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "examples" / "notebooks"
# Pages in the order in which they are read.
PAGES = {
    "00-one-neuron": "one-neuron.md",
    "01-first-net": "first-net.md",
    "02-a-net-that-does-not-learn": "does-not-learn.md",
    "03-what-a-surrogate-is": "what-is-a-surrogate.md",
    "04-own-data": "own-data.md",
    "05-two-gradients": "two-gradients.md",
    "06-recurrence-and-delays": "recurrence.md",
    "07-streaming": "streaming.md",
    "08-a-word-and-a-heart-beat": "word-and-beat.md",
    "09-mnist-from-pixels": "mnist.md",
    "10-from-snntorch": "from-snntorch.md",
    "11-operations-and-energy": "operations.md",
    "12-leaving-as-c": "leave.md",
    "13-a-neuron-in-the-lab": "lab.md",
    "14-graded-spikes": "graded-spikes.md",
}
# Pictures of a page's own look like those of snnlib.visual.
_STYLE = """%matplotlib inline
import matplotlib as mpl
from snnlib.app.visual.canvas import FAINT, PALETTE

style = {"axes.spines.top": False, "axes.spines.right": False, "axes.edgecolor": FAINT, "legend.frameon": False}
mpl.rcParams.update(style | {"axes.titlelocation": "left", "axes.prop_cycle": mpl.cycler(color=PALETTE)})"""
# Libraries beside snnlib's own that a notebook imports; `make notebooks` has them where `make test-peers` does.
NEEDS = {"10-from-snntorch": "snntorch"}
_BLOCK = re.compile(
    r"^```python\n(?P<code>.*?)^```\n|^<!-- notebook\n(?P<hidden>.*?)^-->\n", re.MULTILINE | re.DOTALL
)
# A notebook is read beside its page.
_LINK = re.compile(r"\]\((?!https?:|#)([^)]+)\)")


def cells(page: str, name: str) -> list[tuple[str, str]]:
    """Returns kind and source of the cells of a page: `"markdown"`, `"code"`, or `"error"` for code that raises.

    Raises:
        ValueError: a block `<!-- notebook` of the page of this name that is no cell, or does not compile.
    """
    found: list[tuple[str, str]] = []
    end = 0
    for block in _BLOCK.finditer(page):
        found.append(("markdown", _LINK.sub(r"](../../docs/\1)", page[end : block.start()]).strip()))
        found += [("code", _compiled(block["hidden"], name))] if block["hidden"] else _examples(block["code"])
        end = block.end()
    found.append(("markdown", _LINK.sub(r"](../../docs/\1)", page[end:]).strip()))
    if any(kind == "markdown" and "<!-- notebook" in source for kind, source in found):
        raise ValueError(
            f"docs/{name}: expected a line `<!-- notebook`, code and a line `-->`, got a block without one of them"
        )
    return [(kind, source.strip()) for kind, source in found if source.strip()]


def _compiled(code: str, name: str) -> str:
    """The code, if it is some: a block that was wrapped as prose is none."""
    try:
        compile(code, name, "exec")
    except SyntaxError as error:
        raise ValueError(f"docs/{name}: expected code in a block `<!-- notebook`, got {error}") from error
    return code


def _examples(code: str) -> list[tuple[str, str]]:
    examples = doctest.DocTestParser().get_examples(code)
    found: list[tuple[str, str]] = []
    for example in examples:
        if example.exc_msg:
            found.append(("error", example.source))
        elif found and found[-1][0] == "code":
            found[-1] = ("code", found[-1][1] + example.source)
        else:
            found.append(("code", example.source))
    return found or [("code", code)]


def notebook(name: str) -> dict[str, Any]:
    """Returns a notebook that has not run."""
    # Pictures stand in the notebook.
    page = cells((ROOT / "docs" / PAGES[name]).read_text(encoding="utf-8"), PAGES[name])
    made = []
    draws = any("pyplot" in source for _, source in page)
    first = ("code", _STYLE if draws else "%matplotlib inline")
    for number, (kind, source) in enumerate([*page[:1], first, *page[1:]]):
        cell: dict[str, Any] = {"cell_type": kind, "id": f"cell-{number}", "metadata": {}, "source": source}
        if kind != "markdown":
            tags = {"tags": ["raises-exception"]} if kind == "error" else {}
            cell |= {"cell_type": "code", "metadata": tags, "outputs": [], "execution_count": None}
        made.append(cell)
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {"cells": made, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}


def sources(made: dict[str, Any]) -> list[tuple[str, str]]:
    """Returns kind and source of all cells."""
    return [(cell["cell_type"], "".join(cell["source"])) for cell in made["cells"]]


def pictures(page: str) -> dict[str, list[bytes]]:
    """Returns the stored pictures of a page's notebook, PNG files by the source of their cell; none without one."""
    found: dict[str, list[bytes]] = {}
    for name in (name for name, other in PAGES.items() if other == page):
        for cell in json.loads((FOLDER / f"{name}.ipynb").read_text(encoding="utf-8"))["cells"]:
            shown = [output["data"]["image/png"] for output in cell.get("outputs", []) if _is_picture(output)]
            found["".join(cell["source"])] = [base64.b64decode("".join(image)) for image in shown]
    return found


def _is_picture(output: dict[str, Any]) -> bool:
    return "image/png" in output.get("data", {})


def with_pictures(text: str, page: str, folder: Path) -> str:
    """Replaces the hidden blocks of a page by their stored pictures, which go into a folder beside it."""
    stored = pictures(page)

    def shown(block: re.Match[str]) -> str:
        if not block["hidden"]:
            return block[0]
        files = []
        for number, image in enumerate(stored.get(block["hidden"].strip(), [])):
            files.append(folder / f"{Path(page).stem}-{block.start()}-{number}.png")
            files[-1].write_bytes(image)
        title = re.search(r'title="([^"]+)"', block["hidden"])
        alternative = title[1] if title else "Picture that the code above draws"
        return "".join(f"![{alternative}]({folder.name}/{file.name})\n" for file in files)

    return _BLOCK.sub(shown, text)


def stale() -> list[str]:
    """Returns the names of the notebooks whose cells are not those of their page."""
    files = {name: FOLDER / f"{name}.ipynb" for name in PAGES}
    return [
        name
        for name, file in files.items()
        if not file.exists()
        or sources(json.loads(file.read_text(encoding="utf-8"))) != sources(notebook(name))
    ]


def run(name: str) -> None:
    """Runs a notebook and writes it with its outputs; an error ends it."""
    import nbformat  # noqa: PLC0415
    from nbclient import NotebookClient  # noqa: PLC0415

    made = nbformat.from_dict(notebook(name))
    NotebookClient(made, timeout=600, resources={"metadata": {"path": str(ROOT)}}).execute()
    for cell in made.cells:
        # Times change with every run, and a traceback has the machine's paths.
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            # Progress bars tell how far a slow machine is.
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
        for output in cell.get("outputs", []):
            if output.output_type == "error":
                output.traceback = [f"{output.ename}: {output.evalue}"]
    FOLDER.mkdir(exist_ok=True)
    nbformat.validate(made)
    (FOLDER / f"{name}.ipynb").write_text(nbformat.writes(made) + "\n", encoding="utf-8")
    print(f"{name}: {sum(cell.cell_type == 'code' for cell in made.cells)} code cells", flush=True)


if __name__ == "__main__":
    for asked in sys.argv[1:] or PAGES:
        if (library := NEEDS.get(asked)) and find_spec(library) is None:
            print(f"{asked}: needs {library}, which is not installed; left as it is")
        else:
            run(asked)
