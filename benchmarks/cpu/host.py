"""Microseconds of the host per call of a layer, per step of a stream and per training step, on tiny tensors.

    PYTHONPATH=PEERS python benchmarks/cpu/host.py [--beside CHECKOUT] [--turns 5] [--json FILE]

Tensors are so small that kernels hardly count: the time goes into Python, torch's dispatch and calls of kernels. Layers
have 4 steps, one sample and 2 channels of 6x6, with a gradient for the input; nets are 8C5-P2-16C3-P2-10 on 16x16, with
weights that let all layers fire. Times are processor times of the calling thread, which other processes hardly
lengthen: the least, over blocks and turns, of the 10th percentile of a block's calls. `calls` are calls of Python and C
functions that `sys.setprofile` sees. Ratios are to the first row of a table. SpikingJelly and snnTorch take part where
they are installed; SpikingJelly's state is reset before each call of a layer. One thread, unless `--threads` says
otherwise.

`--beside CHECKOUT` times another checkout of snnlib in turns, each in processes of its own: by `CHECKOUT/.venv`, as
`make env` builds it. `of beside` is this checkout's time over that one's.
"""

from __future__ import annotations

import gc
import importlib.util
import json
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import snnlib
from snnlib import neurons, surrogate

STEPS, CHANNELS, SIZE, OUTPUTS = 4, 2, 6, 4
FEATURES = CHANNELS * SIZE * SIZE
# Calls of a block and blocks of a turn; those of a quick run.
CALLS, BLOCKS, QUICK = 200, 3, (3, 1)
NET, FRAME, NET_STEPS, DENSITY = "8C5-P2-16C3-P2-10", (2, 16, 16), 20, 0.05
OURS = "snnlib "
CONVOLUTION, PRODUCT, NEURONS = "convolution and neurons", "product and neurons", "neurons alone"
MEANS, MAXIMA = "mean pool", "largest of a pool"
clock: Callable[[], int] = time.thread_time_ns
Row = dict[str, float]
Layers = dict[str, tuple[tuple[int, ...], dict[str, Callable[[], nn.Module]]]]
Tables = dict[str, dict[str, Row]]


def installed(library: str) -> bool:
    return importlib.util.find_spec(library.lower()) is not None


class Surrogate(torch.autograd.Function):
    """Step function with a gradient: the least that a spiking neuron without a state asks of torch."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return (x > 0).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad * ctx.saved_tensors[0]


class Plain(nn.Module):
    """A module of torch, all steps at once, and the step function."""

    def __init__(self, module: nn.Module, fires: bool) -> None:
        super().__init__()
        self.module, self.fires = module, fires

    def forward(self, x: Tensor) -> Tensor:
        y = self.module(x.flatten(0, 1))
        return (Surrogate.apply(y) if self.fires else y).unflatten(0, x.shape[:2])


class Jelly(nn.Module):
    """Layers of SpikingJelly in multi-step mode, from a fresh state in each call."""

    def __init__(self, *modules: nn.Module) -> None:
        super().__init__()
        from spikingjelly.activation_based import functional  # noqa: PLC0415

        self.modules_in_order, self.reset = nn.Sequential(*modules), functional.reset_net
        functional.set_step_mode(self, "m")

    def forward(self, x: Tensor) -> Tensor:
        self.reset(self.modules_in_order)
        return self.modules_in_order(x)


class Leaky(nn.Module):
    """snnTorch's neurons behind a module, in its loop over the steps."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        import snntorch  # noqa: PLC0415

        self.module = module
        self.neuron = snntorch.Leaky(beta=0.5, spike_grad=snntorch.surrogate.atan())

    def forward(self, x: Tensor) -> Tensor:
        state, out = self.neuron.init_leaky(), []
        for step in x:
            spikes, state = self.neuron(self.module(step), state)
            out.append(spikes)
        return torch.stack(out)


def lif(bump: surrogate.Surrogate | None = None) -> neurons.LIF:
    return neurons.LIF(2.0, surrogate=bump or surrogate.Triangle())


