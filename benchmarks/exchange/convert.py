"""A training step of converted nets beside the originals', in turns in one process.

Usage: python benchmarks/exchange/convert.py [--turns 7] [--threads 2] [--fresh-memory] [NET ...]

Each net is converted, checked (spikes equal in evaluation mode), and trained for 20 steps beside the original from the
same weights; then both take training steps in turns, and the median over the nets is printed. The same is done with the
converted net fused (`snnlib.fuse_`): its sums are over events, in another order. On one thread times are
processor times, so that other programs on the machine do not count. Both nets keep freed memory
(`snnlib.keep_freed_memory`) unless `--fresh-memory` is given. Needs snnTorch, SpikingJelly and Norse; nets of libraries
that are not installed are left out.
"""

from __future__ import annotations

import argparse
import importlib
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

import snnlib
from snnlib.exchange.conversion.verify import run_original
from snnlib.structure.peers import clear_states

sys.path.append(str(Path(__file__).parents[1] / "cpu"))
from turns import take_turns

STEPS, BATCH = 25, 32


class Case(NamedTuple):
    """A net, an input, and whether its loop over time is the caller's."""

    library: str
    build: Callable[[Any], nn.Module]
    x: Callable[[], Tensor]
    outside: bool = False


class SnnTorchLoop(nn.Module):
    """The loop of snnTorch's tutorials, over explicit states; gives spikes and potentials of all steps."""

    def __init__(self, layers: list[nn.Module], pool: bool = False) -> None:
        super().__init__()
        self.layers, self.pool = nn.ModuleList(layers), pool

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        states: list[Any] = [None] * len(self.layers)
        spikes, potentials = [], []
        for t in range(x.shape[0]):
            now = x[t]
            for number, layer in enumerate(self.layers):
                if not hasattr(layer, "spike_grad"):
                    now = layer(now)
                    continue
                if states[number] is None:
                    start = layer.reset_mem()
                    states[number] = start if isinstance(start, tuple) else (start,)
                now, *states[number] = layer(now, *states[number])
                if type(layer).__name__.startswith("R"):
                    states[number] = [now, *states[number]]
            spikes.append(now)
            potentials.append(states[-1][-1])
        return torch.stack(spikes), torch.stack(potentials)


def frames(rate: float, *shape: int) -> Callable[[], Tensor]:
    """Makes an input at this rate."""

    def make() -> Tensor:
        return (torch.rand(STEPS, BATCH, *shape) < rate).float()

    return make


def conv_leaky(snn: Any) -> nn.Module:
    grad = importlib.import_module("snntorch.surrogate").fast_sigmoid(slope=25)
    return SnnTorchLoop(
        [
            nn.Conv2d(2, 12, 5), nn.MaxPool2d(2), snn.Leaky(0.5, spike_grad=grad),
            nn.Conv2d(12, 32, 5), nn.MaxPool2d(2), snn.Leaky(0.5, spike_grad=grad),
            nn.Flatten(), nn.Linear(32 * 5 * 5, 10), snn.Leaky(0.5, spike_grad=grad),
        ]
    )  # fmt: skip


def dense_leaky(snn: Any) -> nn.Module:
    return SnnTorchLoop(
        [nn.Flatten(), nn.Linear(784, 1000), snn.Leaky(0.95), nn.Linear(1000, 10), snn.Leaky(0.95)]
    )


def synaptic(snn: Any) -> nn.Module:
    neurons = [snn.Synaptic(0.9, 0.8) for _ in range(2)]
    return SnnTorchLoop([nn.Flatten(), nn.Linear(784, 256), neurons[0], nn.Linear(256, 10), neurons[1]])


def recurrent_leaky(snn: Any) -> nn.Module:
    hidden = snn.RLeaky(0.9, linear_features=256)
    return SnnTorchLoop([nn.Flatten(), nn.Linear(784, 256), hidden, nn.Linear(256, 10), snn.Leaky(0.9)])


def _jelly(name: str) -> Any:
    return importlib.import_module(f"spikingjelly.activation_based.{name}")


