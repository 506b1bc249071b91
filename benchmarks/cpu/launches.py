"""Operations of a training step of the N-MNIST net as a GPU gets them: one operation, at least one kernel launch.

    python benchmarks/cpu/launches.py [--json FILE]

A GPU waits for the host where layers are small, so the number of operations bounds the time of a step. No GPU is
needed: the step runs on the device "meta", where torch infers shapes and layouts and nothing is computed, with all
kernels of CUDA but those by events, so that layers run a convolution and then a scan of neurons. Operations are those
that torch dispatches, and an op of snnlib is one. Views start no kernel; fresh memory (`memory`) and values that the
host waits for (`reads`) are counted apart. Net 12C5p1-P2-64C5-P2-10, two steps, batch 1, cross-entropy of spike counts,
Adam (`foreach`).

`layers` is `forward` and `backward` without the loss; `adam` has `zero_grad`. `watched` is what a batch has more in
which the training watch looks at the layers, counted on the CPU. `torch` is the same net of convolutions and a step
function. To count another checkout, run this file by its `.venv/bin/python`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from host import Plain, make_fire_
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from turns import Report, parser

import snnlib
from snnlib import neurons, surrogate
from snnlib.backends import native

NET, FRAME, STEPS = "12C5p1-P2-64C5-P2-10", (2, 34, 34), 2
BY_EVENTS = ("layer_forward", "event_currents")
READ, MEMORY = "_local_scalar_dense", ("empty", "new_empty")
# Operations without a kernel beside views: a question about dtypes is none.
NO_KERNEL = ("_unsafe_view", "promote_types")
# The training watch looks at the first three batches, and then at one of these.
FIRST, BATCHES = 3, 20
STAGES = ("forward", "loss", "backward", "adam")


class Operations(TorchDispatchMode):
    """Names of the operations in the context that start a kernel, and how often; memory and reads apart."""

    def __init__(self) -> None:
        super().__init__()
        self.kernels: Counter[str] = Counter()
        self.memory = self.reads = 0

    def __torch_dispatch__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = function.name().partition("::")[2].partition(".")[0]
        if name.startswith(MEMORY):
            self.memory += 1
        elif name == READ:
            self.reads += 1
        elif not function.is_view and name not in NO_KERNEL:
            self.kernels[name] += 1
        return function(*args, **(kwargs or {}))


@contextmanager
def as_on_a_gpu() -> Iterator[None]:
    """Lets ops find their kernels on any device, but for those by events."""
    kept = native.has_kernel, native.scan_pools_any_layout
    native.has_kernel = lambda name, tensor: name not in BY_EVENTS
    native.scan_pools_any_layout = lambda tensor: True
    try:
        yield
    finally:
        native.has_kernel, native.scan_pools_any_layout = kept


def our_net(neuron: neurons.Neuron, fused: bool) -> nn.Module:
    net = snnlib.models.from_notation(NET, FRAME, neuron=neuron)
    return snnlib.fuse_(net) if fused else net


def torch_net() -> nn.Module:
    pool = lambda: Plain(nn.AvgPool2d(2), False)  # noqa: E731
    return nn.Sequential(
        Plain(nn.Conv2d(2, 12, 5, padding=1, bias=False), True), pool(),
        Plain(nn.Conv2d(12, 64, 5, bias=False), True), pool(),
        nn.Flatten(2), Plain(nn.Linear(2304, 10, bias=False), True),
    )  # fmt: skip


def step_counts(
    net: nn.Module, x: Tensor, label: Tensor, optimizer: torch.optim.Optimizer
) -> list[Operations]:
    """Operations of a training step, by stage."""
    counts = [Operations() for _ in STAGES]
    forward, loss, backward, adam = counts
    with adam:
        optimizer.zero_grad()
    with forward:
        spikes = net(x)
    with loss:
        value = nn.functional.cross_entropy(spikes.sum(0), label)
        (gradient,) = torch.autograd.grad(value, spikes)
    # The graph of the layers is apart from that of the loss.
    with backward:
        spikes.backward(gradient)
    with adam:
        optimizer.step()
    return counts


def steps(net: nn.Module, device: str, number: int) -> list[list[Operations]]:
    """Operations of so many training steps."""
    torch.manual_seed(0)
    net = make_fire_(net).to(device)
    x, label = (torch.rand(STEPS, 1, *FRAME) < 0.3).float().to(device), torch.tensor([3], device=device)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-4, foreach=True)
    return [step_counts(net, x, label, optimizer) for _ in range(number)]


def count(make: Callable[[], nn.Module]) -> tuple[dict[str, float], Counter[str]]:
    """Returns a row of the table, and how often its layers have each operation."""
    with as_on_a_gpu():
        # Adam makes its moments in the first step.
        stages = steps(make(), "meta", 2)[1]
    on_cpu = [
        sum(stage.kernels.total() for stage in batch) for batch in steps(make(), "cpu", BATCHES)[FIRST:]
    ]
    forward, loss, backward, adam = (stage.kernels.total() for stage in stages)
    row = {
        "layers": forward + backward,
        "forward": forward,
        "backward": backward,
        "loss": loss,
        "adam": adam,
        "memory": sum(stage.memory for stage in stages),
        "reads": sum(stage.reads for stage in stages),
        "watched": max(on_cpu) - min(on_cpu),
    }
    return row, stages[0].kernels + stages[2].kernels


def main() -> None:
    report = Report(parser(__doc__).parse_args())
    atan = surrogate.ATan()
    nets: dict[str, Callable[[], nn.Module]] = {
        "torch": torch_net,
        "snnlib, SRM": lambda: our_net(neurons.SRM(), False),
        "snnlib, SRM, fused": lambda: our_net(neurons.SRM(), True),
        "snnlib, LIF": lambda: our_net(neurons.LIF(2.0, surrogate=atan), False),
        "snnlib, LIF, fused": lambda: our_net(neurons.LIF(2.0, surrogate=atan), True),
    }
    rows, names = {}, {}
    for name, make in nets.items():
        rows[name], names[name] = count(make)
    report.add("operations of a training step", rows)
    for name, counted in names.items():
        print(f"{name}: " + ", ".join(f"{number} {what}" for what, number in counted.most_common()))
    report.write()


if __name__ == "__main__":
    main()
