"""A second of Brunel's net of 12,500 neurons (examples/brunel.py), beside Brian2.

    python benchmarks/cpu/brunel.py --brian2 PYTHON [--threads 1] [--turns 3]

PYTHON is the Python of an environment with Brian2 (`tests/oracles/make_brian2_lab.py` has its version and the same net
in its equations). It runs in a process of its own, on one thread, by its Cython code. The two take turns; building
nets, compiling and the first turn are not timed. Without `--brian2` snnlib runs alone.
"""

from __future__ import annotations

import argparse
import runpy
import statistics
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import torch
from turns import Report, Table, parser

ROOT = Path(__file__).parents[2]
# Names of a state in the example and in make_brian2_lab.py.
STATES = {
    "asynchronous irregular": "AI",
    "synchronous regular": "SR",
    "fast synchronous irregular": "SI fast",
    "slow synchronous irregular": "SI slow",
}
BRIAN2 = """
import sys, time
sys.path.insert(0, sys.argv[1])
import make_brian2_lab
run = make_brian2_lab.brunel_net(0)
for line in sys.stdin:
    wall, busy = time.perf_counter(), time.process_time()
    spikes = run(line.strip()).num_spikes
    print(time.perf_counter() - wall, time.process_time() - busy, spikes, flush=True)
"""
# Runs a state; returns seconds, seconds of the processor, and the number of spikes.
Run = Callable[[str], tuple[float, float, float]]


def run_of_snnlib(duration: float) -> Run:
    example = runpy.run_path(str(ROOT / "examples" / "brunel.py"))
    torch.manual_seed(0)
    net = example["Net"]()

    def run(state: str) -> tuple[float, float, float]:
        wall, busy = time.perf_counter(), time.process_time()
        spikes = net.run(*example["STATES"][state], duration)
        return time.perf_counter() - wall, time.process_time() - busy, float(spikes.sum())

    return run


def run_of_brian2(python: str, stack: ExitStack) -> Run:
    process = stack.enter_context(
        subprocess.Popen(
            [python, "-c", BRIAN2, str(ROOT / "tests" / "oracles")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
    )
    assert process.stdin is not None and process.stdout is not None
    send, receive = process.stdin, process.stdout

    def run(state: str) -> tuple[float, float, float]:
        print(STATES[state], file=send, flush=True)
        wall, busy, spikes = map(float, receive.readline().split())
        return wall, busy, spikes

    return run


def measured(runs: dict[str, Run], state: str, turns: int) -> Table:
    """Table of a state; ratios are medians over the turns, over the first of `runs`."""
    found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in runs}
    for _ in range(turns + 1):
        for name, run in runs.items():
            found[name].append(run(state))
    # The first turn warms up.
    columns = {name: list(zip(*rows[1:], strict=True)) for name, rows in found.items()}
    first = next(iter(columns.values()))
    return {
        name: {
            "median_ms": 1000 * statistics.median(walls),
            "ratio": statistics.median(a / b for a, b in zip(walls, first[0], strict=True)),
            "processor_ms": 1000 * statistics.median(busy),
            "processor_ratio": statistics.median(a / b for a, b in zip(busy, first[1], strict=True)),
            "spikes": statistics.median(spikes),
        }
        for name, (walls, busy, spikes) in columns.items()
    }


def options() -> argparse.ArgumentParser:
    made = parser(__doc__, turns=3)
    made.add_argument("--brian2", metavar="PYTHON", help="Python of an environment with Brian2")
    made.add_argument("--state", choices=STATES, action="append", help="a state, may be repeated; all")
    return made


def main() -> None:
    arguments = options().parse_args()
    report = Report(arguments)
    with ExitStack() as stack:
        runs = {"snnlib": run_of_snnlib(20.0 if arguments.quick else 1000.0)}
        if arguments.brian2:
            runs["Brian2"] = run_of_brian2(arguments.brian2, stack)
        for state in arguments.state or STATES:
            report.add(state, measured(runs, state, arguments.turns))
    report.write()


if __name__ == "__main__":
    main()
