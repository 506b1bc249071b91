"""docs/reliability.md: twenty promises, whose commands name tests and targets that exist."""

import datetime
import re
import shlex
from pathlib import Path

import pytest
from script import script

ROOT = Path(__file__).parents[2]


SCRIPT = script("release/reliability.py")
ROWS = SCRIPT.rows()


def test_twenty_rows() -> None:
    assert [row.number for row in ROWS] == list(range(1, 21))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: str(row.number))
def test_commands_are_there(row: object) -> None:
    tool, *words = shlex.split(row.command)
    if tool == "make":
        assert re.search(rf"^(\S+ )*{words[0]}( \S+)*:", (ROOT / "Makefile").read_text(), re.MULTILINE)
        assert words[0] in re.search(r"^\.PHONY: (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)[1]
        return
    assert tool == "pytest"
    places = words.index("-k") if "-k" in words else len(words)
    source = ""
    for file in words[:places]:
        assert file.startswith("tests/") and (ROOT / file).is_file(), file
        source += (ROOT / file).read_text()
    for word in " ".join(words[places + 1 :]).replace(" or ", " ").split():
        assert re.search(rf"def test_\w*{word}", source) or any(
            word in Path(file).stem for file in words[:places]
        )


@pytest.mark.parametrize("row", ROWS, ids=lambda row: str(row.number))
def test_days_are_days(row: object) -> None:
    """Written by `make reliability`, or a reason why there is none."""
    if re.match(r"\d", row.passed):
        assert datetime.date.fromisoformat(row.passed) <= datetime.datetime.now(tz=datetime.UTC).date()
    else:
        assert row.passed.startswith("not yet")


def test_a_day_is_noted_in_its_row_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "reliability.md"
    page.write_text(SCRIPT.PAGE.read_text())
    monkeypatch.setattr(SCRIPT, "PAGE", page)
    SCRIPT.note(ROWS[4], "2000-01-02")
    after = SCRIPT.rows()
    assert after[4].passed == "2000-01-02"
    assert [row for row in after if row.number != 5] == [row for row in ROWS if row.number != 5]
