"""Milliseconds and peak memory of one training step of the N-MNIST net: snnlib, other libraries, torch's convolutions.

    SNNLIB_DATA=FOLDER PYTHONPATH=PEERS python benchmarks/cpu/training_step.py [--batch 50] [--json FILE]
    python benchmarks/cpu/training_step.py --watch --turns 30 --threads 1

Workload: 12C5(p1)-P2-64C5-P2-10, T = 30, forward + backward + Adam, float32 unless the name says another dtype, layers
calibrated to 8 % output spikes. Events are N-MNIST's where SNNLIB_DATA names a folder with nmnist_800/, else those of
the embedded digits: 4 % in both.
snnTorch and SpikingJelly are timed where they are installed. Ratios are to snnlib's fused net. Peak memory is that of a
fresh process, over imports. With `--watch` the only question is what it costs that layers watch their training.
"""

from __future__ import annotations

from functools import partial

from charts import bars
from nmnist_nets import NAMES, RATE, Weights, calibrated, installed, make_task, recorded, training_step
from peak_memory import peak_mb
from torch import Tensor
from turns import Report, Task, parser, take_turns

import snnlib
from snnlib.nn.neuron_layer import NeuronLayer

UNWATCHED, WATCHED = "layers do not watch", "layers watch"


def ten_steps(x: Tensor, y: Tensor, weights: Weights, watched: bool) -> Task:
    """Training steps of the fused net, of one of which layers take note where they watch."""
    net = snnlib.models.nmnist_net()
    net.load_state_dict(weights)
    for layer in () if watched else net.modules():
        if isinstance(layer, NeuronLayer):
            layer.training_watch.stop()
    step = training_step(snnlib.fuse_(net), x, y)

    def steps() -> None:
        for _ in range(10):
            step()

    return steps


def main() -> None:
    wanted = parser(__doc__)
    wanted.add_argument("--batch", type=int, default=50)
    wanted.add_argument("--watch", action="store_true", help="time steps with and without layers that watch")
    arguments = wanted.parse_args()
    report = Report(arguments)
    data, x, y = recorded(2 if arguments.quick else arguments.batch)
    weights = calibrated(x)
    if arguments.watch:
        tasks = {name: ten_steps(x, y, weights, name == WATCHED) for name in (UNWATCHED, WATCHED)}
        table = take_turns(tasks, arguments.turns, interval=True)
        report.add(f"ten training steps, batch {x.shape[1]}, {data}", table)
        report.write(partial(bars, title="Ten training steps of the N-MNIST net", keys=["median_ms"]))
        return
    names = [name for name in NAMES if installed(name)]
    table = take_turns({name: make_task(name, x, y, weights) for name in names}, arguments.turns)
    for name in () if arguments.quick else names:
        table[name]["peak_mb"] = peak_mb(name, x, y, weights, not arguments.fresh_memory)
    report.add(f"one training step, batch {x.shape[1]}, {data}", table)
    for name in NAMES:
        if not installed(name):
            print(f"{name}: not installed, not timed")
    net = snnlib.fuse_(snnlib.models.nmnist_net())
    net.load_state_dict(weights)
    print(f"\nkept for backward by the fused net, layers at {RATE:.0%}:\n{snnlib.memory_report(net, x)}")
    keys = ["median_ms"] if arguments.quick else ["median_ms", "peak_mb"]
    report.write(partial(bars, title="One training step of the N-MNIST net", keys=keys))


if __name__ == "__main__":
    main()