def _multi_step(net: nn.Module) -> nn.Module:
    _jelly("functional").set_step_mode(net, "m")
    return net


def csnn(_: Any) -> nn.Module:
    layer, node, atan = _jelly("layer"), _jelly("neuron").IFNode, _jelly("surrogate").ATan
    parts: list[nn.Module] = []
    for inputs in (2, 32):
        parts += [layer.Conv2d(inputs, 32, 3, padding=1, bias=False), layer.BatchNorm2d(32)]
        parts += [node(surrogate_function=atan()), layer.MaxPool2d(2, 2)]
    parts += [layer.Flatten(), layer.Linear(32 * 64, 128, bias=False), node(surrogate_function=atan())]
    return _multi_step(
        nn.Sequential(*parts, layer.Linear(128, 10, bias=False), node(surrogate_function=atan()))
    )


class SEWBlock(nn.Module):
    """The block of spike-element-wise residual nets."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        layer, node, atan = _jelly("layer"), _jelly("neuron").IFNode, _jelly("surrogate").ATan
        convs = [layer.Conv2d(channels, channels, 3, padding=1, bias=False) for _ in range(2)]
        self.conv1, self.bn1, self.sn1 = (
            convs[0],
            layer.BatchNorm2d(channels),
            node(surrogate_function=atan()),
        )
        self.conv2, self.bn2, self.sn2 = (
            convs[1],
            layer.BatchNorm2d(channels),
            node(surrogate_function=atan()),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.sn2(self.bn2(self.conv2(self.sn1(self.bn1(self.conv1(x)))))) + x


def sew(_: Any) -> nn.Module:
    layer, node = _jelly("layer"), _jelly("neuron")
    parts = [
        layer.Conv2d(2, 16, 3, padding=1, bias=False),
        layer.BatchNorm2d(16),
        node.IFNode(),
        SEWBlock(16),
    ]
    return _multi_step(nn.Sequential(*parts, layer.AvgPool2d(4), layer.Flatten(), layer.Linear(16 * 64, 10)))


def plif(_: Any) -> nn.Module:
    layer, node = _jelly("layer"), _jelly("neuron").ParametricLIFNode
    parts = [
        layer.Conv2d(2, 16, 3, padding=1, bias=False),
        layer.BatchNorm2d(16),
        node(),
        layer.MaxPool2d(2, 2),
    ]
    return _multi_step(nn.Sequential(*parts, layer.Flatten(), layer.Linear(16 * 256, 10), node()))


def jelly_recurrent(_: Any) -> nn.Module:
    layer, node = _jelly("layer"), _jelly("neuron")
    net = _multi_step(nn.Sequential(layer.Flatten(), layer.Linear(784, 128), layer.LinearRecurrentContainer(
        node.LIFNode(), 128, 128), layer.Linear(128, 10)))  # fmt: skip
    net[2].sub_module.step_mode = "s"
    # Its usual weights leave it silent.
    with torch.no_grad():
        net[2].rc.weight[:, :128] = 4 * torch.eye(128)
    return net


def norse_conv(norse: Any) -> nn.Module:
    parts = [nn.Conv2d(2, 16, 5), norse.LIFCell(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16 * 144, 10)]
    return norse.SequentialState(*parts, norse.LICell())


def norse_recurrent(norse: Any) -> nn.Module:
    return norse.SequentialState(
        nn.Flatten(), norse.LIFRecurrentCell(784, 128), nn.Linear(128, 10), norse.LICell()
    )


CASES = {
    "snntorch conv": Case("snntorch", conv_leaky, frames(0.1, 2, 34, 34)),
    "snntorch dense": Case("snntorch", dense_leaky, frames(0.1, 784)),
    "snntorch synaptic": Case("snntorch", synaptic, frames(0.1, 784)),
    "snntorch recurrent": Case("snntorch", recurrent_leaky, frames(0.1, 784)),
    "spikingjelly csnn": Case("spikingjelly", csnn, frames(0.1, 2, 32, 32)),
    "spikingjelly sew": Case("spikingjelly", sew, frames(0.1, 2, 32, 32)),
    "spikingjelly plif": Case("spikingjelly", plif, frames(0.1, 2, 32, 32)),
    "spikingjelly recurrent": Case("spikingjelly", jelly_recurrent, frames(0.1, 784)),
    "norse conv": Case("norse.torch", norse_conv, frames(0.1, 2, 28, 28), outside=True),
    "norse recurrent": Case("norse.torch", norse_recurrent, frames(0.1, 784), outside=True),
}


def loss_of(output: Any, labels: Tensor) -> Tensor:
    """Cross-entropy on the mean over time of the last output, spikes or potentials."""
    last = output[-1] if isinstance(output, tuple) else output
    return nn.functional.cross_entropy(last.mean(0), labels)


class Trainer:
    """Training steps of one net."""

    def __init__(self, net: nn.Module, run: Callable[[Tensor], Any]) -> None:
        self.net, self.run, self.optimizer = net, run, torch.optim.Adam(net.parameters(), 1e-3)

    def step(self, x: Tensor, labels: Tensor) -> float:
        loss = loss_of(self.run(x), labels)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return float(loss.detach())


def twin(case: Case, seed: int = 0) -> nn.Module:
    """The net with its first weights, the same for each call with a seed."""
    torch.manual_seed(seed)
    return case.build(importlib.import_module(case.library))


def original(case: Case, net: nn.Module) -> Trainer:
    """Training steps of a net of a peer, each from its initial states."""

    def run(x: Tensor) -> Any:
        clear_states(net)
        return run_original(net, x, case.outside)

    return Trainer(net.train(), run)


def converted(case: Case, net: nn.Module, x: Tensor, fused: bool = False) -> Trainer:
    """Training steps of the net that `snnlib.convert` makes, perhaps fused."""
    made = snnlib.convert(net, x, loop="outside" if case.outside else "inside", quiet=True)
    if fused:
        snnlib.fuse_(made)
    return Trainer(made.train(), made)


def largest_difference(trainers: tuple[Trainer, Trainer], x: Tensor, labels: Tensor) -> float:
    """Returns the largest difference of the losses in the first 20 training steps."""
    losses = [[trainer.step(x, labels) for _ in range(20)] for trainer in trainers]
    return max(abs(a - b) for a, b in zip(*losses, strict=True))


def measure(case: Case, turns: int, fused: bool) -> tuple[float, str]:
    """The ratio of the times of a step; and in words equal spikes and the largest difference of 20 losses."""
    net, other = (twin(case) for _ in range(2))
    x = case.x()
    labels = torch.randint(10, (BATCH,))
    theirs, ours = original(case, net), converted(case, other, x, fused)
    spikes = snnlib.verify_conversion(other, ours.net, x, loop="outside" if case.outside else "inside")
    difference = largest_difference((theirs, ours), x, labels)
    steps = {"ours": lambda: ours.step(x, labels), "theirs": lambda: theirs.step(x, labels)}
    figures = take_turns(steps, turns)["theirs"]
    ratio = figures["processor_ratio" if torch.get_num_threads() == 1 else "ratio"]
    return ratio, (
        f"{spikes.identical:.4%} of spikes alike, losses differ by {difference:.1e}, {ratio:.2f} times as fast"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("nets", nargs="*", choices=[*CASES, []])
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--fresh-memory", action="store_true", help="let freed memory go back to the system")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    if not arguments.fresh_memory:
        snnlib.keep_freed_memory()
    ratios: dict[bool, list[float]] = {False: [], True: []}
    for name, case in CASES.items():
        if arguments.nets and name not in arguments.nets:
            continue
        try:
            importlib.import_module(case.library)
        except ImportError:
            print(f"{name}: {case.library} is not installed")
            continue
        for fused, found in ratios.items():
            ratio, text = measure(case, arguments.turns, fused)
            found.append(ratio)
            print(f"{name}{', fused' if fused else ''}: {text}", flush=True)
    if ratios[False]:
        medians = {fused: statistics.median(found) for fused, found in ratios.items()}
        print(f"median: {medians[False]:.2f} times as fast, fused {medians[True]:.2f}")


if __name__ == "__main__":
    main()
