"""Milliseconds of neurons and the average pool behind them: one kernel against two, by the size of the windows.

    python benchmarks/cpu/scan_pool.py [--threads 1] [--window 2 3 4] [--json FILE] [--picture FILE]

LIF neurons with a triangle as surrogate on channels-last currents in float32, forward and backward; 13 % of them fire.
In one kernel neither spikes before the pool nor their gradients are stored.
"""

from __future__ import annotations

from functools import partial

import torch
from charts import bars
from turns import Report, Task, parser, take_turns

import snnlib
from snnlib import ops
from snnlib.functional.pool import nonoverlapping_avg_pool2d

# Steps, samples, channels, rows and columns.
SHAPES = [(10, 4, 32, 48, 48), (10, 16, 64, 24, 24), (30, 8, 32, 24, 24)]
QUICK = [(4, 1, 16, 24, 24)]


def tasks(shape: tuple[int, ...], extent: int) -> dict[str, Task]:
    generator = torch.Generator().manual_seed(0)
    order = (0, 1, 3, 4, 2)
    current = torch.empty_permuted(shape, order).normal_(0.5, 2.0, generator=generator).requires_grad_()
    sizes = (*shape[:3], shape[3] // extent, shape[4] // extent)
    gradient = torch.empty_permuted(sizes, order).normal_(generator=generator)
    lif = snnlib.neurons.LIF(3.0, surrogate=snnlib.surrogate.Triangle())
    dynamics = lif.dynamics(lif.constants())
    assert dynamics is not None and ops.scan_pool.can_fuse(current, dynamics, (extent, extent))

    def apart() -> None:
        current.grad = None
        spikes, _ = ops.scan.run(current, dynamics, None, 0)
        nonoverlapping_avg_pool2d(spikes, (extent, extent)).backward(gradient)

    def fused() -> None:
        current.grad = None
        means, _ = ops.scan.run(current, dynamics, None, 0, (extent, extent))
        means.backward(gradient)

    return {"two kernels": apart, "one kernel": fused}


def main() -> None:
    wanted = parser(__doc__)
    wanted.add_argument(
        "--window", nargs="+", type=int, default=[2, 3, 4], help="rows and columns of a window"
    )
    arguments = wanted.parse_args()
    report = Report(arguments)
    for shape in QUICK if arguments.quick else SHAPES:
        for extent in arguments.window:
            name = f"{extent} x {extent}, {list(shape)}"
            report.add(name, take_turns(tasks(shape, extent), arguments.turns))
    report.write(partial(bars, title="Neurons and their average pool"))


if __name__ == "__main__":
    main()
