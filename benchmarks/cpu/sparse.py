"""Training step of sparse recurrent neurons: seconds and memory by number; products; and beside dense weights.

    python benchmarks/cpu/sparse.py --neurons 1000000 [--connections 100] [--event]
    python benchmarks/cpu/sparse.py --grow [--json FILE]
    python benchmarks/cpu/sparse.py --products [--threads 1]
    python benchmarks/cpu/sparse.py --dense [--json FILE]

`--neurons`: forward, backward and Adam of so many recurrent CubaLIF neurons with `--connections` each and ten inputs
each of a hundred, T = 100, batch 1, Triangle(0.5); the input is such that about 2 % of them fire in a step and at most
10 % are within the surrogate's width, and both shares are printed. `--event` learns by `gradient="event"`. Exits with
status 1 above the bounds that are stated for 100,000 and 1,000,000 neurons with 100 connections. `--grow` does this for
1,000 to 1,000,000 neurons, each in a process of its own, and gives the exponent with which the time grows.

`--products`: weights per second of a processor of the three products of a layer, 100,000 inputs with 100 targets each,
of which 2 % fire, beside brainevent's product where it is installed.

`--dense`: 4096 recurrent neurons at 2 % density beside dense weights, and the net of recurrent.py by density.
"""

from __future__ import annotations

import importlib.util
import json
import math
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from nmnist_nets import scale_to_rate_, training_step
from peak_memory import forget_peak, peak
from recurrent import BUMP, INPUT_RATE, LEARNING_RATE, Ours
from torch import Tensor, nn
from turns import Report, Task, parser, take_turns

import snnlib
from snnlib import neurons, surrogate
from snnlib.functional import SparselyConnected
from snnlib.functional.plan import layer_currents

STEPS, INPUTS, FAN_IN = 100, 100, 10
# Few and strong inputs: potentials are near the threshold for a short time.
INPUT_RATE_OF_MANY = 0.0025
RATE, WITHIN = 0.02, 0.1
# Bounds by number of neurons, of 100 connections: seconds, and MB above the process after import and building.
BOUNDS = {100_000: (0.6, 400), 1_000_000: (8.0, 3500)}
BUILD_SECONDS, BUILD_MB = 60, 4000


def rnn_of(size: int, connections: int, gradient: str = "surrogate") -> snnlib.SpikingRNN:
    """Recurrent neurons with ten inputs each."""
    options: dict[str, Any] = {"surrogate": surrogate.Triangle(0.5, 0.4)} if gradient == "surrogate" else {}
    return snnlib.SpikingRNN(
        INPUTS,
        size,
        neuron=neurons.CubaLIF(gradient=gradient, **options),
        connections=snnlib.Sparse(density=FAN_IN / INPUTS),
        recurrent_connections=snnlib.Sparse(fan_out=min(connections, size)),
    )


def shares(rnn: snnlib.SpikingRNN, x: Tensor) -> tuple[float, float]:
    """Returns two shares of neuron-steps: those with a spike, and those above half of the threshold."""
    state, fired, near = None, 0.0, 0.0
    with torch.no_grad():
        for step in x:
            out, state = rnn.run(step[None], state)
            fired += float(out.mean()) / len(x)
            # After the reset neurons that have fired are at 0.
            near += float((state[0][0] > 0.5).float().mean()) / len(x)
    return fired, fired + near


def factor(x: Tensor, size: int, connections: int, gradient: str) -> float:
    """Returns the factor of the input weights that sets the rate, equal for any number of neurons."""
    rnn = rnn_of(min(size, 2000), connections, gradient)
    weight = rnn.layers[0].weight
    drawn, low, high = weight.detach().clone(), -4.0, 8.0
    for _ in range(12):
        middle = (low + high) / 2
        with torch.no_grad():
            weight.copy_(drawn * 2**middle)
            low, high = (low, middle) if float(rnn(x).mean()) > RATE else (middle, high)
    return 2**middle


