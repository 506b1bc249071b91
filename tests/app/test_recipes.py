"""Recipes: settings that can be used as they stand, a command that says where they come from, one seed one result."""

import re
from pathlib import Path

import pytest

from snnlib.app.cli import main
from snnlib.app.recipes import RECIPES, recipe
from snnlib.app.training import ConfigError, RunFolder, TrainConfig
from snnlib.app.training.run import train_run

# Settings that make any recipe small enough for a test.
SMALL = {"net": "4C5s4-P2-10", "time_steps": 8, "step_ms": 5.0, "epochs": 2, "threads": 1, "device": "cpu"}
# Recipes of images normalise pixels, and those of words change voices, which frames of events have not, and test once.
SMALL |= {"mean": 0.0, "std": 1.0, "vary": 0.0, "test_after": "epoch"}


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_says_what_it_reached(name: str) -> None:
    chosen = recipe(name)
    assert chosen.name == name
    assert isinstance(chosen.config(root="somewhere"), TrainConfig)
    assert chosen.source
    assert chosen.note
    # Nobody has had the files of Fashion-MNIST yet.
    assert bool(chosen.measured) == (name != "fashion-mnist")
    assert str(chosen).endswith("\n  not measured") == (not chosen.measured)
    if chosen.measured:
        epochs = chosen.config(root="somewhere").learning.epochs
        assert f"\n  measured by {epochs} epochs on {chosen.measured}" in str(chosen)
        assert re.search(r"test accuracy [5-9]\d\.\d( \+- \d\.\d)? % after the last epoch", chosen.measured)
        assert re.search(r"\((snnlib train|python benchmarks/)[^()]*\)$", chosen.measured)


def test_the_default_is_the_recipe_for_the_digits() -> None:
    assert recipe("digits").config() == TrainConfig()


def test_changes_come_before_the_recipe() -> None:
    chosen = recipe("nmnist")
    config = chosen.config(root="somewhere", epochs=3)
    assert config.learning.epochs == 3
    assert config == chosen.config(root="somewhere").changed(epochs=3)
    with pytest.raises(ConfigError, match="epochs: expected an integer >= 1, got 0"):
        chosen.config(root="somewhere", epochs=0)


@pytest.mark.parametrize("name", RECIPES)
def test_one_seed_gives_one_accuracy(name: str, data_root: Path, tmp_path: Path) -> None:
    net = "8S-10" if "S" in recipe(name).config(root=".").net.net else SMALL["net"]
    # Recipes of pixels show one at each step, of events there are frames.
    small = {**SMALL, "net": net, "encoding": "current"}
    config = recipe(name).config(data="nmnist", root=str(data_root), **small)
    histories = []
    for folder in (tmp_path / "one", tmp_path / "two"):
        rows = train_run(config, RunFolder.create(folder, config), progress=False).history
        histories.append([(row["train_loss"], row.get("test_accuracy")) for row in rows])
    assert histories[0] == histories[1]


@pytest.mark.usefixtures("undrawn")
def test_the_command_says_source_and_figures_and_keeps_overrides(
    data_root: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = [word for name, value in SMALL.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    folder = tmp_path / "run"
    with pytest.raises(SystemExit) as stop:
        main(["train", "--recipe", "nmnist", "--root", str(data_root), *words, "--out", str(folder)])
    out = capfd.readouterr().out
    assert not stop.value.code
    chosen = recipe("nmnist")
    assert str(chosen) in out
    assert re.search(r"changed here: .*epochs", out)
    assert TrainConfig.load(folder / "config.json") == chosen.config(root=str(data_root), **SMALL)
    # The outputs do not fire, and are in the picture of a sample all the same.
    assert (folder / "raster.png").is_file()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--recipe", "cifar"], f"error: --recipe: expected one of {', '.join(RECIPES)}, got 'cifar'\n"),
        (
            ["--recipe", "nmnist"],
            "error: --root: expected the folder of the N-MNIST copy .*, got none; --download downloads it\n",
        ),
        (
            ["--resume", "x", "--recipe", "digits"],
            "error: --recipe: expected no value beside --resume, got 'digits'\n",
        ),
        (["--resume", "x", "--out", "y"], "error: --out: expected no value beside --resume, got 'y'\n"),
    ],
)
def test_bad_choices_are_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["train", *arguments])
    assert stop.value.code == 2
    assert re.fullmatch(message, capsys.readouterr().err)


def test_standardised_weights_and_chips_bring_the_settings_that_they_learn_with() -> None:
    config = recipe("digits").config(weight_scheme="standardized", lr=5e-4)
    assert (config.learning.loss, config.learning.desired, config.learning.undesired) == ("count", 15.0, 2.0)
    assert (config.learning.lr, config.learning.clip_norm, config.net.target_rate) == (5e-4, 0.02, 0.08)
    assert recipe("digits").config().learning.loss == "tet"
    chip = recipe("nmnist").config(root="nmnist", dialect="loihi", tau=4.0)
    assert (chip.net.neuron, chip.net.tau, chip.learning.lr) == ("lif", 4.0, 0.02)
    # A recipe of its own keeps what was measured.
    own = recipe("mnist")
    assert own.config(root="mnist", weight_scheme="standardized") == own.config(root="mnist")
