"""One table of learning: accuracy of seven nets on nine tasks, each trained for the same processor time.

    python benchmarks/learning/table.py --task NAME ... [--net NAME ...] [--seeds 0 1 2] [--within 600] [--out FOLDER]
    python benchmarks/learning/table.py --page

Tasks are those of `table_problems.py`, nets those of `table_nets.py` with three seeds and those of other
libraries (`table_peers.py`) with seed 0: `make build/peers/.ready`, then `PYTHONPATH=build/peers`. A run trains on
one thread for 60 seconds of processor time, for 180 on MNIST, 1500 pixel by pixel; preparation is counted, evaluation
is not. Accuracy is that on all test samples at the end; the course before it is of 250 of them. Nothing is chosen by
it.

Every run is stored as one JSON file in `FOLDER/TASK`; runs that are there are skipped, and none is begun after
`--within` seconds of the clock. `--page` draws the table into docs/measurements/learning.md.
"""

from __future__ import annotations

import argparse
import math
import time
from itertools import product
from pathlib import Path

import table_nets
import table_peers
import torch
from cells import PAGE, RESULTS, Cell, Key, read, redraw, run_missing
from folds import mean_and_error
from table_nets import Way
from table_problems import PROBLEMS, Problem, problem
from tasks import AbsentError
from timed import Clock, rows, train_for
from torch import Tensor, nn

import snnlib
from snnlib.inspect.environment import processor_name

FOLDER = RESULTS / "table"
NETS = {**table_nets.NETS, **table_peers.NETS}
SECONDS = {"mnist": 180.0, "mnist-pixels": 1500.0}
DEFAULT_SECONDS = 60.0
SEEDS = (0, 1, 2)
# On the way, and of how many test samples each.
EVALUATIONS, SOME = 6, 250


def seeds_of(net: str) -> tuple[int, ...]:
    return SEEDS if net in table_nets.NETS else SEEDS[:1]


def key_of(task: str, net: str, seed: int) -> Key:
    return task, net.replace(" ", "-"), str(seed)


@torch.no_grad()
def accuracy(way: Way, of: Problem, count: int) -> tuple[float, int]:
    """Share of right answers among so many test samples, or of their labelled steps; and how many were asked for."""
    way.net.eval()
    right = asked = 0
    for batch in of.parts(count):
        answers = way.scores(batch).argmax(-1)
        labels = batch.labels.t() if of.per_step else batch.labels
        right += int((answers == labels).sum())
        asked += int((labels >= 0).sum())
    way.net.train()
    return right / asked, asked


def run(task: str, net: str, seed: int, seconds: float) -> Cell:
    """One training run, with its course `[update, seconds, accuracy]` and its accuracy at the end."""
    of = problem(task)
    torch.manual_seed(seed)
    clock, wall = Clock(), time.perf_counter()
    way = NETS[net](of, task, of.batch(torch.randperm(of.train)[: of.setting.prepared]))
    rates = [group["lr"] for group in way.optimizer.param_groups]

    def step(chosen: Tensor, gone: float) -> None:
        for group, rate in zip(way.optimizer.param_groups, rates, strict=True):
            group["lr"] = rate * (1 + math.cos(math.pi * min(gone, 1.0))) / 2
        loss = way.loss(of.batch(chosen))
        way.optimizer.zero_grad()
        loss.backward()
        if nn.utils.clip_grad_norm_(way.net.parameters(), way.clip).isfinite():
            way.optimizer.step()
        way.after_step()

    batches = rows(of.train, of.setting.batch, seed)
    course = train_for(seconds, clock, batches, step, lambda: accuracy(way, of, SOME)[0], EVALUATIONS)
    with clock.paused():
        last, tested = accuracy(way, of, of.test)
    return {
        "task": task,
        "net": net,
        "seed": seed,
        "seconds": seconds,
        "accuracy": round(last, 4),
        "tested": tested,
        "updates": course[-1][0],
        "course": course,
        "parameters": sum(parameter.numel() for parameter in way.net.parameters()),
        "testing_seconds": round(clock.paused_seconds, 1),
        "wall_seconds": round(time.perf_counter() - wall, 1),
        "processor": processor_name(),
    }


def table(folder: Path) -> str:
    """The runs that are there, as Markdown: accuracy, and the updates of the first seed."""
    lines = [
        "| task | seconds | net | accuracy, % | seeds | updates |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for task, net in product(PROBLEMS, NETS):
        cells = [cell for seed in SEEDS if (cell := read(folder, key_of(task, net, seed)))]
        if cells:
            mean, error = mean_and_error([100 * cell["accuracy"] for cell in cells])
            accuracy = f"{mean:.1f}" + f" +- {error:.1f}" * (len(cells) > 1)
            row = (task, f"{cells[0]['seconds']:.0f}", net, accuracy, len(cells), cells[0]["updates"])
            lines.append(f"| {' | '.join(map(str, row))} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--task", nargs="+", choices=PROBLEMS, default=list(PROBLEMS))
    parser.add_argument("--net", nargs="+", choices=NETS, default=list(NETS))
    parser.add_argument("--seeds", nargs="+", type=int, default=list(SEEDS))
    parser.add_argument("--seconds", type=float, help="processor time of a run (default: the task's)")
    parser.add_argument("--within", type=float, help="begin no run after so many seconds")
    parser.add_argument("--out", type=Path, default=FOLDER)
    parser.add_argument(
        "--page", type=Path, nargs="?", const=PAGE, help="draw what is there into a page, and run nothing"
    )
    args = parser.parse_args()
    if args.page:
        redraw(args.page, "table", table(args.out))
        return
    torch.set_num_threads(1)
    snnlib.keep_freed_memory()
    wanted: dict[Key, tuple[str, str, int]] = {}
    for task in args.task:
        for net in args.net:
            reason = table_peers.why_not(net) if net in table_peers.NETS else None
            if reason:
                print(f"{task}, {net}: not run: {reason}")
                continue
            wanted |= {
                key_of(task, net, seed): (task, net, seed) for seed in args.seeds if seed in seeds_of(net)
            }

    def one(key: Key) -> Cell | None:
        task, net, seed = wanted[key]
        try:
            cell = run(task, net, seed, args.seconds or SECONDS.get(task, DEFAULT_SECONDS))
        except AbsentError as error:
            print(f"{task}: not run: {error}", flush=True)
            return None
        print(f"{task}, {net}, seed {seed}: {cell['accuracy']:.1%}, {cell['updates']} updates", flush=True)
        return cell

    print(f"{run_missing(args.out, wanted, one, args.within)} runs; {args.out}")


if __name__ == "__main__":
    main()
