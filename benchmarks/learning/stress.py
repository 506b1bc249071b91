"""Does training hold? Nets that learn from spike times, at a third, once and three times the recommended rate.

    python benchmarks/learning/stress.py [--task NAME ...] [--net NAME ...] [--times NAME ...] [--seeds 0 1 2]
                                [--seconds 60] [--within 600] [--out FOLDER]
    python benchmarks/learning/stress.py --page

A run trains for `--seconds` of processor time on one thread, preparation among them and nine evaluations not, and is
stored as one JSON file in `FOLDER/TASK`; runs that are there are skipped, and none is begun after `--within` seconds,
so that the grid can be run in pieces. `--page` draws what is there into docs/measurements/learning.md.

Tasks are those of `tasks.py`, nets of SRM neurons or of `CubaLIF(gradient="event")` neurons with the same time
constants. `recommended` is the only place that knows how a net is trained. A run

- is at **chance** if the mean of its last three evaluations is at most that of guessing, and
- **holds** if that mean is no further below the best mean of three evaluations in succession

than 3 points, or two standard errors of a share of the test set where those are more, and is at least 0.9 of that of
SRM nets on the task, the mean over their runs at the recommended rate. It has **warned** if a warning
came while it trained; those of preparation and those that torch itself gives do not count.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain, product
from pathlib import Path
from typing import Any

import torch
from cells import PAGE, RESULTS, Cell, Key, read, redraw, run_missing
from tasks import AbsentError, Task, load
from timed import Clock, rows, train_for
from torch import Tensor, nn

import snnlib
from snnlib.inspect.environment import processor_name
from snnlib.neurons import CubaLIF

FOLDER = RESULTS / "stress"


@dataclass(frozen=True)
class Setting:
    """Settings that the nets of a task share."""

    # Net in the papers' notation.
    net: str
    # Shape of a step of the input.
    shape: tuple[int, int, int]
    tau_m: float
    tau_s: float
    batch: int = 25
    # Samples to prepare with.
    prepared: int = 25
    # Spikes of the right output and of the others.
    wanted: tuple[int, int] = (15, 2)
    # Options of SRM neurons.
    options: Mapping[str, float] = field(default_factory=dict)


# Options of the published MNIST net.
MNIST_OPTIONS = {"tau_grad": 2.5, "input_grad_scale": 0.85}
SETTINGS = {
    "mnist-6000": Setting(
        "15C5-P2-40C5-P2-300-10",
        (1, 28, 28),
        5.0,
        3.0,
        50,
        prepared=200,
        wanted=(5, 1),
        options=MNIST_OPTIONS,
    ),
    "digits": Setting("12C5p1-P2-64C5-P2-10", (2, 34, 34), 8.0, 4.0),
    "nmnist": Setting("12C5p1-P2-64C5-P2-10", (2, 34, 34), 8.0, 4.0),
    "gestures": Setting("12C5s2-P2-64-3", (2, 32, 32), 5.0, 3.0),
    "motifs": Setting("96-6", (40, 1, 1), 20.0, 10.0, batch=50),
}
NEURONS = ("SRM", "CubaLIF")
TIMES = {"third": 1 / 3, "once": 1.0, "thrice": 3.0}
SEEDS = [0, 1, 2]
EVALUATIONS, POINTS = 9, 0.03
# Share of the accuracy of SRM nets that a run which holds has.
OF_SRM = 0.9
# Test samples at a time.
PART = 50

# Takes a call of the net and the labels of its samples, so that a loss can have a say in how the net is run.
Loss = Callable[[Callable[[], Tensor], Tensor], Tensor]


def recommended(
    net: nn.Sequential, x: Tensor, of: Setting, times: float
) -> tuple[torch.optim.Optimizer, Loss, float]:
    """Returns the documentation's choice for nets that learn from spike times: optimiser, loss and largest norm of the
    gradient, for a net that this prepares on a batch. `times` multiplies the recommended learning rate.
    """
    desired, undesired = of.wanted

    def loss(output: Callable[[], Tensor], labels: Tensor) -> Tensor:
        counts = snnlib.readout.spike_count(output())
        return snnlib.losses.spike_count_loss(
            counts, labels, desired=desired, undesired=undesired, one_sided=True, reduction="sum"
        )

    snnlib.prepare_(net, x, standardize=True)
    return torch.optim.Adam(snnlib.parameter_groups(net, 1e-3 * times)), loss, 1.0


def make_net(of: Setting, neuron: str) -> nn.Sequential:
    """A net of SRM or of event-driven CubaLIF neurons."""
    if neuron == "CubaLIF":
        # Reset and bound of SRM neurons, 4 steps; counts are learned by gradients of amplitudes.
        options = {"reset_states": "all", "input_gradient": "dense", "grad_clamp": 4 / of.tau_s}
        event = CubaLIF(of.tau_m, of.tau_s, gradient="event", **options)
        return snnlib.models.from_notation(of.net, of.shape, neuron=event)
    return snnlib.models.from_notation(of.net, of.shape, tau_m=of.tau_m, tau_s=of.tau_s, **of.options)


@torch.no_grad()
def accuracy(net: nn.Module, task: Task) -> float:
    """Share of the test samples whose output sums to most, spikes or potentials."""
    net.eval()
    samples, labels = task.test
    answers = [net(task.batch(part)).sum(0).argmax(1) for part in samples.split(PART)]
    net.train()
    return float((torch.cat(answers) == labels).float().mean())


@contextmanager
def warnings_kept(kept: list[dict[str, Any]], update: Callable[[], int]) -> Iterator[None]:
    """Appends each warning once, with the update in which it came first; torch's own go by."""
    torch_folder = str(Path(torch.__file__).parent)

    def keep(message: Warning | str, category: type[Warning], filename: str, *_: object) -> None:
        if not filename.startswith(torch_folder) and str(message) not in [one["text"] for one in kept]:
            kept.append({"update": update(), "text": str(message)})

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        # catch_warnings gives the old function back.
        warnings.showwarning = keep  # type: ignore[assignment]
        yield


