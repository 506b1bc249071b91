"""Milliseconds and peak memory of one training step of the N-MNIST net: snnlib, other libraries, torch's convolutions.

    SNNLIB_DATA=FOLDER PYTHONPATH=PEERS python benchmarks/cpu/training_step.py [--batch 50] [--json FILE]

Workload: 12C5(p1)-P2-64C5-P2-10, T = 30, forward + backward + Adam, float32 unless the name says another dtype, layers
calibrated to 8 % output spikes. Events are N-MNIST's where SNNLIB_DATA names a folder with nmnist_800/, else those of
the embedded digits: 4 % in both.
snnTorch and SpikingJelly are timed where they are installed. Ratios are to snnlib's fused net. Peak memory is that of a
fresh process, over imports.
"""

from __future__ import annotations

from nmnist_nets import NAMES, RATE, calibrated, installed, make_task, recorded
from peak_memory import peak_mb
from turns import Report, parser, take_turns

import snnlib


def main() -> None:
    wanted = parser(__doc__)
    wanted.add_argument("--batch", type=int, default=50)
    arguments = wanted.parse_args()
    report = Report(arguments)
    data, x, y = recorded(2 if arguments.quick else arguments.batch)
    weights = calibrated(x)
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
    report.write()


if __name__ == "__main__":
    main()
