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
    monkeypatch.setattr(sys, "argv", ["accuracy", *words, "--method", "recipe", "--method", "lif"])
    benchmark.main()
    out = capsys.readouterr().out
    assert out.startswith("N-MNIST: 45 samples, 2 folds, 2 epochs")
    written = json.loads(figures.read_text())
    recipe, lif = written["methods"]
    assert (recipe["method"], lif["method"]) == ("recipe", "lif")
    for row in (recipe, lif):
        assert len(row["last"]) == 2
        assert row["mean"] == pytest.approx(sum(row["last"]) / 2)
        assert all(best >= last for best, last in zip(row["best"], row["last"], strict=True))
    assert lif["recipe_ahead"] == pytest.approx(recipe["mean"] - lif["mean"])
    difference = [ours - theirs for ours, theirs in zip(recipe["last"], lif["last"], strict=True)]
    assert lif["recipe_ahead_error"] == pytest.approx(abs(difference[0] - difference[1]) / 2)
    assert f"{recipe['mean']:6.1%}" in out