class Sum(nn.Module):
    """A score for each of two classes from the spikes of all neurons."""

    def __init__(self, rnn: snnlib.SpikingRNN) -> None:
        super().__init__()
        self.rnn, self.scores = rnn, nn.Linear(rnn.hidden_size, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.scores(self.rnn(x).mean(0, keepdim=True))


def step_of(size: int, connections: int, gradient: str, steps: int = STEPS) -> dict[str, float]:
    """Seconds and MB of building and of a training step, and the shares of neuron-steps."""
    torch.manual_seed(0)
    x = (torch.rand(steps, 1, INPUTS) < INPUT_RATE_OF_MANY).float()
    scale = factor(x, size, connections, gradient)
    forget_peak()
    before, start = peak(), time.perf_counter()
    rnn = rnn_of(size, connections, gradient)
    with torch.no_grad():
        rnn.layers[0].weight.mul_(scale)
    built, building = time.perf_counter() - start, peak() - before
    fired, near = shares(rnn, x)
    task = training_step(Sum(rnn), x, torch.zeros(1, dtype=torch.int64), learning_rate=LEARNING_RATE)
    forget_peak()
    begun, taken = peak(), []
    # The first makes Adam's moments.
    for _ in range(4):
        start, busy = time.perf_counter(), time.process_time()
        task()
        taken.append((time.perf_counter() - start, time.process_time() - busy))
    return {
        "neurons": size,
        "connections": connections,
        "event": gradient == "event",
        "seconds": min(wall for wall, _ in taken[1:]),
        "processor_seconds": min(busy for _, busy in taken[1:]),
        "mb": (peak() - begun) / 1e6,
        "mb_with_net": (peak() - before) / 1e6,
        "build_seconds": built,
        "build_mb": building / 1e6,
        "fired": fired,
        "near": near,
        "threads": torch.get_num_threads(),
    }


def check_bounds(found: dict[str, float]) -> list[str]:
    """Describes values above their bound."""
    bounds = [(found["fired"], 1.25 * RATE, "share with a spike")]
    if not found["event"]:
        bounds += [(found["near"], WITHIN, "share near the threshold")]
    if found["neurons"] in BOUNDS and found["connections"] == 100:
        seconds, mb = BOUNDS[int(found["neurons"])]
        bounds += [(found["seconds"], seconds, "seconds of a step"), (found["mb"], mb, "MB of a step")]
        bounds += [
            (found["build_seconds"], BUILD_SECONDS, "seconds of building"),
            (found["build_mb"], BUILD_MB, "MB of building"),
        ]
    return [
        f"{name}: expected at most {most:g}, got {value:.4g}" for value, most, name in bounds if value > most
    ]


def say(found: dict[str, float]) -> None:
    print(
        f"{found['neurons']:,.0f} neurons, {found['connections']:.0f} connections each, {found['threads']:.0f} threads",
        f"built in {found['build_seconds']:.1f} s, {found['build_mb']:.0f} MB",
        f"a step takes {found['seconds']:.3f} s, {found['processor_seconds']:.3f} s of processors",
        f"and {found['mb']:.0f} MB above the built net, {found['mb_with_net']:.0f} MB with it",
        f"{found['fired']:.1%} of neuron-steps have a spike, {found['near']:.1%} are near the threshold",
        sep="; ",
        flush=True,
    )


def grow(sizes: list[int], connections: int, threads: int) -> list[dict[str, float]]:
    """Steps of nets of growing size, each in a process of its own; prints the exponent of their time."""
    found = []
    for size in sizes:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "figures.json")
            options = ("--neurons", size, "--connections", connections, "--threads", threads, "--json", file)
            subprocess.run([sys.executable, __file__, *map(str, options)], check=False)
            found.append(json.loads(file.read_text(encoding="utf-8")))
    events = [one["neurons"] * one["fired"] for one in (found[0], found[-1])]
    times = [one["processor_seconds"] for one in (found[0], found[-1])]
    exponent = math.log(times[1] / times[0]) / math.log(events[1] / events[0])
    print(f"processor time grows with events times connections to the power of {exponent:.2f}")
    return found


def products(report: Report, turns: int, inputs: int = 100_000, fan_out: int = 100) -> None:
    """Time of the three products of a layer, and the weights that each reads in a second of a processor."""
    torch.manual_seed(0)
    layer = snnlib.SpikingLinear(inputs, inputs, connections=snnlib.Sparse(fan_out=min(fan_out, inputs)))
    weight, operator = layer.weight, layer.operator
    for steps, batch in ((100, 1), (4, 32)):
        x = (torch.rand(steps, batch, inputs) < RATE).float()
        events = x.clone().requires_grad_()
        signal = torch.randn(steps, batch, inputs)
        current, by_input = (layer_currents(part, weight, operator) for part in (x, events))
        tasks: dict[str, Task] = {
            "forward": lambda x=x: layer_currents(x, weight.detach(), operator),
            "weight gradient": lambda c=current, s=signal: torch.autograd.grad(
                c, weight, s, retain_graph=True
            ),
            "input gradient, every row": lambda c=by_input, e=events, s=signal: torch.autograd.grad(
                c, e, s, retain_graph=True
            ),
        }
        if batch == 1 and importlib.util.find_spec("brainevent") is not None:
            tasks["brainevent, forward"] = brainevent_product(operator, weight.detach(), x[:, 0])
        table = take_turns(tasks, turns)
        for name, row in table.items():
            rows = x.numel() if "every" in name else int(x.sum())
            row["weights_per_s"] = rows * len(weight) / inputs / (row["processor_ms"] / 1000) / 1e9
        report.add(f"{inputs} inputs with {fan_out} targets, T = {steps}, batch {batch}", table)