def conv(neuron: neurons.Neuron) -> nn.Module:
    return snnlib.SpikingConv2d(CHANNELS, OUTPUTS, 3, padding=1, neuron=neuron)


def linear(**options: Any) -> nn.Module:
    return snnlib.SpikingLinear(FEATURES, OUTPUTS, **{"neuron": lif(), **options})


def torch_conv() -> nn.Module:
    return nn.Conv2d(CHANNELS, OUTPUTS, 3, padding=1, bias=False)


def torch_linear() -> nn.Module:
    return nn.Linear(FEATURES, OUTPUTS, bias=False)


def our_layers() -> Layers:
    """Tables by title, with the shape of a step and rows by name, of torch and of snnlib."""
    frames = (CHANNELS, SIZE, SIZE)
    return {
        CONVOLUTION: (
            frames,
            {
                "torch conv2d and Function": lambda: Plain(torch_conv(), True),
                "snnlib SpikingConv2d, LIF": lambda: conv(lif()),
                "snnlib SpikingConv2d, LIF, ATan": lambda: conv(lif(surrogate.ATan())),
                "snnlib SpikingConv2d, SRM": lambda: conv(neurons.SRM()),
                "snnlib SpikingConv2d, SRM, and pool, fused": lambda: snnlib.fuse_(
                    nn.Sequential(conv(neurons.SRM()), snnlib.SpikeAvgPool2d(2))
                ),
                "snnlib SpikingConv2d, CubaLIF": lambda: conv(neurons.CubaLIF(5.0, 3.0)),
            },
        ),
        PRODUCT: (
            (FEATURES,),
            {
                "torch linear and Function": lambda: Plain(torch_linear(), True),
                "snnlib SpikingLinear, LIF": linear,
                "snnlib SpikingLinear, SRM": lambda: linear(neuron=neurons.SRM()),
                "snnlib SpikingLinear, delays": lambda: linear(delays=snnlib.Delays(3)),
                "snnlib SpikingLinear, sparse": lambda: linear(connections=snnlib.Sparse(density=0.2)),
                "snnlib SpikingRNN": lambda: snnlib.SpikingRNN(
                    FEATURES, OUTPUTS, neuron=lif(surrogate.Triangle(height=0.4))
                ),
            },
        ),
        NEURONS: (
            frames,
            {
                "torch Function": lambda: Plain(nn.Identity(), True),
                "snnlib LIF": lif,
                "snnlib SRM": neurons.SRM,
            },
        ),
        MEANS: (
            frames,
            {
                "torch AvgPool2d": lambda: Plain(nn.AvgPool2d(2), False),
                "snnlib SpikeAvgPool2d": lambda: snnlib.SpikeAvgPool2d(2),
            },
        ),
        MAXIMA: (
            frames,
            {
                "torch MaxPool2d": lambda: Plain(nn.MaxPool2d(2), False),
                "snnlib SpikeMaxPool2d": lambda: snnlib.SpikeMaxPool2d(2),
            },
        ),
    }


def add_peers(tables: Layers) -> None:
    """Adds rows of other libraries where they are installed."""
    if installed("SpikingJelly"):
        from spikingjelly.activation_based import layer  # noqa: PLC0415

        jelly = {
            CONVOLUTION: lambda: (layer.Conv2d(CHANNELS, OUTPUTS, 3, padding=1, bias=False), jelly_lif()),
            PRODUCT: lambda: (layer.Linear(FEATURES, OUTPUTS, bias=False), jelly_lif()),
            NEURONS: lambda: (jelly_lif(),),
            MEANS: lambda: (layer.AvgPool2d(2),),
            MAXIMA: lambda: (layer.MaxPool2d(2),),
        }
        for title, modules in jelly.items():
            tables[title][1]["SpikingJelly"] = lambda modules=modules: Jelly(*modules())
    if installed("snnTorch"):
        tables[CONVOLUTION][1]["snnTorch"] = lambda: Leaky(torch_conv())
        tables[PRODUCT][1]["snnTorch"] = lambda: Leaky(torch_linear())


