"""One table of learning: accuracy of eight nets on nine tasks, each trained for the same processor time.

    python benchmarks/learning/table.py --task NAME ... [--net NAME ...] [--seeds 0 1 2] [--within 600] [--out FOLDER]
    python benchmarks/learning/table.py --page docs/measurements/learning-table.md

Tasks are those of `table_problems.py`, nets those of `table_nets.py` with three seeds and those of other
libraries (`table_peers.py`) with seed 0: `make build/peers/.ready`, then `PYTHONPATH=build/peers`. A run trains on
one thread for 60 seconds of processor time, for 180 on MNIST, 1500 pixel by pixel; preparation is counted, evaluation is not. Accuracy is
that on all test samples at the end; the course before it is of 250 of them. Nothing is chosen by it.

Every run is stored as one JSON file in `FOLDER/TASK`; runs that are there are skipped, and none is begun after
`--within` seconds of the clock. `--page` draws the table and, beside it, the picture of accuracy against time.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from pathlib import Path

import table_nets
import table_peers
import torch
from cells import Cell, Key, read, redraw, run_missing
from folds import mean_and_error
from table_nets import Way
from table_problems import PROBLEMS, Problem, problem
from tasks import ROOT, AbsentError
from timed import Clock, rows, train_for
from torch import Tensor, nn

import snnlib
from snnlib.app.visual.canvas import save_png
from snnlib.inspect.environment import processor_name

sys.path.append(str(Path(__file__).parents[1] / "cpu"))
from charts import courses

FOLDER = ROOT / "docs" / "measurements" / "learning-table"
PICTURE = ROOT / "docs" / "images" / "learning-table.png"
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
    for batch in of.parts(min(count, way.tested)):
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

    batches = rows(of.train, way.batch or of.setting.batch, seed)
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


def _runs(folder: Path, task: str, net: str) -> list[Cell]:
    found = (read(folder, key_of(task, net, seed)) for seed in seeds_of(net))
    return [cell for cell in found if cell is not None]


def _shown(folder: Path, task: str, net: str) -> str:
    if net == table_peers.EXACT and task != "mnist":
        return "no such net"
    cells = _runs(folder, task, net)
    if not cells:
        return "not run"
    mean, error = mean_and_error([100 * cell["accuracy"] for cell in cells])
    if len(cells) == 1:
        return f"{mean:.1f}" if net in table_peers.NETS else f"{mean:.1f} (one seed)"
    seeds = "" if len(cells) == len(seeds_of(net)) else f" ({len(cells)} seeds)"
    return f"{mean:.1f} +- {error:.1f}{seeds}"


def table(folder: Path) -> str:
    """Accuracy by task and net, as Markdown, and the updates that the time was enough for."""
    lines = ["| task | seconds | " + " | ".join(NETS) + " |", "| --- | --- |" + " --- |" * len(NETS)]
    for task in PROBLEMS:
        shown = (_shown(folder, task, net) for net in NETS)
        lines.append(f"| {task} | {SECONDS.get(task, DEFAULT_SECONDS):.0f} | " + " | ".join(shown) + " |")
    lines += ["", "Updates in that time, of seed 0:", "", "| task | " + " | ".join(NETS) + " |"]
    lines.append("| --- |" + " --- |" * len(NETS))
    for task in PROBLEMS:
        first = (read(folder, key_of(task, net, 0)) for net in NETS)
        lines.append(
            f"| {task} | " + " | ".join(str(cell["updates"]) if cell else "" for cell in first) + " |"
        )
    return "\n".join(lines)


def panels(folder: Path) -> dict[str, dict[str, list[tuple[float, float]]]]:
    """By task and net the mean course of the seeds, `(seconds, per cent)`, with all test samples at its end."""
    found: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for task in PROBLEMS:
        found[task] = {}
        for net in NETS:
            cells = _runs(folder, task, net)
            if not cells:
                continue
            ends = [[share for _, _, share in cell["course"][:-1]] + [cell["accuracy"]] for cell in cells]
            times = [at for _, at, _ in cells[0]["course"]]
            means = (100 * sum(shares) / len(shares) for shares in zip(*ends, strict=True))
            found[task][net] = list(zip(times, means, strict=True))
    return found


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
    parser.add_argument("--page", type=Path, help="draw what is there into this page, and run nothing")
    parser.add_argument("--picture", type=Path, default=PICTURE, help="of the page")
    args = parser.parse_args()
    if args.page:
        redraw(args.page, table(args.out))
        args.picture.parent.mkdir(parents=True, exist_ok=True)
        figure = courses(panels(args.out), names=list(NETS), ours=len(table_nets.NETS))
        save_png(figure, args.picture)
        return
    torch.set_num_threads(1)
    snnlib.keep_freed_memory()
    wanted: dict[Key, tuple[str, str, int]] = {}
    for task in args.task:
        for net in args.net:
            reason = table_peers.why_not(net, task) if net in table_peers.NETS else None
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
