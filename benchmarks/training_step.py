"""Milliseconds of one training step of the N-MNIST net: snnlib, and SpikingJelly's LIF net where it is installed.

    python benchmarks/training_step.py [--batch 50] [--steps 11] [--json FILE]

Workload: 12C5(p1)-P2-64C5-P2-10, T = 30, random binary events at 4 % density, forward + backward + Adam, float32. The
nets take turns, step by step, so that a drift of the machine's speed meets all of them; figures are medians, and ratios
are medians of the ratios of neighbouring steps. Peak memory is not taken here: the nets share one process.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

import snnlib

T, DENSITY, RATE = 30, 0.04, 0.08


def _step(
    forward: Callable[[Tensor], Tensor], parameters: list[Tensor], x: Tensor, y: Tensor
) -> Callable[[], None]:
    optimizer = torch.optim.Adam(parameters, lr=1e-4)

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(forward(x).sum(0), y).backward()
        optimizer.step()

    return step


def snnlib_step(x: Tensor, y: Tensor) -> Callable[[], None]:
    net = snnlib.models.nmnist_net()
    snnlib.init.calibrate_firing_rate_(net, x, RATE, spread=1.0)
    return _step(net, list(net.parameters()), x, y)


def reference_step(x: Tensor, y: Tensor) -> Callable[[], None]:
    step = snnlib_step(x, y)

    def on_reference() -> None:
        with snnlib.use_path("reference"):
            step()

    return on_reference


def spikingjelly_step(x: Tensor, y: Tensor) -> Callable[[], None] | None:
    try:
        from spikingjelly.activation_based import functional, layer, neuron  # noqa: PLC0415
    except ImportError:
        return None

    def fire() -> nn.Module:
        return neuron.LIFNode(tau=2.0, detach_reset=True)

    net = nn.Sequential(
        layer.Conv2d(2, 12, 5, padding=1, bias=False),
        fire(),
        layer.AvgPool2d(2),
        layer.Conv2d(12, 64, 5, bias=False),
        fire(),
        layer.AvgPool2d(2),
        layer.Flatten(),
        layer.Linear(64 * 36, 10, bias=False),
        fire(),
    )
    functional.set_step_mode(net, "m")

    def forward(events: Tensor) -> Tensor:
        functional.reset_net(net)
        return net(events)

    return _step(forward, list(net.parameters()), x, y)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--batch", type=int, default=50)
    parser.add_argument("--steps", type=int, default=11)
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument(
        "--keep-memory", action="store_true", help="call snnlib.keep_freed_memory(); helps all nets"
    )
    args = parser.parse_args()
    if args.keep_memory:
        snnlib.keep_freed_memory()
    torch.manual_seed(0)
    x = (torch.rand(T, args.batch, 2, 34, 34) < DENSITY).float()
    y = torch.randint(0, 10, (args.batch,))
    made = {
        "snnlib": snnlib_step(x, y),
        "snnlib, reference path": reference_step(x, y),
        "SpikingJelly LIF": spikingjelly_step(x, y),
    }
    steps = {name: step for name, step in made.items() if step is not None}
    times: dict[str, list[float]] = {name: [] for name in steps}
    for turn in range(args.steps + 1):
        for name, step in steps.items():
            start = time.perf_counter()
            step()
            # The first turn warms up.
            if turn:
                times[name].append((time.perf_counter() - start) * 1000)
    ours = times["snnlib"]
    rows = {
        name: {
            "median_ms": statistics.median(values),
            "min_ms": min(values),
            "ratio_to_snnlib": statistics.median(a / b for a, b in zip(values, ours, strict=True)),
        }
        for name, values in times.items()
    }
    print(
        f"batch {args.batch}, T = {T}, {torch.get_num_threads()} threads, {snnlib._native.explain_path()[1]}"
    )
    print(f"{'one training step':28}{'median ms':>10}{'min ms':>10}{'ratio':>8}")
    for name, row in rows.items():
        print(f"{name:28}{row['median_ms']:10.1f}{row['min_ms']:10.1f}{row['ratio_to_snnlib']:8.2f}")
    for name in made.keys() - steps.keys():
        print(f"{name}: not installed, not timed")
    if args.json:
        args.json.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
