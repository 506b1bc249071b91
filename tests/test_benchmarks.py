"""Every benchmark of the CPU runs here at a tiny size, and writes its figures and its picture."""

import importlib
import json
import sys
from pathlib import Path

import pytest
import torch

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
# Rows of the first table that are ours or need no other library.
ROWS = {
    "training_step": [
        "snnlib, fused",
        "snnlib, fused, bfloat16",
        "snnlib, layer by layer",
        "dense convolutions, channels-last",
    ],
    "small_batch": ["snnlib, fused", "dense convolutions, channels-last"],
    "long_trains": ["T = 30"],
    "surrogate_step": ["LIF, triangle 0.5", "LIF, ATan", "SRM"],
    "batch_norm_step": ["snnlib, fused, triangle", "snnlib, fused, ATan", "snnlib, layer by layer, ATan"],
    "spike_rates": ["snnlib, fused, 1% of neurons fire", "snnlib, fused, 50% of neurons fire"],
    "convolution": ["snnlib layer, with neurons", "torch, channels-last", "torch, contiguous"],
    "segments": ["snnlib", "scatter_add"],
    "recurrent": ["snnlib", "snnlib, ATan", "dense torch loop"],
    "event_files": ["floor", "snnlib", "snnlib, NumPy"],
    "scan": ["copy_", "snnlib scan, forward", "snnlib scan, backward, weights", "LIF scan, backward"],
}


@pytest.mark.parametrize("name", ROWS)
def test_benchmark(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    # Allocation and threads are the test process's own.
    figures, picture = tmp_path / "new" / "figures.json", tmp_path / "picture.png"
    arguments = ["--quick", "--fresh-memory", "--json", str(figures), "--picture", str(picture)]
    monkeypatch.setattr(sys, "argv", [name, *arguments])
    importlib.import_module(name).main()
    report = json.loads(figures.read_text())
    assert report["facts"]["turns"] == 2
    assert report["facts"]["threads"] == torch.get_num_threads()
    table = next(iter(report["tables"].values()))
    for row in ROWS[name]:
        assert 0 < table[row]["min_ms"] <= table[row]["median_ms"]
        assert table[row]["ratio"] > 0
    assert next(iter(table.values()))["ratio"] == 1
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_make_runs_them_all() -> None:
    (line,) = (
        line
        for line in (BENCHMARKS.parent / "Makefile").read_text().splitlines()
        if line.startswith("BENCHMARKS :=")
    )
    assert set(line.split()[2:]) == set(ROWS)


def test_turns_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    calls: list[str] = []
    table = importlib.import_module("turns").take_turns(
        {name: lambda name=name: calls.append(name) for name in "ab"}, 3
    )
    # One turn to warm up, and three that count.
    assert "".join(calls) == "ab" * 4
    assert list(table) == ["a", "b"]


def test_peak_memory_counts_what_a_step_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    nets, peak = (importlib.import_module(name) for name in ("nmnist_nets", "peak_memory"))
    x, y = nets.random_events(30, 8)
    weights = nets.calibrated(x)
    apart, fused = (peak.peak_mb(name, x, y, weights, True) for name in (nets.LAYERS, nets.FUSED))
    # The input and, layer by layer, the spikes before pooling.
    assert fused > x.nbytes / 1e6
    assert apart - fused > 4 * 30 * 8 * (12 * 32 * 32 + 64 * 12 * 12) / 1e6
