"""Runs the benchmarks of the CPU one after another, with figures: `make bench`, `make bench-peers`.

    python release/bench.py [--peers]

Figures go to build/bench. `--peers` runs those that other libraries take part in, which PYTHONPATH names,
adds a short run of accuracy, and draws the picture of README.md; figures go to build/bench-peers.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BENCHMARKS = (
    "training_step", "surrogate_step", "batch_norm_step", "small_batch", "fine_bins",
    "spike_rates", "convolution", "scan", "recurrent", "sparse", "event_readers", "attention_step",
    "fused_nets",
)  # fmt: skip
PEER_BENCHMARKS = (
    "training_step", "surrogate_step", "batch_norm_step", "recurrent", "small_batch",
    "spike_rates", "attention_step",
)  # fmt: skip


def run(program: str, *arguments: str | Path) -> None:
    """Runs a program of benchmarks/; its error ends this program too."""
    command = [sys.executable, ROOT / "benchmarks" / program, *arguments]
    if status := subprocess.run(command, check=False).returncode:
        sys.exit(status)


def time_all(names: tuple[str, ...], folder: Path) -> None:
    """Figures of each into the folder."""
    for name in names:
        run(f"cpu/{name}.py", "--json", folder / f"{name}.json")


def main(peers: bool) -> None:
    if not peers:
        time_all(BENCHMARKS, ROOT / "build" / "bench")
        return
    folder = ROOT / "build" / "bench-peers"
    shutil.rmtree(folder, ignore_errors=True)
    time_all(PEER_BENCHMARKS, folder)
    methods = ("--method", "recipe", "--method", "spikingjelly")
    run("learning/accuracy.py", "--folds", "2", "--epochs", "6", *methods, "--json", folder / "accuracy.json")
    bins = ("--steps", "300", "1000", "--batch", "4", "--threads", "1", "--fresh-memory")
    run("cpu/fine_bins.py", "--peers", "--neurons", "srm", *bins, "--json", folder / "fine_bins.json")
    run("cpu/readme_picture.py", folder)


if __name__ == "__main__":
    main("--peers" in sys.argv[1:])
