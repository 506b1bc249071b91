"""Every benchmark of the CPU runs here at a tiny size, and writes its figures."""

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import snnlib

ROOT = Path(__file__).parents[2]
BENCHMARKS = ROOT / "benchmarks" / "cpu"
DENSE = "dense convolutions, channels-last"
# Rows of the first table that are ours or need no other library.
ROWS = {
    "training_step": ["snnlib, fused", "snnlib, fused, bfloat16", "snnlib, layer by layer", DENSE],
    "small_batch": ["snnlib, fused", DENSE],
    "fine_bins": ["T = 30"],
    "fused_nets": ["as it is", "fused"],
    "surrogate_step": ["snnlib, LIF, triangle 0.5", "snnlib, LIF, ATan", "snnlib, SRM"],
    "batch_norm_step": ["snnlib, fused, triangle", "snnlib, fused, ATan", "snnlib, layer by layer, ATan"],
    "spike_rates": ["snnlib, fused, 1% of neurons fire", "snnlib, fused, 50% of neurons fire"],
    "convolution": ["snnlib layer, with neurons", "torch, channels-last", "torch, contiguous"],
    "recurrent": ["snnlib", "snnlib, ATan", "dense torch loop"],
    "sparse": ["forward", "weight gradient", "input gradient, every row"],
    "event_readers": ["floor", "snnlib", "snnlib, NumPy"],
    "scan": ["copy_", "snnlib scan, forward", "snnlib scan, backward, weights", "LIF scan, backward"],
    "attention_step": ["snnlib, fused", "snnlib, as layers"],
}


@pytest.mark.parametrize(
    # It starts processes to measure memory.
    "name",
    [pytest.param(name, marks=pytest.mark.slow if name == "fine_bins" else ()) for name in ROWS],
)
def test_benchmark(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    # Allocation and threads are the test process's own.
    figures = tmp_path / "new" / "figures.json"
    monkeypatch.setattr(sys, "argv", [name, "--quick", "--fresh-memory", "--json", str(figures)])
    # Before every turn; a process of tests has so much to look through that this took most of the time.
    monkeypatch.setattr("gc.collect", lambda: 0)
    importlib.import_module(name).main()
    report = json.loads(figures.read_text())
    assert report["facts"]["turns"] == 2
    assert report["facts"]["threads"] == torch.get_num_threads()
    table = next(iter(report["tables"].values()))
    for row in ROWS[name]:
        assert 0 < table[row]["min_ms"] <= table[row]["median_ms"]
        assert table[row]["ratio"] > 0
    assert next(iter(table.values()))["ratio"] == 1


def figures_of(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch, *options: str) -> dict[str, Any]:
    """Tables of a quick run."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    file = folder / "figures.json"
    monkeypatch.setattr(sys, "argv", [name, "--quick", "--fresh-memory", *options, "--json", str(file)])
    monkeypatch.setattr("gc.collect", lambda: 0)
    importlib.import_module(name).main()
    tables: dict[str, Any] = json.loads(file.read_text())["tables"]
    return tables


def test_time_of_the_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = figures_of("host", tmp_path, monkeypatch)
    row = tables["convolution and neurons"]["snnlib SpikingConv2d, LIF"]
    assert row["forward_us"] > 0 and row["evaluation_us"] > 0
    assert row["forward_ratio"] > 0
    assert row["forward_calls"] > 0 and row["backward_calls"] > 0
    (steps,) = (table for title, table in tables.items() if title.startswith("training step"))
    assert steps["snnlib LIF"]["step_us"] > 0


@pytest.mark.slow
def test_time_of_the_host_beside_another_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    interpreter = tmp_path / ".venv" / "bin" / "python"
    interpreter.parent.mkdir(parents=True)
    interpreter.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    interpreter.chmod(0o755)
    tables = figures_of("host", tmp_path, monkeypatch, "--beside", str(tmp_path))
    row = tables["convolution and neurons"]["snnlib SpikingConv2d, LIF"]
    assert row["forward_beside"] > 0


# The benchmark's nets are as they are drawn.
@pytest.mark.filterwarnings("ignore:(?s).*of all steps in training batch")
def test_operations_of_a_training_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Layers take the path of a GPU in the program, and that of the CPU again after it."""
    (table,) = figures_of("launches", tmp_path, monkeypatch).values()
    row = table["snnlib, LIF"]
    # Convolution or product, and neurons, of three layers, and two pools; as many backward.
    assert row["forward"] >= 8 and row["backward"] >= 8
    assert row["layers"] == row["forward"] + row["backward"]
    assert row["watched"] > 0
    # Three convolutions or products, step functions with a cast, and two pools.
    assert table["torch"]["forward"] == 3 + 2 * 3 + 2
    layer = snnlib.SpikingConv2d(2, 3, 3)
    assert snnlib.explain_dispatch(layer, torch.zeros(2, 1, 2, 5, 5)).plan == "layer"


def test_make_runs_them_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "release")
    bench = importlib.import_module("bench")
    assert set(bench.BENCHMARKS) == set(ROWS)
    assert set(bench.PEER_BENCHMARKS) <= set(ROWS)