def jelly_lif() -> nn.Module:
    from spikingjelly.activation_based import neuron  # noqa: PLC0415
    from spikingjelly.activation_based import surrogate as theirs  # noqa: PLC0415

    return neuron.LIFNode(tau=2.0, surrogate_function=theirs.ATan())


def jelly_net() -> nn.Module:
    """NET in SpikingJelly, in single-step mode."""
    from spikingjelly.activation_based import layer  # noqa: PLC0415

    return nn.Sequential(
        layer.Conv2d(2, 8, 5, bias=False), jelly_lif(), layer.AvgPool2d(2),
        layer.Conv2d(8, 16, 3, bias=False), jelly_lif(), layer.AvgPool2d(2),
        layer.Flatten(), layer.Linear(64, 10, bias=False), jelly_lif(),
    )  # fmt: skip


def our_net(neuron: neurons.Neuron) -> nn.Module:
    return snnlib.fuse_(snnlib.models.from_notation(NET, FRAME, neuron=neuron))


@torch.no_grad()
def make_fire_(net: nn.Module) -> nn.Module:
    """Takes absolute values of weights, so that events reach the last layer."""
    for weight in net.parameters():
        weight.abs_()
    return net


def least(task: Callable[[], object], calls: int, blocks: int) -> float:
    """Microseconds of a call by the calling thread: the least 10th percentile of a block."""
    (figure,) = least_of(lambda: (timed(task),), calls, blocks)
    return figure


