"""The documentation site: every page is in its navigation, every public name with its signature in the reference."""

import importlib
import inspect
import re
import sys
from pathlib import Path
from typing import Any

import peer_tables
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


def documented() -> dict[str, Any]:
    """Every class and function of the reference, by the path of its definition."""
    pages = script("docs/site/pages.py")
    neurons = importlib.import_module("snnlib.neurons")
    found = [*neurons.MODELS.values(), *neurons.FIXED_LENGTH_MODELS.values()]
    for _, modules in pages.REFERENCE.values():
        for module in map(importlib.import_module, modules):
            found += [getattr(module, name) for name in pages.public_names(module)]
    named = (each for each in found if callable(each) and hasattr(each, "__qualname__"))
    own = (each for each in named if each.__module__.startswith("snnlib"))
    return {f"{each.__module__}.{each.__qualname__}": each for each in own}


def call_of(target: Any) -> inspect.Signature | None:
    """How a user calls a class or function; None of exceptions, which say nothing."""
    try:
        return inspect.signature(target)
    except ValueError:
        assert issubclass(target, Exception)
        return None


def test_signatures_of_the_site_are_those_of_run_time() -> None:
    signatures, found = script("docs/site/signatures.py"), documented()
    assert len(found) > 250
    for path, target in found.items():
        expected, shown = call_of(target), signatures.parameters(target)
        assert (shown is None) == (expected is None), path
        if expected is None:
            continue
        given = list(expected.parameters.values())
        assert [(each.name, each.kind) for each in shown] == [
            (each.name, each.kind.description) for each in given
        ]
        for each, parameter in zip(shown, given, strict=True):
            assert (each.default is None) == (parameter.default is parameter.empty), path
            assert "0x" not in (each.default or "") + (each.annotation or ""), f"{path}: {each}"
        # As a page has it, and as a page of the source alone had it.
        marks = {"variadic positional": "*", "variadic keyword": "**"}
        parts = [
            f"{marks.get(kind, '')}{name}" + ("" if default is None else f"=<b>{default}</b>")
            for name, kind, _, default in shown
        ]
        kinds = [each.kind for each in shown]
        if "keyword-only" in kinds and "variadic positional" not in kinds:
            parts.insert(kinds.index("keyword-only"), "*")
        if "positional-only" in kinds:
            parts.insert(kinds.count("positional-only"), "/")
        page = '<h2 id="{}" class="doc doc-heading">x</h2>\n<div class="doc-signature">f({})</div>'
        assert signatures.wrong_on(page.format(path, ", ".join(parts))) == [], path
        assert signatures.wrong_on(page.format(path, "constants, *, learnable=()")) == [path]


def test_a_neuron_is_called_as_its_page_says() -> None:
    signatures = script("docs/site/signatures.py")
    neurons = importlib.import_module("snnlib.neurons")
    for model in {**neurons.MODELS, **neurons.FIXED_LENGTH_MODELS}.values():
        shown = signatures.parameters(model)
        assert shown[0].name != "constants" and "batch_first" in [each.name for each in shown]
        required = {each.name: 8 for each in shown if each.default is None}
        given = {
            each.name: inspect.signature(model).parameters[each.name].default
            for each in shown
            if each.name not in required
        }
        assert repr(model(**required, **given)) == repr(model(**required))


def test_the_generator_of_the_site_has_these_signatures() -> None:
    griffe = pytest.importorskip("griffe", reason="make docs installs griffe")
    docstrings = script("docs/site/docstrings.py")
    package = griffe.load(
        "snnlib", search_paths=[str(ROOT)], extensions=griffe.load_extensions(docstrings.Docstrings)
    )
    for path, target in documented().items():
        expected = call_of(target)
        if expected is not None:
            found = package[path.removeprefix("snnlib.")].parameters
            given = [each for each in found if each.name != "self"]
            assert [(each.name, each.kind.value) for each in given] == [
                (each.name, each.kind.description) for each in expected.parameters.values()
            ], path


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
        if name != "Integrator":
            assert bool((states[0][value != 0] >= 1).all()), "drawn before the reset"


def test_no_response_stands_on_an_edge_of_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    """A ten-thousandth more or less of input leaves every spike at its step."""
    responses = script("docs/site/responses.py")
    import snnlib  # noqa: PLC0415

    heights = responses._HEIGHTS
    for name, model in snnlib.neurons.MODELS.items():
        found = []
        for factor in (1.0, 0.9999, 1.0001):
            monkeypatch.setattr(responses, "_HEIGHTS", tuple(factor * height for height in heights))
            found.append(responses.response(model())[2].nonzero().flatten().tolist())
        assert found[0] == found[1] == found[2], name


