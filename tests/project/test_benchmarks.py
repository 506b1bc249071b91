"""Every benchmark of the CPU runs here at a tiny size, and writes its figures and its picture."""

import importlib
import json
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]
BENCHMARKS = ROOT / "benchmarks" / "cpu"
# Rows of the first table that are ours or need no other library.
ROWS = {
    "training_step": [
        "snnlib, fused",
        "snnlib, fused, bfloat16",
        "snnlib, layer by layer",
        "dense convolutions, channels-last",
    ],
    "small_batch": ["snnlib, fused", "dense convolutions, channels-last"],
    "long_sequences": ["T = 30"],
    "fine_bins": ["T = 30"],
    "surrogate_step": ["snnlib, LIF, triangle 0.5", "snnlib, LIF, ATan", "snnlib, SRM"],
    "batch_norm_step": ["snnlib, fused, triangle", "snnlib, fused, ATan", "snnlib, layer by layer, ATan"],
    "spike_rates": ["snnlib, fused, 1% of neurons fire", "snnlib, fused, 50% of neurons fire"],
    "convolution": ["snnlib layer, with neurons", "torch, channels-last", "torch, contiguous"],
    "recurrent": ["snnlib", "snnlib, ATan", "dense torch loop"],
    "event_readers": ["floor", "snnlib", "snnlib, NumPy"],
    "scan": ["copy_", "snnlib scan, forward", "snnlib scan, backward, weights", "LIF scan, backward"],
    "attention_step": ["snnlib, fused", "snnlib, as layers"],
}


# Those that start processes to measure memory.
SLOW = ("fine_bins", "long_sequences")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in ROWS]
)
def test_benchmark(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    # Allocation and threads are the test process's own.
    figures, picture = tmp_path / "new" / "figures.json", tmp_path / "picture.png"
    arguments = ["--quick", "--fresh-memory", "--json", str(figures), "--picture", str(picture)]
    monkeypatch.setattr(sys, "argv", [name, *arguments])
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
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_make_runs_them_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "release")
    bench = importlib.import_module("bench")
    assert set(bench.BENCHMARKS) == set(ROWS)
    assert set(bench.PEER_BENCHMARKS) <= set(ROWS)


def test_page_shows_every_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    table = {"snnlib <fused>": {"median_ms": 12.34, "ratio": 1.0}, "peer": {"median_ms": 61.7, "ratio": 5.0}}
    figures = {"facts": {"processor": "P & Q", "threads": 2}, "tables": {"W1": table}}
    (tmp_path / "training_step.json").write_text(json.dumps(figures))
    (tmp_path / "training_step.png").write_bytes(b"\x89PNG")
    method = {"method": "recipe", "mean": 0.977, "error": 0.005, "cpu_seconds": 130.0}
    accuracy = {"data": "digits", "samples": 800, "folds": 2, "epochs": 6, "methods": [method]}
    (tmp_path / "accuracy.json").write_text(json.dumps(accuracy))
    monkeypatch.setattr(sys, "argv", ["page", str(tmp_path)])
    importlib.import_module("page").main()
    text = (tmp_path / "index.html").read_text()
    for shown in (
        "snnlib &lt;fused&gt;",
        ">12.3<",
        ">5.00<",
        "P &amp; Q",
        "97.7%",
        ">65<",
        "data:image/png;base64,iVBO",
    ):
        assert shown in text


def test_turns_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    calls: list[str] = []
    table = importlib.import_module("turns").take_turns(
        {name: lambda name=name: calls.append(name) for name in "ab"}, 3
    )
    # One turn to warm up, and three that count.
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