def least_of(measure: Callable[[], tuple[int, ...]], calls: int, blocks: int) -> tuple[float, ...]:
    """Microseconds of each stage that `measure` times in nanoseconds."""
    found = []
    for block in range(blocks + 1):
        # The first block warms up.
        stages = zip(*(measure() for _ in range(calls)), strict=True)
        if block:
            found.append([sorted(stage)[calls // 10] / 1000 for stage in stages])
    return tuple(map(min, zip(*found, strict=True)))


def timed(task: Callable[[], object]) -> int:
    start = clock()
    task()
    return clock() - start


def calls_of(task: Callable[[], object]) -> int:
    """Counts calls of Python and C functions."""
    number = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal number
        number += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        task()
    finally:
        sys.setprofile(None)
    return number


def layer_row(module: nn.Module, x: Tensor, calls: int, blocks: int) -> Row:
    """Forward and backward pass in training, forward pass in evaluation, and calls of functions."""
    made: list[Tensor] = []

    def forward() -> None:
        made[:] = [module(x)]

    forward()
    gradient = torch.ones_like(made[0])

    def backward() -> None:
        made[0].backward(gradient)

    there, back = least_of(lambda: (timed(forward), timed(backward)), calls, blocks)
    row = {"forward_us": there, "backward_us": back}
    counts = {"forward_calls": calls_of(forward), "backward_calls": calls_of(backward)}
    module.eval()
    with torch.no_grad():
        row["evaluation_us"] = least(forward, calls, blocks)
    return row | counts


def net_tables(peers: bool, calls: int, blocks: int) -> Tables:
    """A step of a stream and a training step, at batch 1."""
    streams, steps = {}, {}
    x = (torch.rand(NET_STEPS, 1, *FRAME) < DENSITY).float()
    for name, neuron in (("LIF", lif()), ("SRM", neurons.SRM())):
        net = make_fire_(our_net(neuron))
        steps[OURS + name] = {"step_us": least(training_step(net, x), calls // 4 + 1, blocks)}
        stream = snnlib.nn.Stream(net.eval())
        with torch.no_grad():
            streams[OURS + name] = {"step_us": least(lambda stream=stream: stream(x[:1]), calls, blocks)}
    if peers and installed("SpikingJelly"):
        from spikingjelly.activation_based import functional  # noqa: PLC0415

        net = make_fire_(jelly_net()).eval()
        with torch.no_grad():
            theirs = {"SpikingJelly": {"step_us": least(lambda: net(x[0]), calls, blocks)}}
        streams = theirs | streams
        functional.reset_net(net)
        functional.set_step_mode(net.train(), "m")
        task = training_step(net, x, functional.reset_net)
        steps = {"SpikingJelly": {"step_us": least(task, calls // 4 + 1, blocks)}} | steps
    return {
        f"step of a stream, {NET}, batch 1": streams,
        f"training step, {NET}, T = {NET_STEPS}, batch 1": steps,
    }


def training_step(net: nn.Module, x: Tensor, reset: Callable[[nn.Module], object] = id) -> Callable[[], None]:
    """Forward and backward pass with cross-entropy of spike counts, and Adam."""
    optimizer, label = torch.optim.Adam(net.parameters(), lr=1e-4), torch.tensor([3])

    def step() -> None:
        reset(net)
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(x).sum(0), label).backward()
        optimizer.step()

    return step


def measure(peers: bool, calls: int, blocks: int) -> Tables:
    """All tables, of this process's snnlib, and with `peers` of the other libraries."""
    tables = our_layers()
    if peers:
        add_peers(tables)
    gc.disable()
    found: Tables = {}
    for title, (shape, rows) in tables.items():
        found[title] = {}
        for name, make in rows.items():
            torch.manual_seed(0)
            x = (torch.rand(STEPS, 1, *shape) < 0.3).float().requires_grad_()
            found[title][name] = layer_row(make(), x, calls, blocks)
            gc.collect()
    found |= net_tables(peers, calls, blocks)
    gc.enable()
    return found


def measured_by(python: str | Path, peers: bool, size: tuple[int, int]) -> tuple[str, Tables]:
    """The kernels in use and what `measure` finds, in a process of its own."""
    command = [str(python), __file__, "--measure", json.dumps([torch.get_num_threads(), peers, *size])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr}")
    path, found = json.loads(done.stdout.splitlines()[-1])
    return path, found


def merge_least(found: Tables, turn: Tables) -> None:
    """Keeps the lesser time of each figure in `found`."""
    for title, rows in turn.items():
        for name, row in rows.items():
            kept = found.setdefault(title, {}).setdefault(name, row)
            kept |= {key: min(value, kept[key]) for key, value in row.items()}


def add_ratios(table: dict[str, Row], other: dict[str, Row]) -> dict[str, Row]:
    """Adds ratios to the first row, and to the same row of the other checkout."""
    first, result = next(iter(table.values())), {}
    for name, row in table.items():
        result[name] = {}
        for key, value in row.items():
            result[name][key] = value
            if key.endswith("_us") and key != "evaluation_us":
                result[name][key.replace("_us", "_ratio")] = value / first[key]
            if key.endswith("_us") and name in other:
                result[name][key.replace("_us", "_beside")] = value / other[name][key]
    return result


def main() -> None:
    from turns import Report, parser  # noqa: PLC0415

    wanted = parser(__doc__, turns=5)
    wanted.add_argument("--beside", type=Path, metavar="CHECKOUT", help="another checkout, in turns")
    arguments = wanted.parse_args()
    arguments.threads = arguments.threads or 1
    report = Report(arguments)
    size = QUICK if arguments.quick else (CALLS, BLOCKS)
    ours: Tables = {}
    theirs: Tables = {}
    for _ in range(arguments.turns):
        if arguments.beside:
            merge_least(ours, measured_by(sys.executable, True, size)[1])
            path, turn = measured_by(arguments.beside / ".venv" / "bin" / "python", False, size)
            merge_least(theirs, turn)
            report.facts["beside"] = f"{arguments.beside}, {path}"
        else:
            merge_least(ours, measure(True, *size))
    print(f"beside: {report.facts.get('beside', 'none')}")
    for title, table in ours.items():
        report.add(title, add_ratios(table, theirs.get(title, {})))
    report.write()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        warnings.simplefilter("ignore")
        threads, *how = json.loads(sys.argv[2])
        torch.set_num_threads(threads)
        print(json.dumps([snnlib.backends.native.explain_path()[1], measure(*how)]))
    else:
        main()
