"""Tasks that take turns, tables on the terminal, JSON files and arguments, shared by the benchmarks."""

from __future__ import annotations

import argparse
import datetime
import gc
import json
import math
import platform
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

import snnlib
from snnlib.inspect.environment import processor_name

Task = Callable[[], object]
Table = dict[str, dict[str, float]]

# Columns of a table by the key of their figure: heading and digits after the point.
COLUMNS = {
    "median_ms": ("median ms", 1),
    "min_ms": ("min ms", 1),
    "ratio": ("ratio", 2),
    "ratio_low": ("from", 3),
    "ratio_high": ("to", 3),
    "processor_ms": ("processor ms", 1),
    "processor_ratio": ("of processor", 2),
    "least_ms": ("least", 1),
    "python_calls": ("calls", 0),
    "ms_per_step": ("ms per step", 2),
    "peak_mb": ("peak MB", 0),
    "mb_per_step": ("MB per step", 2),
    "gb_per_s": ("GB/s", 1),
    "weights_per_s": ("1e9 weights/s", 2),
    "spikes": ("spikes", 0),
    "of_copy": ("of a copy", 2),
    "forward_us": ("forward us", 0),
    "forward_ratio": ("ratio", 2),
    "forward_beside": ("of beside", 2),
    "backward_us": ("backward us", 0),
    "backward_ratio": ("ratio", 2),
    "backward_beside": ("of beside", 2),
    "evaluation_us": ("evaluation us", 0),
    "evaluation_beside": ("of beside", 2),
    "step_us": ("us", 0),
    "step_ratio": ("ratio", 2),
    "step_beside": ("of beside", 2),
    "forward_calls": ("calls", 0),
    "backward_calls": ("calls back", 0),
    **{
        name: (name, 0)
        for name in ("layers", "forward", "backward", "loss", "adam", "memory", "reads", "watched")
    },
}


@contextmanager
def _garbage_kept() -> Iterator[None]:
    """Python does not look for garbage, which would be at the cost of whichever task is running."""
    gc.collect()
    # Objects that exist now need not be looked at again.
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()


def take_turns(
    tasks: dict[str, Task], turns: int, interval: bool = False, between: Task = gc.collect
) -> Table:
    """Time tasks one after the other, again and again, so that a drift of the machine's speed meets all of them.

    `ratio` is the median, over turns, of the time of a task over that of the first one; `processor_ms` is the median
    of the time that all threads together were busy, which another process on the machine does not lengthen so much,
    `least_ms` the least of it over the turns, and `processor_ratio` is for it what `ratio` is for the time. With
    `interval`, `ratio_low` and `ratio_high` are the ends of the 95 % interval of `ratio`. `between` runs before every
    task, outside of its time.
    """
    walls: dict[str, list[float]] = {name: [] for name in tasks}
    busy: dict[str, list[float]] = {name: [] for name in tasks}
    with _garbage_kept():
        for turn in range(turns + 1):
            for name, task in tasks.items():
                between()
                wall, processor = time.perf_counter(), time.process_time()
                task()
                # The first turn warms up.
                if turn:
                    busy[name].append((time.process_time() - processor) * 1000)
                    walls[name].append((time.perf_counter() - wall) * 1000)
    first, first_busy = next(iter(walls.values())), next(iter(busy.values()))
    return {
        name: {
            "median_ms": statistics.median(values),
            "min_ms": min(values),
            "ratio": statistics.median(_quotients(values, first)),
            **(_interval(_quotients(values, first)) if interval else {}),
            "processor_ms": statistics.median(busy[name]),
            "processor_ratio": statistics.median(_quotients(busy[name], first_busy)),
            "least_ms": min(busy[name]),
        }
        for name, values in walls.items()
    }


def _quotients(values: list[float], first: list[float]) -> list[float]:
    """Returns the quotients of all turns, sorted."""
    return sorted(one / base for one, base in zip(values, first, strict=True))


def _interval(quotients: list[float]) -> dict[str, float]:
    """The 95 % interval of the median by ranks: each quotient is above the true median with a chance of a half."""
    turns = len(quotients)
    rank = max(math.floor(turns / 2 - 0.98 * math.sqrt(turns)), 0)
    return {"ratio_low": quotients[rank], "ratio_high": quotients[turns - 1 - rank]}


def parser(description: str | None, turns: int = 15) -> argparse.ArgumentParser:
    """The arguments of all benchmarks; a file adds its own."""
    made = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--turns", type=int, default=turns, help=f"timed turns (default {turns})")
    made.add_argument("--threads", type=int, help="CPU threads (default: torch's choice)")
    made.add_argument("--quick", action="store_true", help="tiny sizes and two turns: does it run?")
    made.add_argument(
        "--fresh-memory", action="store_true", help="do not keep freed memory: torch as shipped"
    )
    made.add_argument("--json", type=Path, help="also write the figures to this file")
    return made


class Report:
    """Tables of one benchmark, shown as they come and written at the end."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._arguments = arguments
        self.tables: dict[str, Table] = {}
        if arguments.threads:
            torch.set_num_threads(arguments.threads)
        if arguments.quick:
            arguments.turns = 2
        kept = not arguments.fresh_memory and snnlib.keep_freed_memory()
        self.facts: dict[str, Any] = {
            "processor": processor_name(),
            "threads": torch.get_num_threads(),
            "turns": arguments.turns,
            "freed memory": "kept" if kept else "handed back",
            "path": snnlib.backends.native.explain_path()[1],
            "torch": torch.__version__,
            "python": platform.python_version(),
            "date": datetime.date.today().isoformat(),
        }
        print("; ".join(f"{name}: {value}" for name, value in self.facts.items()))

    def add(self, title: str, table: Table) -> None:
        """Print a table and keep it."""
        self.tables[title] = table
        keys = list(dict.fromkeys(key for row in table.values() for key in row))
        width = max(len(title), *map(len, table))
        print(f"\n{title:{width}}" + "".join(f"{COLUMNS[key][0]:>14}" for key in keys))
        for name, row in table.items():
            cells = (f"{row[key]:14.{COLUMNS[key][1]}f}" if key in row else f"{'':14}" for key in keys)
            print(f"{name:{width}}{''.join(cells)}".rstrip(), flush=True)

    def write(self) -> None:
        """The JSON file, where it was asked for."""
        if self._arguments.json:
            self._arguments.json.parent.mkdir(parents=True, exist_ok=True)
            text = json.dumps({"facts": self.facts, "tables": self.tables}, indent=2)
            self._arguments.json.write_text(text + "\n", encoding="utf-8")
