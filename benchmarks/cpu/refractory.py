"""Neurons with a refractory time beside the same neurons without: alone, in layers and in recurrence.

    python benchmarks/cpu/refractory.py [--threads 2] [--json FILE]

A training step (forward and backward) and a forward pass of each, in turns: no refractory time, two steps, and one
spike a sequence (`math.inf`). `ratio` is beside none; at most 1.3 is wanted.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from turns import Report, parser, take_turns

import snnlib
from snnlib import neurons, surrogate

RATE = 0.1
LIKE = {"none": 0, "two steps": 2, "one spike": math.inf}
Make = Callable[[float], nn.Module]


def _lif(refractory: float) -> neurons.Neuron:
    return neurons.LIF(surrogate=surrogate.Triangle(0.5, 0.4), refractory=refractory)


def _cuba(refractory: float) -> neurons.Neuron:
    return neurons.CubaLIF(surrogate=surrogate.Triangle(0.5, 0.4), refractory=refractory)


def _sparse(size: int, refractory: float) -> nn.Module:
    connections = snnlib.Sparse(fan_out=min(100, size))
    return snnlib.SpikingRNN(100, size, neuron=_cuba(refractory), recurrent_connections=connections)


def cases(quick: bool) -> dict[str, tuple[Make, tuple[int, ...]]]:
    """Module and shape of its input by what is timed."""
    steps, size, many = (4, 8, 50) if quick else (100, 256, 10_000)
    return {
        "LIF alone": (_lif, (steps, 32, 4 * size)),
        "CubaLIF alone": (_cuba, (steps, 32, 4 * size)),
        "SpikingLinear": (lambda r: snnlib.SpikingLinear(700, size, neuron=_lif(r)), (steps, 32, 700)),
        "SpikingConv2d": (
            lambda r: snnlib.SpikingConv2d(16, 32, 3, padding=1, neuron=_lif(r)),
            (max(steps // 5, 1), 16, 16, 16, 16),
        ),
        "SpikingRNN": (lambda r: snnlib.SpikingRNN(100, size, neuron=_lif(r)), (steps, 32, 100)),
        f"sparse, {many} neurons": (partial(_sparse, many), (steps, 1, 100)),
    }


def train(module: nn.Module, x: Tensor) -> None:
    """Forward and backward."""
    x.grad = None
    module(x).sum().backward()


@torch.no_grad()
def infer(module: nn.Module, x: Tensor) -> None:
    """Forward alone."""
    module(x)


def main() -> None:
    arguments = parser(__doc__).parse_args()
    report = Report(arguments)
    for name, (make, shape) in cases(arguments.quick).items():
        torch.manual_seed(0)
        alone = name.endswith("alone")
        x = torch.rand(shape) * 1.5 if alone else (torch.rand(shape) < RATE).float()
        modules = {}
        for like, refractory in LIKE.items():
            torch.manual_seed(1)
            modules[like] = make(refractory)
        for task in (train, infer):
            given = x.clone().requires_grad_(task is train)
            tasks = {like: partial(task, module, given) for like, module in modules.items()}
            report.add(f"{name}, {task.__name__}", take_turns(tasks, arguments.turns))
    report.write()


if __name__ == "__main__":
    main()