def test_every_option_is_described_on_its_neurons_page() -> None:
    pages, neurons = script("docs/site/pages.py"), importlib.import_module("snnlib.neurons")
    for name, model in {**neurons.MODELS, **neurons.FIXED_LENGTH_MODELS}.items():
        own, section = pages.arguments_of(model), pages.shared_options(model)
        for option in inspect.signature(model).parameters:
            text = own[option]
            if text.startswith("as in `"):
                (line,) = re.findall(rf"^- \*\*`{option}`\*\*: (.+)$", section, re.M)
                text = line
            assert len(text) > 10 and not text.startswith("as in"), f"{name}.{option}"
    assert "resets after decay and input of the following step" in pages.shared_options(neurons.LIF)


def test_examples_in_docstrings_are_blocks_of_code() -> None:
    pytest.importorskip("griffe")
    convert = script("docs/site/docstrings.py").as_markdown
    text = "Adds.\n\n::\n\n    y = x\n\n>>> 1\n1\n\nMore::\n\n    z"
    assert convert(text).split("\n") == [
        *("Adds.", "", "", "", "    y = x", "", "```pycon", ">>> 1", "1", "```", "", "More:", "", "    z", "")
    ]


@pytest.mark.parametrize("name", ["pairs", "classes"])
def test_the_tables_of_other_libraries_are_what_tests_found(name: str) -> None:
    assert peer_tables.sections()[name] in peer_tables.PAGE.read_text(encoding="utf-8")


def test_no_picture_of_a_page_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Links to pictures lead to files, and every notebook's pictures stand on its page of the site."""
    pages, notebooks = script("docs/site/pages.py"), script("release/notebooks.py")
    monkeypatch.setattr(pages, "PAGES", tmp_path / "pages")
    monkeypatch.setattr(sys, "path", list(sys.path))
    pages.write_guides()
    for page in pages.PAGES.rglob("*.md"):
        text = page.read_text(encoding="utf-8")
        links = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", text)
        assert [link for link in links if not (page.parent / link).is_file()] == [], page.name
        assert "<!-- notebook" not in text and "<img" not in text, page.name
        drawn = [image for images in notebooks.pictures(page.name).values() for image in images]
        assert len([link for link in links if link.startswith(f"images/{page.stem}-")]) == len(drawn)
    assert len(list((pages.PAGES / "images").glob("recurrence-*.png"))) == 2


def test_screenshots_are_skipped_without_a_browser(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    look = script("docs/site/look.py")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(look, "LOOK", tmp_path / "look")
    look.main()
    assert capsys.readouterr().out.startswith("skipped: none of chromium, ")
    assert not look.LOOK.exists()


# Pixels of a table at a window of 820: the page without its margins; a letter, and the edges of a cell (copy.css).
_PAGE, _LETTER, _EDGES = 772, 7.2, 22


def least_width(table: list[str]) -> float:
    """Pixels below which the longest words of a table's columns do not fit; code breaks at every letter."""
    rows = [re.split(r"(?<!\\)\|", re.sub(r"`[^`]*`", "", row.strip("|"))) for row in table]
    shown = [[re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", cell) for cell in row] for row in rows]
    words = [[re.split(r"[\s-]+", cell) for cell in column] for column in zip(*shown, strict=True)]
    return sum(_EDGES + _LETTER * max(len(word) for cell in column for word in cell) for column in words)


def test_no_table_is_wider_than_its_page() -> None:
    assert least_width(["| a | b |", "| --- | --- |", f"| {'c' * 120} | d |"]) > _PAGE
    for page in (ROOT / "docs").rglob("*.md"):
        text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
        for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
            width = least_width(table.splitlines())
            assert width < _PAGE, f"{page.name}: {width:.0f} pixels for {table.splitlines()[0]}"


# A page with lists of equations.
_WIDER = {"neurons"}
_PAGES = sorted(page for page in (ROOT / "docs").rglob("*.md") if page.stem not in _WIDER)


@pytest.mark.parametrize("page", _PAGES, ids=lambda page: page.stem)
def test_prose_is_wrapped(page: Path) -> None:
    fenced = r"^```.*?^```|^<!--.*?-->"
    prose = re.sub(fenced, "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    lines = [line for line in prose.splitlines() if not line.startswith(("|", "    "))]
    assert [line for line in lines if len(line) > 120] == []
