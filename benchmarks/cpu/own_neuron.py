"""Neurons that run as programs of their step beside native LIF: alone, as a convolution, and in recurrence.

    python benchmarks/cpu/own_neuron.py [--threads 1] [--quick] [--json FILE]

A training step (forward and backward) of each neuron in turns, `LIF(surrogate=ATan())` first; `of processor` is the
time of the processor in times of LIF's. "by step" is the loop of torch that ran before. Then peak memory in sequences,
the first call, and a sequence of 3,000 steps in times of one of 30.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from turns import Report, parser, take_turns

import snnlib
from snnlib import neurons
from snnlib.surrogate import ATan, spike


class Leaky(neurons.Neuron):
    """The neuron of the README."""

    state_names = ("v",)

    def __init__(self, beta: float = 0.9, **options: Any) -> None:
        super().__init__({"beta": beta, "threshold": 1.0}, **options)

    def step(self, state: Any, current: Tensor, params: Any) -> Any:
        """Runs a time step."""
        v = params["beta"] * state[0] + current
        level = params["threshold"]
        spikes = spike(v - level, level, ATan())
        return spikes, (v * (1 - spikes.detach()),)


class AdEx(neurons.Neuron):
    """Adaptive exponential neuron (Brette and Gerstner, 2005), in units of the threshold."""

    state_names = ("v", "w")

    def __init__(self, **options: Any) -> None:
        values = {"tau": 5.0, "tau_w": 20.0, "a": 0.1, "b": 0.2, "slope": 0.15, "bend": 0.8, "threshold": 1.0}
        super().__init__(values, **options)

    def step(self, state: Any, current: Tensor, params: Any) -> Any:
        """Runs a time step."""
        (v, w), p = state, params
        upstroke = p["slope"] * torch.exp(torch.clamp((v - p["bend"]) / p["slope"], max=3.0))
        charged = v + (current + upstroke - v - w) / p["tau"]
        spikes = spike(charged - p["threshold"], p["threshold"], ATan())
        adapted = w + (p["a"] * v - w) / p["tau_w"] + p["b"] * spikes
        return spikes, (torch.where(spikes.detach() > 0, 0.0, charged), adapted)


MODELS: dict[str, Callable[[], neurons.Neuron]] = {
    "LIF": lambda: neurons.LIF(surrogate=ATan()),
    "Leaky": Leaky,
    "QIF": neurons.QIF,
    "CLIF": neurons.CLIF,
    "AdEx": AdEx,
}


def train(module: Callable[[Tensor], Tensor], x: Tensor, q: Tensor) -> None:
    """Forward and backward."""
    x.grad = None
    module(x).backward(q)


def by_step(neuron: neurons.Neuron, x: Tensor) -> Tensor:
    """Runs the loop of torch."""
    value: Tensor = neuron.reference(x).value
    return value


def places(quick: bool) -> dict[str, tuple[Callable[[neurons.Neuron], nn.Module], Tensor]]:
    """Modules of a neuron, and their inputs."""
    generator = torch.Generator().manual_seed(0)
    steps, samples, size = (4, 2, 4) if quick else (30, 20, 10)
    currents = 0.4 + 0.5 * torch.randn(steps, samples, 64, size, size, generator=generator)
    events = (torch.rand(steps, samples, 12, size + 4, size + 4, generator=generator) < 0.05).float()
    rows = (torch.rand(steps, samples, 64, generator=generator) < 0.1).float()
    return {
        "alone": (lambda neuron: neuron, currents),
        "SpikingConv2d(12, 64, 5)": (lambda neuron: snnlib.SpikingConv2d(12, 64, 5, neuron=neuron), events),
        "SpikingRNN(64, 128)": (lambda neuron: snnlib.SpikingRNN(64, 128, neuron=neuron), rows),
    }


def first_call_ms(make: Callable[[], neurons.Neuron], x: Tensor) -> float:
    """Returns the processor's time of making a neuron's program."""
    neuron = make()
    start = time.process_time()
    neuron.kernel(x)
    return 1e3 * (time.process_time() - start)


def long_ratio(make: Callable[[], neurons.Neuron], steps: tuple[int, int], neurons_of_step: int) -> float:
    """Returns the time of a long sequence in times of a short one, minima of the processor's time in turns."""
    neuron, best = make(), [float("inf")] * 2
    inputs = [torch.randn(count, 1, neurons_of_step).requires_grad_() for count in steps]
    for _ in range(5):
        for place, x in enumerate(inputs):
            start = time.process_time()
            train(neuron, x, torch.ones_like(x))
            best[place] = min(best[place], time.process_time() - start)
    return best[1] / best[0]


def main() -> None:
    arguments = parser(__doc__).parse_args()
    report = Report(arguments)
    for name, (make, x) in places(arguments.quick).items():
        tasks = {}
        for model, neuron in MODELS.items():
            torch.manual_seed(1)
            module, given = make(neuron()), x.clone().requires_grad_()
            q = torch.randn_like(module(given))
            tasks[model] = partial(train, module, given, q)
            if name == "alone" and model != "LIF":
                tasks[f"{model}, by step"] = partial(train, partial(by_step, neuron()), given, q)
        report.add(f"{name}, forward and backward", take_turns(tasks, arguments.turns))
    x = torch.randn(3, 1, 64)
    first = {model: {"median_ms": first_call_ms(make, x)} for model, make in MODELS.items() if model != "LIF"}
    report.add("first call", first)
    steps, size = ((3, 30), 64) if arguments.quick else ((30, 3000), 4096)
    report.add(
        f"{steps[1]} steps in times of {steps[0]}",
        {model: {"ratio": long_ratio(make, steps, size)} for model, make in MODELS.items()},
    )
    report.write()


if __name__ == "__main__":
    main()
