"""Milliseconds of a training step of the N-MNIST net by how often its neurons fire.

    python benchmarks/cpu/spike_rates.py [--rate 0.01 ... 0.5] [--batch 50] [--json FILE]

Every layer is calibrated to the same rate, on random events at 4 % anywhere in the frame: recordings have still
corners, where nothing can fire so often. The dense convolutions cost the same at any rate; ratios are to them.
"""

from __future__ import annotations

from nmnist_nets import DENSE, FUSED, TUNED, calibrated, make_task, random_events
from turns import Report, parser, take_turns

RATES = [0.01, 0.02, 0.05, 0.08, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5]


def main() -> None:
    wanted = parser(__doc__, turns=7)
    wanted.add_argument("--rate", type=float, nargs="+", default=RATES)
    wanted.add_argument("--batch", type=int, default=50)
    arguments = wanted.parse_args()
    report = Report(arguments)
    x, y = random_events(*((4, 2) if arguments.quick else (30, arguments.batch)))
    rates = {f"{FUSED}, {rate:.0%} of neurons fire": rate for rate in arguments.rate}
    dense = DENSE + TUNED
    tasks = {dense: make_task(dense, x, y, {})}
    tasks |= {name: make_task(FUSED, x, y, calibrated(x[:, :8], rate)) for name, rate in rates.items()}
    report.add(f"one training step, batch {len(y)}, 4 % events", take_turns(tasks, arguments.turns))

    report.write()


if __name__ == "__main__":
    main()
