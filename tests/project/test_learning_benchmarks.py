"""Benchmarks of learning: their grids of runs at a tiny size, what they store, and what they say of it."""

import importlib
import json
import sys
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

BENCHMARKS = Path(__file__).parents[2] / "benchmarks" / "learning"


@pytest.fixture
def stress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(BENCHMARKS)
    monkeypatch.setattr(torch, "set_num_threads", lambda _: None)
    module = importlib.import_module("stress")
    monkeypatch.setattr(module.snnlib, "keep_freed_memory", lambda: True)
    monkeypatch.setattr(module, "load", partial(module.load, kept=tmp_path / "kept"))
    tasks = importlib.import_module("tasks")
    monkeypatch.setitem(tasks.TASKS, "motifs", lambda: few_motifs(tasks))
    return module


def few_motifs(tasks: ModuleType) -> Any:
    """Sequences of the shape of the motifs, in which a class is the channels that are busy."""
    generator = torch.Generator().manual_seed(0)

    def samples(count: int) -> tuple[torch.Tensor, torch.Tensor]:
        labels = torch.randint(6, (count,), generator=generator)
        busy = torch.nn.functional.one_hot(labels, 8).repeat_interleave(5, 1)[:, None]
        x = torch.rand(count, 60, 40, generator=generator) < 0.02 + 0.1 * busy
        return x.byte(), labels

    return tasks.Task(samples(60), samples(30), 6)


def main(module: ModuleType, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", [module.__name__, *arguments])
    module.main()


def test_stress_runs_what_is_missing_and_draws_what_is_there(
    stress: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = tmp_path / "runs"
    grid = ["--task", "motifs", "--net", "SRM", "--times", "once", "--seeds", "0", "--out", str(runs)]
    main(stress, monkeypatch, *grid, "--seconds", "0.5")
    file = runs / "motifs" / "SRM-once-0.json"
    text = file.read_text()
    cell = json.loads(text)
    assert len(cell["evaluations"]) == stress.EVALUATIONS
    updates = [update for update, _, _ in cell["evaluations"]]
    assert updates == sorted(updates)
    assert 0 < updates[-1] == cell["updates"]
    assert set(cell["rates"]) == {"fc1", "fc2"}
    assert "1 runs" in capsys.readouterr().out

    main(stress, monkeypatch, *grid, "--seconds", "0.5")
    assert "0 runs" in capsys.readouterr().out
    assert file.read_text() == text

    page = tmp_path / "page.md"
    page.write_text("before\n<!-- stress: begin -->\nas it was\n<!-- stress: end -->\nafter\n")
    main(stress, monkeypatch, "--out", str(runs), "--page", str(page))
    shown = page.read_text()
    assert shown.startswith("before\n")
    assert shown.endswith("\nafter\n")
    assert "as it was" not in shown
    assert "\nOf 1 runs " in shown
    # A run that was not made has no row.
    (row,) = (line for line in shown.splitlines() if line.startswith(("| motifs", "| digits")))
    assert row.startswith("| motifs | SRM |  | ")
    assert f"{100 * stress.verdict(cell)['last']:.1f}" in row


def test_tasks_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    tasks = importlib.import_module("tasks")
    read: list[str] = []

    def motifs() -> Any:
        read.append("motifs")
        return few_motifs(tasks)

    monkeypatch.setitem(tasks.TASKS, "motifs", motifs)
    first, second = (tasks.load("motifs", tmp_path) for _ in range(2))
    assert read == ["motifs"]
    assert all(map(torch.equal, (*first.train, *first.test), (*second.train, *second.test)))
    assert (second.classes, second.held) == (first.classes, first.held)
    x = second.batch(second.train[0][:3])
    assert x.shape == (60, 3, 40)
    assert x.dtype == torch.float32
    monkeypatch.delenv("SNNLIB_DATA", raising=False)
    with pytest.raises(tasks.AbsentError, match="SNNLIB_DATA: expected a folder with mnist/"):
        tasks.load("mnist", tmp_path)


@pytest.mark.parametrize(
    ("shares", "found"),
    [
        ([0.5, 0.9, 0.9, 0.9, 0.9, 0.9], {"chance": False, "holds": True}),
        # The margin at a share of 0.9 of 100 samples is two standard errors: 6 points.
        ([0.5, 0.9, 0.9, 0.9, 0.85, 0.85, 0.85], {"chance": False, "holds": True}),
        ([0.5, 0.9, 0.9, 0.9, 0.83, 0.83, 0.83], {"chance": False, "holds": False}),
        ([0.9, 0.9, 0.9, 0.1, 0.1, 0.1], {"chance": True, "holds": False}),
        ([0.1, 0.1, 0.1, 0.1, 0.1, 0.1], {"chance": True, "holds": True}),
        # A single bad evaluation is no fall.
        ([0.9, 0.9, 0.9, 0.9, 0.75, 0.9], {"chance": False, "holds": True}),
    ],
)
def test_verdict(stress: ModuleType, shares: list[float], found: dict[str, bool]) -> None:
    evaluations = [[10 * i, float(i), share] for i, share in enumerate(shares)]
    cell: dict[str, Any] = {"evaluations": evaluations, "tested": 100, "classes": 10, "warnings": []}
    verdict = stress.verdict(cell)
    assert {name: verdict[name] for name in found} == found
    assert not verdict["warned"]
    assert not stress.verdict({**cell, "warnings": [{"update": 0, "text": "at the start"}]})["warned"]
    assert stress.verdict({**cell, "warnings": [{"update": 7, "text": "fell silent"}]})["warned"]