def brainevent_product(operator: SparselyConnected, weight: Tensor, x: Tensor) -> Task:
    """Returns the task of the product by brainevent, step by step."""
    import brainevent  # noqa: PLC0415
    import jax  # noqa: PLC0415

    parts = (jax.numpy.asarray(part.numpy()) for part in (weight, operator.targets, operator.starts.int()))
    rows = brainevent.CSR(tuple(parts), shape=operator.shape[::-1])
    events = [jax.numpy.asarray(step) for step in x.bool().numpy()]
    product = jax.jit(lambda step: brainevent.BinaryArray(step) @ rows)

    def run() -> None:
        for step in events:
            product(step).block_until_ready()

    return run


def beside_dense(report: Report, turns: int, quick: bool) -> None:
    """A step of the net of recurrent.py with dense and with sparse weights."""
    steps, batch, inputs = (8, 4, 30) if quick else (100, 128, 700)
    torch.manual_seed(0)
    x, y = (torch.rand(steps, batch, inputs) < INPUT_RATE).float(), torch.randint(10, (batch,))
    sizes = {24: (0.3, 0.6), 48: (0.3,)} if quick else {256: (0.02, 0.05, 0.1, 0.2, 0.5), 4096: (0.02,)}
    for hidden, densities in sizes.items():
        nets = {"dense": Ours(inputs, hidden, BUMP)}
        nets |= {
            f"{density:.0%} of the connections": sparse_of(inputs, hidden, density) for density in densities
        }
        for net in nets.values():
            scale_to_rate_(net.weight, 0.05, lambda net=net: float(net.spikes(x[:, :8]).mean()), halvings=12)
        tasks = {name: training_step(net, x, y, learning_rate=LEARNING_RATE) for name, net in nets.items()}
        title = f"one training step, {inputs} -> {hidden}, T = {steps}, batch {batch}"
        report.add(title, take_turns(tasks, turns))


def sparse_of(inputs: int, hidden: int, density: float) -> Ours:
    """Returns the net with this share of its input and recurrent connections."""
    net = Ours(inputs, hidden, BUMP)
    connections = snnlib.Sparse(density=density)
    net.input = snnlib.SpikingRNN(
        inputs,
        hidden,
        neuron=net.input.layers[0].neuron,
        connections=connections,
        recurrent_connections=connections,
    )
    return net


def main() -> None:
    wanted = parser(__doc__, turns=5)
    wanted.add_argument("--neurons", type=int, help="a training step of so many recurrent neurons")
    wanted.add_argument("--connections", type=int, default=100, help="recurrent connections of each (100)")
    wanted.add_argument("--event", action="store_true", help='learn by gradient="event"')
    wanted.add_argument("--grow", action="store_true", help="1,000 to 1,000,000 neurons")
    wanted.add_argument("--products", action="store_true", help="the three products of a layer")
    wanted.add_argument("--dense", action="store_true", help="sparse beside dense weights")
    arguments = wanted.parse_args()
    if arguments.neurons or arguments.grow:
        torch.set_num_threads(arguments.threads or torch.get_num_threads())
        sizes = [100, 200] if arguments.quick else [1_000, 10_000, 100_000, 1_000_000]
        found: Any
        wrong: list[str] = []
        if arguments.grow:
            found = grow(sizes, arguments.connections, torch.get_num_threads())
        else:
            found = step_of(
                arguments.neurons, arguments.connections, "event" if arguments.event else "surrogate"
            )
            say(found)
            wrong = check_bounds(found)
        if arguments.json:
            arguments.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
        sys.exit("\n".join(wrong) or 0)
    report = Report(arguments)
    if arguments.products or not arguments.dense:
        products(report, arguments.turns, *((200, 10) if arguments.quick else ()))
    if arguments.dense or not arguments.products:
        beside_dense(report, arguments.turns, arguments.quick)
    report.write()


if __name__ == "__main__":
    main()