def test_the_readme_has_its_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    names = importlib.import_module("nmnist_nets").SHORT_LIST
    table = {name: {"median_ms": 12.34, "ratio": 1.0, "peak_mb": 100.0} for name in names}
    facts = {"processor": "P & Q", "threads": 2, "torch": "2", "date": "today"}
    (tmp_path / "training_step.json").write_text(json.dumps({"facts": facts, "tables": {"W1": table}}))
    bins = {
        f"T = {steps}{name}": {"processor_ms": 1.0}
        for name in ("", ", snnTorch, channels-last")
        for steps in (30, 300)
    }
    (tmp_path / "fine_bins.json").write_text(json.dumps({"tables": {"srm": bins}}))
    picture = tmp_path / "picture.png"
    monkeypatch.setattr(sys, "argv", ["readme_picture", str(tmp_path), "--picture", str(picture)])
    importlib.import_module("readme_picture").main()
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_step_of_sparse_neurons_is_held_to_its_bounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    module, file = importlib.import_module("sparse"), tmp_path / "figures.json"
    monkeypatch.setattr(sys, "argv", ["sparse", "--neurons", "300", "--json", str(file)])
    with pytest.raises(SystemExit) as ended:
        module.main()
    found = json.loads(file.read_text())
    assert "300 neurons, 100 connections each" in capsys.readouterr().out
    assert 0 < found["fired"] < found["near"] < 0.2 and found["seconds"] > 0
    assert (ended.value.code == 0) == (not module.check_bounds(found))
    slow = {
        **found,
        "neurons": 100_000,
        "fired": 0.02,
        "near": 0.09,
        "seconds": 0.7,
        "mb": 390,
        "build_mb": 100,
    }
    assert module.check_bounds(slow) == ["seconds of a step: expected at most 0.6, got 0.7"]
    assert module.check_bounds({**slow, "seconds": 0.5, "near": 0.2}) == [
        "share near the threshold: expected at most 0.1, got 0.2"
    ]


def test_the_page_on_sparse_connections_has_its_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    grow = [
        {"neurons": size, "processor_seconds": size / 1e5, "mb_with_net": size / 300}
        for size in (1000, 10000)
    ]
    (tmp_path / "grow.json").write_text(json.dumps(grow))
    rows = {name: {"processor_ratio": 1.0} for name in ("dense", "2% of the connections")}
    facts = {"processor": "P", "torch": "2", "date": "today"}
    dense = {"facts": facts, "tables": {"one training step, 700 -> 256, T = 100, batch 128": rows}}
    (tmp_path / "dense.json").write_text(json.dumps(dense))
    bins = {
        f"T = {steps}{name}": {"processor_ms": 1.0}
        for name in ("", ", snnTorch, channels-last")
        for steps in (30, 300)
    }
    (tmp_path / "fine_bins.json").write_text(json.dumps({"tables": {"srm": bins}}))
    picture = tmp_path / "picture.png"
    monkeypatch.setattr(sys, "argv", ["sparse_picture", str(tmp_path), "--picture", str(picture)])
    importlib.import_module("sparse_picture").main()
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_turns_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    calls: list[str] = []
    table = importlib.import_module("turns").take_turns(
        {name: lambda name=name: calls.append(name) for name in "ab"}, 3
    )
    # A turn to warm up, and three that count.
    assert "".join(calls) == "ab" * 4
    assert list(table) == ["a", "b"]


@pytest.mark.slow
def test_peak_memory_counts_what_a_step_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    nets, peak = (importlib.import_module(name) for name in ("nmnist_nets", "peak_memory"))
    x, y = nets.random_events(30, 8)
    weights = nets.calibrated(x)
    apart, fused = (peak.peak_mb(name, x, y, weights, True) for name in (nets.LAYERS, nets.FUSED))
    # The input and, layer by layer, the spikes before pooling.
    assert fused > x.nbytes / 1e6
    assert apart - fused > 4 * 30 * 8 * (12 * 32 * 32 + 64 * 12 * 12) / 1e6
