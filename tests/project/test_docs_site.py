"""The documentation site: every page is in its navigation, and every public name in its reference."""

import re
import sys
from pathlib import Path

import pairs
import pytest
import yaml
from script import script

ROOT = Path(__file__).parents[2]


def test_every_public_name_is_documented_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pages = script("docs/site/pages.py")
    monkeypatch.setattr(pages, "PAGES", tmp_path)
    pages.write_reference()
    text = "".join(page.read_text() for page in (tmp_path / "api").glob("*.md"))
    for heading in ("snnlib.SpikingConv2d", "snnlib.losses.tet_loss", "snnlib.readout.spike_count"):
        assert text.count(f"heading: {heading}\n") == 1
    monkeypatch.setattr(pages, "REFERENCE", {"layers": pages.REFERENCE["layers"]})
    (tmp_path / "api").rename(tmp_path / "before")
    with pytest.raises(SystemExit, match=r"documents .*SpikeDoctor"):
        pages.write_reference()


def test_sessions_are_marked_as_such() -> None:
    """So that the button copies no prompts; a block of plain code stays one."""
    linked = script("docs/site/pages.py").linked
    assert linked("```python\n>>> 1 + 1\n2\n```") == "```pycon\n>>> 1 + 1\n2\n```"
    assert linked("```python\nx = 1\n```") == "```python\nx = 1\n```"


def test_every_page_is_in_the_navigation() -> None:
    listed = (ROOT / "mkdocs.yml").read_text()
    navigation = str(yaml.safe_load(listed)["nav"])
    for page in (ROOT / "docs").glob("*.md"):
        assert f"'{page.name}'" in navigation, f"{page.name} is in no section of mkdocs.yml"


def test_every_neuron_draws_a_response(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    responses = script("docs/site/responses.py")
    import snnlib  # noqa: PLC0415

    for name in ("LIF", "Integrator", "Izhikevich"):
        current, states, value = responses.response(snnlib.neurons.MODELS[name]())
        assert len(current) == len(value) == responses.STEPS
        assert all(len(state) == responses.STEPS for state in states)
        assert int(value.count_nonzero()) >= responses._LEAST_SPIKES


def test_examples_in_docstrings_are_blocks_of_code() -> None:
    pytest.importorskip("griffe")
    convert = script("docs/site/docstrings.py").as_markdown
    text = "Adds.\n\n::\n\n    y = x\n\n>>> 1\n1\n\nMore::\n\n    z"
    assert convert(text).split("\n") == [
        *("Adds.", "", "", "", "    y = x", "", "```pycon", ">>> 1", "1", "```", "", "More:", "", "    z", "")
    ]


def test_the_table_of_pairs_is_what_tests_found() -> None:
    text = pairs.PAGE.read_text(encoding="utf-8")
    assert pairs.BEGIN + pairs.table(pairs.stored()) + pairs.END in text


# A page with lists of equations.
_WIDER = {"neurons"}
_PAGES = sorted(page for page in (ROOT / "docs").rglob("*.md") if page.stem not in _WIDER)


@pytest.mark.parametrize("page", _PAGES, ids=lambda page: page.stem)
def test_prose_is_wrapped(page: Path) -> None:
    fenced = r"^```.*?^```|^<!--.*?-->"
    prose = re.sub(fenced, "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    lines = [line for line in prose.splitlines() if not line.startswith(("|", "    "))]
    assert [line for line in lines if len(line) > 120] == []