def run(name: str, neuron: str, times: float, seed: int, seconds: float) -> Cell:
    """Trains a net; returns its evaluations `[update, seconds, accuracy]` and warnings."""
    task, of = load(name), SETTINGS[name]
    samples, labels = task.train
    warned: list[dict[str, Any]] = []
    updates = 0
    torch.manual_seed(seed)
    clock, wall = Clock(), time.perf_counter()
    with warnings_kept(warned, lambda: updates):
        net = make_net(of, neuron)
        # At random, as some sets are sorted by class.
        first = task.batch(samples[next(rows(len(samples), of.prepared, seed))])
        optimizer, loss_of, largest = recommended(net, first, of, times)
        snnlib.fuse_(net)

        def step(chosen: Tensor, _: float) -> None:
            nonlocal updates
            updates += 1
            loss = loss_of(lambda: net(task.batch(samples[chosen])), labels[chosen])
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), largest)
            optimizer.step()

        batches = rows(len(samples), of.batch, seed)
        evaluations = train_for(seconds, clock, batches, step, lambda: accuracy(net, task), EVALUATIONS)
        rates = layer_rates(net, task)
    return {
        "task": name,
        "net": neuron,
        "times": times,
        "seed": seed,
        "seconds": seconds,
        "testing_seconds": round(clock.paused_seconds, 1),
        "wall_seconds": round(time.perf_counter() - wall, 1),
        "processor": processor_name(),
        "classes": task.classes,
        "tested": len(task.test[1]),
        "updates": updates,
        "evaluations": evaluations,
        "warnings": warned,
        "rates": rates,
    }


@torch.no_grad()
def layer_rates(net: nn.Module, task: Task) -> dict[str, dict[str, float]]:
    """Spikes per neuron and step, and the share of channels without any, of each layer on test samples."""
    net.eval()
    with snnlib.SpikeDoctor(net) as doctor:
        net(task.batch(task.test[0][:PART]))
    return {
        layer.name: {"rate": round(layer.rate, 4), "silent": round(layer.dead / layer.channels, 4)}
        for layer in doctor.layers()
    }


