"""The accuracy benchmark: folds, figures, and a tiny run from end to end."""

import importlib
import json
import math
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks" / "learning"


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("accuracy")


@pytest.fixture
def folds(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("folds")


def test_folds_have_their_share_of_every_class(folds: ModuleType) -> None:
    labels = [label for label in range(10) for _ in range(8 + label)]
    fold = folds.fold_of_samples(labels, 5)
    assert fold == folds.fold_of_samples(labels, 5)
    sizes = Counter(fold)
    assert max(sizes.values()) - min(sizes.values()) <= 1
    for label in range(10):
        of_class = Counter(f for f, its in zip(fold, labels, strict=True) if its == label)
        assert max(of_class.values()) - min(of_class[f] for f in range(5)) <= 1
    # Not the order of the files, in which neighbours may be of one writer.
    assert fold != [place % 5 for place in range(len(labels))]


def test_mean_and_standard_error(folds: ModuleType) -> None:
    mean, error = folds.mean_and_error([0.9, 0.92, 0.94])
    assert mean == pytest.approx(0.92)
    assert error == pytest.approx(0.02 / math.sqrt(3))
    assert math.isnan(folds.mean_and_error([0.9])[1])


def test_a_tiny_run(
    benchmark: ModuleType,
    data_root: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "nmnist_800").symlink_to(data_root)
    monkeypatch.setenv("SNNLIB_DATA", str(tmp_path))
    figures = tmp_path / "figures.json"
    words = ["--folds", "2", "--epochs", "2", "--samples", "45", "--json", str(figures)]
    monkeypatch.setattr(sys, "argv", ["accuracy", *words, "--method", "recipe", "--method", "paper"])
    benchmark.main()
    out = capsys.readouterr().out
    assert out.startswith("N-MNIST: 45 samples, 2 folds, 2 epochs")
    written = json.loads(figures.read_text())
    recipe, paper = written["methods"]
    assert (recipe["method"], paper["method"]) == ("recipe", "paper")
    for row in (recipe, paper):
        assert len(row["last"]) == 2
        assert row["mean"] == pytest.approx(sum(row["last"]) / 2)
        assert all(best >= last for best, last in zip(row["best"], row["last"], strict=True))
    assert paper["recipe_ahead"] == pytest.approx(recipe["mean"] - paper["mean"])
    difference = [ours - theirs for ours, theirs in zip(recipe["last"], paper["last"], strict=True)]
    assert paper["recipe_ahead_error"] == pytest.approx(abs(difference[0] - difference[1]) / 2)
    assert f"{recipe['mean']:6.1%}" in out


def test_the_cost_of_fewer_operations_is_paired(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Differences by fold, of means over seeds; cuts of all operations and of those behind the first layer."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    operations = importlib.import_module("operations")
    lost = {(0, 0): 0.01, (0, 1): 0.03, (1, 0): 0.0, (1, 1): 0.0}
    run = {"operations": 900.0, "first_layer": 100.0, "seconds": 1.0}
    plain = {key: {**run, "accuracy": 0.95 + key[0] / 50} for key in lost}
    priced = {
        key: {**plain[key], "accuracy": plain[key]["accuracy"] - loss, "operations": 300.0}
        for key, loss in lost.items()
    }
    operations.summary({0.0: plain, 5.0: priced})
    *_, first, second = capsys.readouterr().out.splitlines()
    assert first.split() == ["0", "96.00%", "+-", "1.00%", "+0.00", "+-", "0.00", "900", "1.0", "1.0"]
    assert second.split() == ["5", "95.00%", "+-", "2.00%", "-1.00", "+-", "1.00", "300", "3.0", "4.0"]
