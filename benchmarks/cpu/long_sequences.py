"""Time and peak memory of the N-MNIST net's training step for longer and longer sequences.

    python benchmarks/cpu/long_sequences.py [--steps 30 100 300] [--batch 50] [--json FILE] [--picture FILE]

The net and the data of training_step.py; a longer sequence is the recording over and over again, so density and rates
stay what they are. Both time and memory should grow as T does. Peak memory is that of a fresh process, over imports.
"""

from __future__ import annotations

from charts import lines
from matplotlib.figure import Figure
from nmnist_nets import FUSED, calibrated, make_task, recorded
from peak_memory import peak_mb
from torch import Tensor
from turns import Report, Table, parser, take_turns


def main() -> None:
    wanted = parser(__doc__, turns=5)
    wanted.add_argument(
        "--steps", type=int, nargs="+", default=[30, 100, 300], help="lengths of the sequences, T"
    )
    wanted.add_argument("--batch", type=int, default=50)
    arguments = wanted.parse_args()
    report = Report(arguments)
    data, recording, y = recorded(2 if arguments.quick else arguments.batch)
    weights = calibrated(recording)
    lengths: list[int] = [len(recording)] if arguments.quick else arguments.steps
    sequences = {f"T = {steps}": _of_length(recording, steps) for steps in lengths}
    table = take_turns(
        {name: make_task(FUSED, x, y, weights) for name, x in sequences.items()}, arguments.turns
    )
    for name, x in sequences.items():
        table[name]["peak_mb"] = peak_mb(FUSED, x, y, weights, not arguments.fresh_memory)
    for name, steps in zip(sequences, lengths, strict=True):
        table[name]["ms_per_step"] = table[name]["median_ms"] / steps
        table[name]["mb_per_step"] = table[name]["peak_mb"] / steps
    title = f"{FUSED}, batch {len(y)}, {data}"
    report.add(title, table)

    def figure(tables: dict[str, Table]) -> Figure:
        rows = [tables[title][name] for name in sequences]
        panels = {
            label: {FUSED: [(steps, row[key]) for steps, row in zip(lengths, rows, strict=True)]}
            for label, key in (("median ms of a training step", "median_ms"), ("peak memory, MB", "peak_mb"))
        }
        return lines(panels, title="The N-MNIST net on longer sequences", xlabel="time steps T")

    report.write(figure)


def _of_length(sequence: Tensor, steps: int) -> Tensor:
    return sequence.repeat(-(-steps // len(sequence)), 1, 1, 1, 1)[:steps]


if __name__ == "__main__":
    main()
