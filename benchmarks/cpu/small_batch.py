"""Training steps and forward passes of the N-MNIST net for one sample and for a few.

    PYTHONPATH=PEERS python benchmarks/cpu/small_batch.py [--batch 1 8] [--json FILE]

Nets and data of training_step.py, the fastest of each kind; there is nothing to share the cost of Python and of each
call with, and threads have less to divide. Ratios are to snnlib's fused net.
"""

from __future__ import annotations

from nmnist_nets import SHORT_LIST, calibrated, installed, make_task, recorded
from turns import Report, parser, take_turns


def main() -> None:
    wanted = parser(__doc__)
    wanted.add_argument("--batch", type=int, nargs="+", default=[1, 8])
    arguments = wanted.parse_args()
    report = Report(arguments)
    names = [name for name in SHORT_LIST if installed(name)]
    for batch in [1] if arguments.quick else arguments.batch:
        _, x, y = recorded(batch)
        weights = calibrated(recorded(max(batch, 8))[1])
        for what, training in (("forward pass", False), ("training step", True)):
            tasks = {name: make_task(name, x, y, weights, training) for name in names}
            report.add(f"{what}, batch {batch}", take_turns(tasks, arguments.turns))
    report.write()


if __name__ == "__main__":
    main()
