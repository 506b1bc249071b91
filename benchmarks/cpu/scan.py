"""Milliseconds of the dense kernels against a copy: scans of SRM and LIF neurons and spike pooling, both directions.

    python benchmarks/cpu/scan.py [--threads 1] [--dtype float32 bfloat16] [--json FILE]

These kernels do little arithmetic per value, so that memory is their limit. `of a copy` is their rate over that of
`copy_` in the same turn, in bytes that have to move: what is read and what is written, each once. Scan: T = 30, one
million neurons, of which 3 % fire; forward reads the current and writes spikes, backward reads the current and the
spikes' gradient and writes the signal for the weights, or those for the weights and for the inputs. LIF neurons have
the ATan surrogate. Pooling: 2x2 windows of [1500, 12, 32, 32], 8 % ones. All tensors lie on huge pages, as the
library's outputs do, and outputs in memory that was used before, unless `--fresh-memory` asks otherwise.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor
from turns import Report, Table, Task, parser, take_turns

import snnlib
from snnlib.backends import cpu_memory

COPY = "copy_"
# A task and the bytes that it has to move.
Moves = dict[str, tuple[Task, int]]


def placed(values: Tensor, dtype: torch.dtype) -> Tensor:
    return cpu_memory.empty_like(values, dtype).copy_(values)


def scan_tasks(neurons: int, dtype: torch.dtype) -> Moves:
    noise = torch.randn(2, 30, 1, neurons, generator=torch.Generator().manual_seed(0))
    current, gradient = (placed(x, dtype) for x in (noise[0] * 0.3 + 0.15, noise[1]))
    copied = cpu_memory.empty_like(current)
    ops = torch.ops.snnlib
    neuron = snnlib.neurons.SRM(5.0, 3.0).kernel(current)
    assert neuron is not None
    srm = (current, neuron.constants, None, (), neuron.taus, (1, 1))

    def forward() -> None:
        ops.scan_forward(*srm, False)

    def backward(inputs: bool) -> None:
        ops.scan_backward(gradient, None, *srm, True, inputs, False)

    lif = snnlib.neurons.LIF(2.0, surrogate=snnlib.surrogate.ATan())
    dynamics = lif.dynamics(lif.constants())
    assert dynamics is not None
    kernel = dynamics.kernel(torch.float32, current.device)
    linear = (current, kernel.constants, None, kernel.flags, (), (1, 1))

    def lif_backward() -> None:
        ops.scan_backward(gradient, None, *linear, True, False, False)

    size = current.nbytes
    return {
        COPY: (lambda: copied.copy_(current), 2 * size),
        "snnlib scan, forward": (forward, 2 * size),
        "snnlib scan, backward, weights": (lambda: backward(False), 3 * size),
        "snnlib scan, backward, both": (lambda: backward(True), 4 * size),
        "LIF scan, forward": (lambda: ops.scan_forward(*linear, True), 2 * size),
        "LIF scan, backward": (lif_backward, 3 * size),
    }


def pool_tasks(frames: int, dtype: torch.dtype) -> Moves:
    generator = torch.Generator().manual_seed(0)
    events = placed(torch.rand(frames, 12, 32, 32, generator=generator) < 0.08, dtype)
    pooled = placed(torch.randn(frames, 12, 16, 16, generator=generator), dtype)
    copied, window = cpu_memory.empty_like(events), ([2, 2], [2, 2], [0, 0], False)

    def forward(x: Tensor) -> None:
        torch.ops.snnlib.pool_forward(x, *window, True, None, False)

    def backward(x: Tensor, gradient: Tensor) -> None:
        torch.ops.snnlib.pool_backward(gradient, x, None, x.shape[2:], *window)

    moves: Moves = {COPY: (lambda: copied.copy_(events), 2 * events.nbytes)}
    for layout, name in ((torch.contiguous_format, "contiguous"), (torch.channels_last, "channels-last")):
        x, gradient = (placed(value.contiguous(memory_format=layout), dtype) for value in (events, pooled))
        moves[f"snnlib pooling, forward, {name}"] = (partial(forward, x), x.nbytes + gradient.nbytes)
        moves[f"snnlib pooling, backward, {name}"] = (
            partial(backward, x, gradient),
            2 * x.nbytes + gradient.nbytes,
        )
    return moves


def against_copy(moves: Moves, turns: int) -> Table:
    """The times of tasks with their rates, and the share of the copy's rate."""
    table = take_turns({name: task for name, (task, _) in moves.items()}, turns)
    for name, row in table.items():
        nbytes = moves[name][1]
        row["gb_per_s"] = nbytes / row["median_ms"] / 1e6
        row["of_copy"] = nbytes / moves[COPY][1] / row["ratio"]
    return table


def main() -> None:
    wanted = parser(__doc__)
    wanted.add_argument("--dtype", nargs="+", default=["float32", "bfloat16"], help="of trains and events")
    arguments = wanted.parse_args()
    report = Report(arguments)
    neurons, frames = (10**4, 15) if arguments.quick else (10**6, 1500)
    for name in arguments.dtype:
        dtype = getattr(torch, name)
        report.add(f"scan, {name}", against_copy(scan_tasks(neurons, dtype), arguments.turns))
        report.add(f"pooling, {name}", against_copy(pool_tasks(frames, dtype), arguments.turns))
    report.write()


if __name__ == "__main__":
    main()
