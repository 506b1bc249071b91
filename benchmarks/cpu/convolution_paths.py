"""Microseconds of every path of a convolution over a table of shapes, and how often the chosen path is the faster one.

    python benchmarks/cpu/convolution_paths.py [--frames 1 4 32 1500] [--rates 0.03 0.1 0.3] [--threads 1] [--json FILE]

Currents, gradient of the input and gradient of the weight of layers without neurons, as nets with batch norm run them:
by events, tap by tap or from rows, and densely by torch, by a product per kernel element or by Winograd's algorithm.
Processor time, least of some calls. The choice of `backends/algorithm.py` counts as right if its time is within a tenth
of the least, or within 20 us of it: a call's own cost. The last line says how often, and names the worst.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator

import torch
from torch import Tensor
from turns import Report, Table, Task, parser

from snnlib.backends import algorithm, dense
from snnlib.backends.arguments import LayerArgs
from snnlib.backends.geometry import ConvOptions
from snnlib.ops import conv_call, currents, element_products, torch_conv, winograd

# Input and output channels, size of the image and of the kernel, stride.
SHAPES = (
    *(
        (width, width, size, 3, 1)
        for width, size in ((512, 1), (512, 2), (512, 4), (256, 2), (256, 4), (256, 8))
    ),
    *(
        (width, width, size, 3, 1)
        for width, size in ((128, 4), (128, 8), (128, 16), (64, 8), (64, 16), (32, 8))
    ),
    *((32, 64, 16, 3, 1), (16, 16, 8, 3, 1), (2, 64, 32, 3, 1), (3, 64, 32, 7, 2), (12, 64, 12, 5, 1)),
    *((64, 128, 8, 3, 2), (128, 256, 8, 3, 2), (256, 512, 4, 3, 2), (256, 512, 2, 3, 2), (64, 128, 8, 1, 2)),
    *(
        (256, 512, 4, 1, 2),
        (128, 128, 8, 1, 1),
        (512, 512, 2, 1, 1),
        (64, 256, 8, 1, 1),
        (4096, 256, 1, 1, 1),
    ),
    *(
        (256, 256, 1, 1, 1),
        (1024, 1024, 1, 1, 1),
        (128, 11, 1, 1, 1),
        (700, 256, 1, 1, 1),
        (384, 1536, 1, 1, 1),
    ),
)
# A shape takes at most this many multiply-adds.
MOST = 4e9
# Seconds for a figure, and microseconds that do not matter.
BUDGET, NOISE = 0.03, 20.0


def least_us(task: Task) -> float:
    task()
    best, spent = float("inf"), 0.0
    while spent < BUDGET:
        start = time.process_time()
        task()
        once = time.process_time() - start
        best, spent = min(best, once), spent + max(once, 1e-5)
    return best * 1e6


def tasks(call: LayerArgs, signal: Tensor) -> dict[tuple[str, str], Task]:
    """Returns every path of each pass of a layer without neurons."""
    x, weight, options, g = call.x, call.weight, call.options, call.geometry
    frames, signals = x.flatten(0, 1), signal.flatten(0, 1)
    plan, size = currents.plan_of(call), tuple(signal.shape[3:])

    def weight_by_torch() -> Tensor:
        mask = [False, True, False]
        return torch_conv._convolution_backward(signal, x, weight, options, mask)[1].contiguous()

    found: dict[tuple[str, str], Task] = {
        ("currents", "events"): lambda: plan.by_events(x, weight),
        ("weight", "taps"): lambda: plan.weight_gradient_by_taps(signal, x, weight),
        ("currents", "torch"): lambda: torch_conv._convolve(x, weight, options),
        ("input", "torch"): lambda: torch_conv._convolution_backward(
            signal, x, weight, options, [True, False, False]
        ),
        ("weight", "torch"): weight_by_torch,
        ("currents", "elements"): lambda: element_products.currents(frames, weight, size, options),
        ("input", "elements"): lambda: element_products.input_gradient(signals, weight, x.shape[3:], options),
        ("weight", "elements"): lambda: element_products.weight_gradient(signals, frames, weight, options),
    }
    if dense.is_product(g):
        found |= {
            ("currents", "elements"): lambda: torch_conv.currents(x, weight, options),
            ("input", "elements"): lambda: torch_conv.field(signal, x, weight, options),
            ("weight", "elements"): lambda: torch_conv.weight_gradient(signal, x, weight, options),
        }
    if algorithm.windows_are_rows(g):
        gradient = conv_call.GradientCall(call, None, conv_call.SavedRecord(signal))
        found["weight", "inputs"] = lambda: gradient.by_events(True, False, True, None)
    if dense.fits_winograd(g, "currents"):
        padding = options.padding[0]
        found["currents", "winograd"] = lambda: winograd.convolve(frames, weight, size, padding)
        found["input", "winograd"] = lambda: winograd.adjoint(signals, weight, x.shape[3:], padding)
    return found


def chosen(call: LayerArgs) -> dict[str, str]:
    """Returns the path that the library takes in each pass."""
    g, dense_of = call.geometry, {of: dense.cheapest(call.geometry, of).algorithm for of in dense.PASSES}
    forward = algorithm.path(call.x, g, streaming=False, neurons=False)
    weight = algorithm.decide_for_signal(call.x, g)
    return {
        "currents": "events" if forward == "events" else dense_of["currents"],
        "input": dense_of["input"],
        "weight": dense_of["weight"] if weight == "dense" else weight,
    }


def calls(frames: int, rates: list[float]) -> Iterator[tuple[str, LayerArgs, Tensor]]:
    generator = torch.Generator().manual_seed(0)
    batch = max(1, frames // 4)
    steps = frames // batch
    for inputs, outputs, size, kernel, stride in SHAPES:
        padding = kernel // 2
        out = (size + 2 * padding - kernel) // stride + 1
        if frames * out * out * kernel * kernel * inputs * outputs > MOST:
            continue
        options = ConvOptions((stride, stride), (padding, padding), (1, 1), 1)
        weight = torch.randn(outputs, inputs, kernel, kernel, generator=generator)
        for rate in rates:
            events = torch.rand(steps, batch, size, size, inputs, generator=generator) < rate
            x = events.float().permute(0, 1, 4, 2, 3)
            signal = torch.randn(steps, batch, out, out, outputs, generator=generator).permute(0, 1, 4, 2, 3)
            name = (
                f"{frames} x {inputs}->{outputs} on {size}x{size}, {kernel}x{kernel} by {stride}, {rate:.0%}"
            )
            yield name, LayerArgs(x, weight, options, (1, 1)), signal


def main() -> None:
    wanted = parser(__doc__)
    wanted.add_argument("--frames", type=int, nargs="+", default=[1, 4, 16, 32, 128, 400, 1500])
    wanted.add_argument("--rates", type=float, nargs="+", default=[0.03, 0.1, 0.3])
    arguments: argparse.Namespace = wanted.parse_args()
    report = Report(arguments)
    losses: list[tuple[float, str]] = []
    for frames in [4] if arguments.quick else arguments.frames:
        for name, call, signal in calls(frames, arguments.rates[:1] if arguments.quick else arguments.rates):
            table: Table = {}
            choice = chosen(call)
            for (of, path), task in tasks(call, signal).items():
                mark = " (chosen)" if choice[of] == path else ""
                table[f"{of}, {path}{mark}"] = {"step_us": least_us(task)}
            for of in choice:
                times = {row: cells["step_us"] for row, cells in table.items() if row.startswith(of)}
                taken = next(value for row, value in times.items() if row.endswith("(chosen)"))
                over = taken / min(times.values()) if taken > min(times.values()) + NOISE else 1.0
                losses.append((over, f"{name}, {of}"))
            report.add(name, table)
    right = sum(over <= 1.1 for over, _ in losses)
    print(f"\n{right} of {len(losses)} choices are the fastest path or within a tenth of it")
    for over, name in sorted(losses, reverse=True)[:20]:
        print(f"{over:5.2f} times the least: {name}")
    report.write()


if __name__ == "__main__":
    main()
