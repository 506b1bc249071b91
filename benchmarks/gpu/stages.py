"""The stages of the check: where each is defined, how many seconds it may take, and which have the GPU alone."""

from __future__ import annotations

import importlib
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

Results = dict[str, Any]
# Marks the lines of a stage's output that hold results, and the one that says that all checks are through.
RESULTS, DONE = "RESULTS ", "ALL CHECKS ARE THROUGH"


@dataclass(frozen=True)
class Stage:
    """A function of a module beside this one, under the stage's name."""

    module: str
    # Seconds until it is stopped; together they are what one call of ten minutes holds (test_gpu_check.py).
    limit: int
    # Measures time or fills the memory, and so has the GPU to itself.
    alone: bool = False


# Stages in the order in which they start: measurements first, then the checks in which most depends on the kernels, the
# long ones before the short.
STAGES = {
    "install": Stage("op_checks", 15, alone=True),
    "host": Stage("beside", 30, alone=True),
    "launches": Stage("beside", 15, alone=True),
    "peers": Stage("beside", 90, alone=True),
    "bandwidth": Stage("times", 20, alone=True),
    "captured": Stage("beside", 25, alone=True),
    "batch_norm": Stage("beside", 60, alone=True),
    "step": Stage("times", 25, alone=True),
    "vgg": Stage("times", 60, alone=True),
    "recurrent_speed": Stage("times", 25, alone=True),
    "errors": Stage("op_checks", 15, alone=True),
    "large": Stage("op_checks", 20, alone=True),
    "ops": Stage("op_checks", 60),
    "scans": Stage("op_checks", 40),
    "recurrent": Stage("op_checks", 40),
    "network": Stage("net_checks", 25),
    "graph": Stage("net_checks", 40),
    "exact": Stage("net_checks", 20),
    "compiled": Stage("net_checks", 80),
    "accuracy": Stage("net_checks", 100),
    "memcheck": Stage("net_checks", 65),
    "racecheck": Stage("net_checks", 60),
    "synccheck": Stage("net_checks", 60),
    "initcheck": Stage("net_checks", 60),
    "pytest": Stage("net_checks", 55),
    "convolution": Stage("op_checks", 40),
    "determinism": Stage("net_checks", 20),
    "autocast": Stage("net_checks", 20),
    "streams": Stage("op_checks", 20),
    "kernels": Stage("op_checks", 20),
}


# Stages of `--first`, within 240 seconds of a built wheel; a run without it has the others.
FIRST = ("host", "launches", "peers", "bandwidth", "captured", "batch_norm")


@dataclass(frozen=True)
class Setting:
    """Where a stage runs; `small` asks for sizes that only try the code."""

    device: torch.device
    small: bool
    # True if programs that a stage starts run to their end on a machine without a GPU, not for some seconds alone.
    whole: bool = True

    @property
    def on_gpu(self) -> bool:
        return self.device.type == "cuda"


def note(results: Results) -> None:
    """Keep results of a stage that is still running: they count though it may be stopped."""
    print(RESULTS + json.dumps(results), flush=True)


def verdict(what: str, value: float, most: float) -> Results:
    """Returns a figure with its bound, and whether it keeps it."""
    return {what: f"{value:.4g}: {'yes' if value <= most else 'no'}, at most {most:.4g}"}


def run_stage(name: str, device: str, small: bool, whole: bool = True) -> Results:
    """Results of one stage by name; raises where a check fails."""
    import torch  # noqa: PLC0415

    stage = getattr(importlib.import_module(STAGES[name].module), name)
    results: Results = stage(Setting(torch.device(device), small, whole))
    return results


def cuda_tool(name: str) -> str | None:
    """A program of the CUDA toolkit: on the PATH, or where toolkits are installed."""
    homes = [*filter(None, [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH")]), "/usr/local/cuda"]
    homes += [*map(str, sorted(Path("/usr/local").glob("cuda-*"), reverse=True)), "/opt/cuda"]
    return shutil.which(name) or shutil.which(name, path=os.pathsep.join(f"{home}/bin" for home in homes))
