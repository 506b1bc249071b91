"""docs/reliability.md: twenty promises, whose commands name tests and targets that exist."""

import re
from pathlib import Path

import pytest
from script import script

ROOT = Path(__file__).parents[2]
ROWS = script("release/reliability.py").rows()


def test_twenty_rows() -> None:
    assert list(ROWS) == list(range(1, 21))


@pytest.mark.parametrize("number", ROWS)
def test_commands_are_there(number: int) -> None:
    tool, *words = ROWS[number]
    if tool == "make":
        makefile = (ROOT / "Makefile").read_text()
        assert words[0] in re.search(r"^\.PHONY: (.+)$", makefile, re.MULTILINE)[1].split()
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
