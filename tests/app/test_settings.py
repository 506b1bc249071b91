"""A dataclass of declared settings: checks by type and by declaration, help, and the options of a command."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest
import typer
from typer.testing import CliRunner

from snnlib.app.setting import (
    check_settings,
    count,
    describe,
    matches,
    number,
    setting,
    settings_of,
    such_that,
)
from snnlib.app.train_cli import given_options, with_options
from snnlib.app.training import ConfigError


@dataclass(frozen=True)
class Dough:
    group: ClassVar[str] = "Dough"

    loaves: int = setting(2, "Bake this many.", count(1, 9))
    hours: float | None = setting(None, "Let it rise for so long.", number(above=0))
    salt: float = setting(2.0, "Add this much.", number(least=0), such_that(lambda salt: salt < 5, "less"))
    grain: str = setting("rye", "Take this grain.", words=("rye", "wheat"))


@describe
@dataclass(frozen=True)
class Baking(Dough):
    """How a loaf is baked."""

    group: ClassVar[str] = "Oven"

    heat: Literal["low", "high"] = setting("low", "Heat so much.")
    hot: bool = setting(False, "Heat the oven first.")
    tin: str | None = setting(None, "Bake in this tin.", matches(r"\d+x\d+", "WxH"))
    oven: str | None = setting(None, "Bake here.", path=True)
    baker: str = setting("me", "")

    def __post_init__(self) -> None:
        check_settings(self)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("loaves", 0, "an integer >= 1"),
        ("loaves", True, "an integer >= 1"),
        ("loaves", 10, "an integer <= 9"),
        ("hours", 0, "a number > 0"),
        ("hours", float("inf"), "a number > 0"),
        ("salt", -1.0, "a number >= 0"),
        ("salt", None, "a number >= 0"),
        ("salt", 5, "less"),
        ("grain", "oat", "one of rye, wheat"),
        ("grain", [], "one of rye, wheat"),
        ("heat", "none", "one of low, high"),
        ("hot", 1, "true or false"),
        ("tin", "3x", "WxH"),
        ("oven", 3, "text"),
        ("baker", None, "text"),
    ],
)
def test_what_is_wrong_is_named(name: str, value: Any, expected: str) -> None:
    with pytest.raises(ConfigError) as error:
        Baking(**{name: value})
    assert str(error.value) == f"{name}: expected {expected}, got {value!r}"


def test_right_values_pass() -> None:
    assert Baking(9, 0.5, 0, "wheat", "low", True, "10x3", None, "you").tin == "10x3"


def test_a_setting_without_a_check_is_refused() -> None:
    @dataclass(frozen=True)
    class Unchecked(Dough):
        slices: int = setting(2, "Cut this many.")

    with pytest.raises(TypeError, match="expected a Literal, bool or str without a check"):
        settings_of(Unchecked)


def test_help_lists_settings() -> None:
    assert Baking.__doc__ is not None
    assert Baking.__doc__.startswith("How a loaf is baked.\n\nArgs:\n    loaves: Bake this many.\n")
    assert "baker" not in Baking.__doc__


@pytest.fixture
def app() -> typer.Typer:
    app = typer.Typer(rich_markup_mode="rich")

    @app.command()
    @with_options(Baking)
    def bake(context: typer.Context, recipe: str = "bread", **settings: Any) -> None:
        """Bake."""
        print(sorted(given_options(context, Baking).items()), recipe, settings["loaves"])

    return app


def test_options_give_settings(app: typer.Typer) -> None:
    words = ["--loaves", "3", "--hot", "--tin", "1x2", "--oven", "there", "--grain", "wheat"]
    done = CliRunner().invoke(app, words)
    given = {"loaves": 3, "hot": True, "tin": "1x2", "oven": "there", "grain": "wheat"}
    assert done.stdout.strip() == f"{sorted(given.items())} bread 3"
    assert CliRunner().invoke(app, []).stdout.strip() == "[] bread 2"
    assert CliRunner().invoke(app, ["--grain", "oat"]).exit_code == 2


def test_options_stand_in_their_groups(app: typer.Typer) -> None:
    shown = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "200"}).stdout
    places = [shown.index(text) for text in ("--recipe", "--loaves", "--grain", "--hot", "--oven")]
    assert places == sorted(places)
    assert "--baker" not in shown
    assert "--no-hot" in shown


def test_paths_of_a_command_stay_paths(tmp_path: Path) -> None:
    """Only those of settings are kept as text."""
    app = typer.Typer()

    @app.command()
    @with_options(Baking)
    def bake(context: typer.Context, out: Path | None = None, **settings: Any) -> None:
        print([type(value).__name__ for value in given_options(context, Baking).values()])

    done = CliRunner().invoke(app, ["--out", str(tmp_path), "--oven", str(tmp_path)])
    assert done.stdout.strip() in ("['PosixPath', 'str']", "['WindowsPath', 'str']")
