"""Milliseconds of every neuron model beside LIF: a forward pass over a sequence, and the pass back to its currents.

    python benchmarks/cpu/neuron_models.py [--threads 1] [--models LIF QIF CLIF] [--json FILE] [--picture FILE]

T = 30, 64 samples of 512 neurons, float32. Currents are drawn so that LIF fires in a tenth of its steps; all models get
the same ones, by which some fire more and some less. Each has its default options but for the surrogate, which is
ATan(2), and for learned constants, of which there are none. `ratio` is over LIF's time in the same turn.
"""

from __future__ import annotations

import inspect
from functools import partial

import torch
from charts import bars
from torch import Tensor
from turns import Report, Task, parser, take_turns

from snnlib.neurons import MODELS, Neuron
from snnlib.surrogate import ATan


def made(name: str) -> Neuron:
    given = inspect.signature(MODELS[name]).parameters
    options = {"surrogate": ATan(2.0)} if "surrogate" in given else {}
    # Constants that learn have a gradient of their own, and LIF has none that does.
    made = MODELS[name](**options, **({"learnable": ()} if "learnable" in given else {}))
    return made.requires_grad_(False)


def forward(neuron: Neuron, x: Tensor) -> None:
    with torch.no_grad():
        neuron(x)


def both(neuron: Neuron, x: Tensor, gradient: Tensor) -> None:
    neuron(x.detach().requires_grad_()).backward(gradient)


def main() -> None:
    wanted = parser(__doc__)
    wanted.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS), metavar="MODEL")
    arguments = wanted.parse_args()
    report = Report(arguments)
    shape = (30, 4, 32) if arguments.quick else (30, 64, 512)
    x, gradient = torch.randn(2, *shape, generator=torch.Generator().manual_seed(0))
    # Of the rate in the head of this file.
    x = x + 0.43
    # LIF comes first: it is what the others are compared with.
    names = ["LIF", *(name for name in arguments.models if name != "LIF")]
    neurons = {name: made(name) for name in names}
    for neuron in neurons.values():
        neuron.training_watch.stop()
    passes: dict[str, dict[str, Task]] = {
        "forward": {name: partial(forward, neuron, x) for name, neuron in neurons.items()},
        "forward and backward": {
            name: partial(both, neuron, x, gradient) for name, neuron in neurons.items()
        },
    }
    for title, tasks in passes.items():
        report.add(title, take_turns(tasks, arguments.turns))
    report.write(partial(bars, title="Neuron models beside LIF"))


if __name__ == "__main__":
    main()
