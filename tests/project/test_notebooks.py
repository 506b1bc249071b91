"""Notebooks are those of today's tutorials, and run."""

import json
from pathlib import Path

import pytest
from script import script

ROOT = Path(__file__).parents[2]


SCRIPT = script("release/notebooks.py")


def test_every_notebook_is_of_todays_page() -> None:
    assert SCRIPT.stale() == [], "make notebooks"


def test_a_page_becomes_cells() -> None:
    error = "Traceback (most recent call last):\nZeroDivisionError: division by zero"
    code = f"```python\n>>> x = 1\n>>> x\n1\n>>> 1 / 0\n{error}\n```\n"
    page = f"# Title\nSee [b](b.md) and [c](#c).\n\n{code}<!-- notebook\nprint(x)\n-->\nEnd.\n"
    assert SCRIPT.cells(page, "a.md") == [
        ("markdown", "# Title\nSee [b](../../docs/b.md) and [c](#c)."),
        ("code", "x = 1\nx"),
        ("error", "1 / 0"),
        ("code", "print(x)"),
        ("markdown", "End."),
    ]


@pytest.mark.parametrize(
    "block",
    [
        "<!-- notebook\nprint(1) -->\n",
        "<!-- notebook\nprint(1) -->\nProse.\n\n<!-- notebook\nprint(2)\n-->\n",
        "<!-- notebook print(1)\n-->\n",
        "<!-- notebook\nwith open(file): x = 1 print(x)\n-->\n",
    ],
)
def test_a_block_that_is_no_cell_is_refused_by_its_page(block: str) -> None:
    with pytest.raises(ValueError, match=r"^docs/a\.md: expected .*notebook"):
        SCRIPT.cells(f"# Title\n\n{block}\nEnd.\n", "a.md")


def test_pages_with_cells_are_notebooks() -> None:
    pages = (ROOT / "docs").rglob("*.md")
    assert {page.name for page in pages if "<!-- notebook" in page.read_text()} <= set(SCRIPT.PAGES.values())


@pytest.mark.parametrize("name", SCRIPT.PAGES)
def test_notebooks_ran_to_their_end_and_have_small_outputs(name: str) -> None:
    file = ROOT / "examples" / "notebooks" / f"{name}.ipynb"
    made = json.loads(file.read_text(encoding="utf-8"))
    code = [cell for cell in made["cells"] if cell["cell_type"] == "code"]
    assert all(cell["execution_count"] for cell in code)
    for cell in code:
        failed = any(output["output_type"] == "error" for output in cell["outputs"])
        assert failed == ("raises-exception" in cell["metadata"].get("tags", []))
    assert any("image/png" in output.get("data", {}) for cell in code for output in cell["outputs"])
    assert file.stat().st_size < 400_000


@pytest.mark.slow
@pytest.mark.parametrize("name", SCRIPT.PAGES)
def test_notebooks_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("nbclient")
    if library := SCRIPT.NEEDS.get(name):
        pytest.importorskip(library)
    monkeypatch.setattr(SCRIPT, "FOLDER", tmp_path)
    SCRIPT.run(name)
    assert (tmp_path / f"{name}.ipynb").exists()
