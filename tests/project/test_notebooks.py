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
    assert SCRIPT.cells(page) == [
        ("markdown", "# Title\nSee [b](../../docs/b.md) and [c](#c)."),
        ("code", "x = 1\nx"),
        ("error", "1 / 0"),
        ("code", "print(x)"),
        ("markdown", "End."),
    ]


@pytest.mark.parametrize("name", SCRIPT.PAGES)
def test_notebooks_ran_to_their_end_and_have_small_outputs(name: str) -> None:
    file = ROOT / "examples" / "notebooks" / f"{name}.ipynb"
    made = json.loads(file.read_text(encoding="utf-8"))
    code = [cell for cell in made["cells"] if cell["cell_type"] == "code"]
    assert all(cell["execution_count"] for cell in code)
    for cell in code:
        failed = any(output["output_type"] == "error" for output in cell["outputs"])
        assert failed == ("raises-exception" in cell["metadata"].get("tags", []))
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