def verdict(cell: Cell, of_srm: float = 0.0) -> dict[str, Any]:
    """Last mean of three evaluations and the best, its own or that of SRM nets where a run has less than 0.9 of it;
    whether the run is at chance, holds, and has warned.
    """
    shares = [share for _, _, share in cell["evaluations"]]
    threes = [statistics.mean(shares[i : i + 3]) for i in range(len(shares) - 2)]

    def margin(share: float) -> float:
        return max(POINTS, 2 * math.sqrt(share * (1 - share) / cell["tested"]))

    guess, last, best = 1 / cell["classes"], threes[-1], max(threes)
    learned = last >= OF_SRM * of_srm
    return {
        "last": last,
        "best": best if learned else max(best, of_srm),
        "chance": last <= guess + margin(guess),
        "holds": learned and last >= best - margin(best),
        "warned": any(one["update"] > 0 for one in cell["warnings"]),
    }


def keys(tasks: list[str], nets: list[str], times: list[str], seeds: list[int]) -> list[Key]:
    """Keys of a grid, seeds last."""
    return [tuple(map(str, key)) for key in product(tasks, nets, times, seeds)]


def _shown(cell: Cell, of_srm: float = 0.0) -> str:
    found = verdict(cell, of_srm)
    text = f"{100 * found['last']:.1f}"
    if found["chance"]:
        text = f"**{text} chance**"
    elif not found["holds"]:
        text = f"**{text} of {100 * found['best']:.1f}**"
    return text + (" w" if found["warned"] else "")


def tables(folder: Path) -> str:
    """Counts in words and the runs that are there, as Markdown."""
    verdicts: list[dict[str, Any]] = []
    rows = ["", "| task | net | " + " | ".join(TIMES) + " |", "| --- | --- |" + " --- |" * len(TIMES)]
    for task, net in product(SETTINGS, NEURONS):
        of_srm = [read(folder, key) for key in keys([task], ["SRM"], ["once"], SEEDS)]
        wanted = statistics.mean([verdict(cell)["last"] for cell in of_srm if cell] or [0.0])
        found = [[read(folder, key) for key in keys([task], [net], [factor], SEEDS)] for factor in TIMES]
        there = [[cell for cell in of_factor if cell] for of_factor in found]
        verdicts += [verdict(cell, wanted) for cell in chain(*there)]
        if any(there):
            shown = (", ".join(_shown(cell, wanted) for cell in of_factor) for of_factor in there)
            rows.append(f"| {task} | {net} | " + " | ".join(shown) + " |")
    fell = [one for one in verdicts if one["chance"] or not one["holds"]]
    return "\n".join(
        [
            f"Of {len(verdicts)} runs {len(fell)} are at chance or do not hold, of which "
            f"{sum(one['warned'] for one in fell)} warned; "
            f"of the others {sum(one['warned'] for one in verdicts if one not in fell)} warned.",
            *rows,
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--task", nargs="+", choices=SETTINGS, default=list(SETTINGS))
    parser.add_argument("--net", nargs="+", choices=NEURONS, default=list(NEURONS))
    parser.add_argument("--times", nargs="+", choices=TIMES, default=list(TIMES))
    parser.add_argument("--seeds", nargs="+", type=int, default=SEEDS)
    parser.add_argument("--seconds", type=float, default=60.0, help="processor time of a run")
    parser.add_argument("--within", type=float, help="begin no run after so many seconds")
    parser.add_argument("--out", type=Path, default=FOLDER)
    parser.add_argument(
        "--page", type=Path, nargs="?", const=PAGE, help="draw what is there into a page, and run nothing"
    )
    args = parser.parse_args()
    if args.page:
        redraw(args.page, "stress", tables(args.out))
        return
    torch.set_num_threads(1)
    snnlib.keep_freed_memory()

    def one(key: Key) -> Cell | None:
        name, neuron, factor, seed = key
        try:
            cell = run(name, neuron, TIMES[factor], int(seed), args.seconds)
        except AbsentError as error:
            print(f"{name}: not run: {error}", flush=True)
            return None
        layers = ", ".join(f"{layer} {100 * of['rate']:.1f} %" for layer, of in cell["rates"].items())
        print(f"{' '.join(key)}: {_shown(cell)}, {cell['updates']} updates, {layers}", flush=True)
        for warning in cell["warnings"]:
            print(f"  update {warning['update']}: {warning['text']}", flush=True)
        return cell

    wanted = keys(args.task, args.net, args.times, args.seeds)
    print(f"{run_missing(args.out, wanted, one, args.within)} runs; {args.out}")


if __name__ == "__main__":
    main()
