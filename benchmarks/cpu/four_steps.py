"""Milliseconds of a training step of SpikingJelly's own nets at T = 4: as they are, converted, and fused.

    PYTHONPATH=PEERS python benchmarks/cpu/four_steps.py [--net sew18 vgg11] [--image 64] [--batch 8] [--threads 1]
        [--evaluation] [--calls] [--peak] [--json FILE]

An image repeated over four steps, ATan neurons (SpikingJelly's LIFNode), batch norm, cross-entropy of the mean output,
SGD. Rows: SpikingJelly in both layouts, `snnlib.convert(net, x)`, and `snnlib.fuse_` of it in both layouts of weights;
ratios are to the first. The last line of a table divides the time of SpikingJelly's faster layout by that of the fused
net in its faster one, by processor time, least of the turns. `--evaluation` times forward passes without gradients in
evaluation mode; `--calls` counts the Python and C functions that `sys.setprofile` sees in one warm step; `--peak`
measures peak memory, each row in a process of its own.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any

import torch
from peak_memory import peak_apart, print_peak
from torch import Tensor, nn
from turns import Report, Table, Task, parser, take_turns

import snnlib

STEPS, CLASSES = 4, 10
PLANES, LAST = "SpikingJelly", "SpikingJelly, channels-last"
CONVERTED, FUSED, FUSED_LAST = "snnlib, converted", "snnlib, fused", "snnlib, fused, channels-last"
ROWS = (PLANES, LAST, CONVERTED, FUSED, FUSED_LAST)
_BASE = "spikingjelly.activation_based"


def module_of(name: str) -> Any:
    """Returns a module of SpikingJelly; a stand-in gives the one function of torchvision that its nets import."""
    if "torchvision" not in sys.modules and importlib.util.find_spec("torchvision") is None:
        loader: Any = ModuleType("torchvision._internally_replaced_utils")
        loader.load_state_dict_from_url = None
        sys.modules |= {"torchvision": ModuleType("torchvision"), loader.__name__: loader}
    return importlib.import_module(f"{_BASE}.{name}")


def _fire() -> dict[str, Any]:
    atan = module_of("surrogate").ATan()
    return {
        "spiking_neuron": module_of("neuron").LIFNode,
        "surrogate_function": atan,
        "detach_reset": True,
    }


def _vgg11() -> nn.Module:
    """VGG11 with the small classifier of nets for CIFAR."""
    layer, model = module_of("layer"), module_of("model.spiking_vgg")
    net: nn.Module = model.spiking_vgg11_bn(num_classes=CLASSES, **_fire())
    net.avgpool = layer.AdaptiveAvgPool2d((1, 1))
    net.classifier = nn.Sequential(layer.Linear(512, CLASSES))
    return net


NETS: dict[str, Callable[[], nn.Module]] = {
    "sew18": lambda: module_of("model.sew_resnet").sew_resnet18(num_classes=CLASSES, cnf="ADD", **_fire()),
    "resnet18": lambda: module_of("model.spiking_resnet").spiking_resnet18(num_classes=CLASSES, **_fire()),
    "ms18": lambda: module_of("model.ms_resnet").ms_resnet18(num_classes=CLASSES),
    "vgg11": _vgg11,
    "spikformer": lambda: module_of("model.spikformer").spikformer_cifar10(num_classes=CLASSES),
}


def make_task(row: str, name: str, image: int, batch: int, training: bool) -> Task:
    """Returns the training step, or the forward pass, of a row of the table."""
    functional = module_of("functional")
    torch.manual_seed(0)
    net = NETS[name]()
    functional.set_step_mode(net, "m")
    generator = torch.Generator().manual_seed(1)
    frames = torch.rand(batch, 3, image, image, generator=generator).repeat(STEPS, 1, 1, 1)
    y = torch.randint(0, CLASSES, (batch,), generator=generator)
    if row == LAST:
        net = net.to(memory_format=torch.channels_last)
        frames = frames.contiguous(memory_format=torch.channels_last)
    x = frames.unflatten(0, (STEPS, batch))
    if row in (CONVERTED, FUSED, FUSED_LAST):
        net = snnlib.convert(net, x, quiet=True)
    if row in (FUSED, FUSED_LAST):
        net = snnlib.fuse_(net, x)
    if row == FUSED_LAST:
        net = net.to(memory_format=torch.channels_last)
    reset = partial(functional.reset_net, net) if row in (PLANES, LAST) else lambda: None
    net.train(training)
    optimiser = torch.optim.SGD(net.parameters(), 1e-3)

    def output() -> Tensor:
        reset()
        out: Tensor = net(x)
        return out.mean(0) if out.dim() == 3 else out

    def step() -> None:
        optimiser.zero_grad()
        nn.functional.cross_entropy(output(), y).backward()
        optimiser.step()

    return step if training else torch.no_grad()(output)


def calls_of(task: Task) -> int:
    """Returns the calls of Python and C functions in one run of a warm task."""
    for _ in range(3):
        task()
    count = 0

    def counted(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(counted)
    try:
        task()
    finally:
        sys.setprofile(None)
    return count


def quotient(table: Table) -> float:
    """Returns by which factor the fused net is faster than SpikingJelly, each in its faster layout."""
    theirs, ours = (
        min(table[row]["least_ms"] for row in rows if row in table)
        for rows in ((PLANES, LAST), (FUSED, FUSED_LAST))
    )
    return theirs / ours


def main() -> None:
    wanted = parser(__doc__, turns=7)
    wanted.add_argument("--net", nargs="+", choices=NETS, default=["sew18"])
    wanted.add_argument("--image", type=int, default=32, help="pixels of a side (default 32)")
    wanted.add_argument("--batch", type=int, default=8)
    wanted.add_argument("--rows", nargs="+", choices=ROWS, default=ROWS)
    wanted.add_argument("--evaluation", action="store_true", help="forward passes in evaluation mode")
    wanted.add_argument("--calls", action="store_true", help="count the calls of a warm step")
    wanted.add_argument("--peak", action="store_true", help="measure peak memory")
    arguments = wanted.parse_args()
    report = Report(arguments)
    if importlib.util.find_spec("spikingjelly") is None:
        print("SpikingJelly: not installed, nothing to time")
        return
    batch = 1 if arguments.quick else arguments.batch
    for name in arguments.net:
        size = name, arguments.image, batch, not arguments.evaluation
        tasks = {row: make_task(row, *size) for row in arguments.rows}
        table = take_turns(tasks, arguments.turns)
        for row, task in tasks.items():
            if arguments.calls:
                table[row]["python_calls"] = calls_of(task)
            if arguments.peak:
                table[row]["peak_mb"] = peak_apart(__file__, (row, *size), not arguments.fresh_memory)
        what = "forward pass" if arguments.evaluation else "training step"
        report.add(f"one {what} of {name}, {arguments.image}x{arguments.image}, batch {batch}", table)
        if {FUSED, FUSED_LAST} & set(table) and {PLANES, LAST} & set(table):
            print(f"{FUSED}: {quotient(table):.2f} times as fast as SpikingJelly's faster layout")
    report.write()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--task"]:
        (task_row, *_), *_ = torch.load(sys.argv[2], weights_only=False)
        print_peak(sys.argv[2], make_task, (task_row, "sew18", 32, 1, True))
    else:
        main()
