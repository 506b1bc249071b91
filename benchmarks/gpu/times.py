"""Stages that measure: medians of repeats in one process, after a warm-up, timed with CUDA events.

Kernels are timed behind a GPU that is kept busy, so that the interval holds no time of the host.
"""

from __future__ import annotations

import copy
import math
import statistics
import time
from collections.abc import Callable
from itertools import product
from typing import Any

import torch
from net_checks import captured
from op_checks import numbers, op_calls
from stages import Results, Setting, note
from torch import Tensor, nn

import snnlib
from snnlib import functional as F
from snnlib import neurons, surrogate

CONSTANTS = (8.0, 4.0, 4.0, 4.0)
# Rows, columns and channels of a frame.
CELLS = (40, 100, 64)
# Clock cycles of a GPU, about 0.3 ms: longer than the host takes to queue one call.
_BUSY_CYCLES = 600_000


def median_ms(
    run: Setting, function: Callable[[], object], repeats: int = 20, *, with_host: bool = False
) -> float:
    """Milliseconds of one call on the device; `with_host` leaves in the time that the device waits for the host."""
    for _ in range(1 if run.small else 3):
        function()
    times = []
    for _ in range(1 if run.small else repeats):
        if run.on_gpu:
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            if not with_host:
                torch.cuda._sleep(_BUSY_CYCLES)
            start.record()
            function()
            end.record()
            end.synchronize()
            times.append(start.elapsed_time(end))
        else:
            begin = time.perf_counter()
            function()
            times.append((time.perf_counter() - begin) * 1000)
    return statistics.median(times)


def _rates(run: Setting, dtype: torch.dtype, samples: int) -> Results:
    """Calls by name: GB/s of the tensors that must be read and written once, and their share of a copy's."""
    generator = torch.Generator(run.device).manual_seed(1)
    # Channels-last, as layers convolve on a GPU.
    shape = (30, samples, *CELLS)
    current, q = (
        torch.randn(shape, generator=generator, device=run.device).to(dtype).movedim(4, 2) for _ in range(2)
    )
    limit = torch.ones((), device=run.device)
    neuron = (current, limit, None, *CONSTANTS, 0)
    spikes, _ = op_calls.srm_forward(*neuron, False)
    frames, window = spikes.flatten(0, 1), ([2, 2], [2, 2], [0, 0], False)
    means = op_calls.spike_avg_pool(frames, *window, True, None)
    grad = means.unflatten(0, shape[:2])
    out = torch.empty_like(current)
    neuron_model = snnlib.neurons.LIF()
    dynamics = neuron_model.dynamics(neuron_model.constants())
    assert dynamics is not None
    kernel = dynamics.kernel(torch.float32, torch.device(run.device))
    scan = (current, kernel.constants, None, kernel.flags, 0)
    # Name: (tensors of the currents' size that move, call).
    calls: dict[str, tuple[float, Callable[[], object]]] = {
        "copy": (2, lambda: out.copy_(current)),
        "SRM forward": (2, lambda: op_calls.srm_forward(*neuron, False)),
        "SRM backward": (4, lambda: op_calls.srm_backward(q, *neuron, True, True)),
        "SRM backward, weights only": (3, lambda: op_calls.srm_backward(q, *neuron, True, False)),
        "LIF forward": (2, lambda: op_calls.scan_forward(*scan)),
        "LIF backward": (3, lambda: op_calls.scan_backward(q, None, *scan, False)),
        "SRM and pool forward": (1.25, lambda: op_calls.srm_pool_forward(current, limit, *CONSTANTS[:3], 0)),
        "SRM and pool backward": (
            3.25,
            lambda: op_calls.srm_pool_backward(grad, current, limit, *CONSTANTS, 0, True, True),
        ),
        "LIF and pool forward": (1.25, lambda: op_calls.scan_pool_forward(*scan)),
        "LIF and pool backward": (2.25, lambda: op_calls.scan_pool_backward(grad, None, *scan)),
        "pool forward, 2x2": (1.25, lambda: op_calls.spike_avg_pool(frames, *window, True, None)),
        "pool backward, 2x2": (2.25, lambda: op_calls.spike_avg_pool_backward(means, frames, *window)),
    }
    nbytes = current.numel() * current.element_size()
    rates = {name: tensors * nbytes / median_ms(run, call) / 1e6 for name, (tensors, call) in calls.items()}
    kind = str(dtype).removeprefix("torch.")
    results: Results = {f"spikes per neuron and step, {kind}": round(spikes.float().mean().item(), 4)}
    for name, rate in rates.items():
        results[f"{name}, {kind}, GB/s"] = round(rate, 1)
        results[f"{name}, {kind}, share of copy"] = round(rate / rates["copy"], 3)
    return results


def bandwidth(run: Setting) -> Results:
    """Neurons and pools of 2 x 2 cells at T = 30: GB/s of the bytes that must move."""
    samples = 40 if not run.small else 1
    for dtype in (torch.float32, torch.bfloat16):
        note(_rates(run, dtype, samples))
    return {"neurons": samples * math.prod(CELLS)}


def replayed(run: Setting, step: Callable[[], object]) -> Callable[[], object]:
    """The step as a CUDA graph; as it is on a CPU."""
    return captured(step).replay if run.on_gpu else step


def eager_and_graph(run: Setting, name: str, step: Callable[[], object], repeats: int = 20) -> Results:
    """Milliseconds and peak memory of a step; the same step as a CUDA graph."""
    results: Results = {}
    if run.on_gpu:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    results[f"{name}, eager, ms"] = round(median_ms(run, step, repeats, with_host=True), 3)
    if not run.on_gpu:
        return results
    results[f"{name}, eager, peak MB"] = round(torch.cuda.max_memory_allocated() / 1e6)
    results[f"{name}, CUDA graph, ms"] = round(median_ms(run, replayed(run, step), repeats), 3)
    return results


def step(run: Setting) -> Results:
    """Forward, backward and Adam of the N-MNIST net 12C5(p1)-P2-64C5-P2-10 at T = 30, random events at 4 % density."""
    results: Results = {}
    for batch in (50, 512) if not run.small else (2,):
        torch.manual_seed(0)
        x = (torch.rand(30, batch, 2, 34, 34, device=run.device) < 0.04).float()
        y = torch.randint(0, 10, (batch,), device=run.device)
        net = snnlib.models.nmnist_net().to(run.device)
        snnlib.prepare_(net, x, 0.08)
        results |= eager_and_graph(run, f"N-MNIST step, batch {batch}", training_step(net, x, y))
    return results


# Layers of `models.cifar10_dvs_vgg`, without its dropout.
VGG_LAYERS = "128C3p1-P2-256C3p1-256C3p1-P2-256C3p1-512C3p1-P2-512C3p1-512C3p1-512C3p1-P2-1024-1024-10"
SMALL_LAYERS = "8C3p1-P2-8C3p1-P2-10"


def vgg(run: Setting) -> dict[str, Any]:
    """Forward, backward and Adam of the CIFAR10-DVS VGG, T = 20, batch 32, 48 x 48: {TF32, bf16} x {eager, graph}.

    With SRM neurons, as it is and fused; batch norm has a stage of its own.
    """
    layers, steps, batch, size = (SMALL_LAYERS, 4, 2, 12) if run.small else (VGG_LAYERS, 20, 32, 48)
    torch.manual_seed(0)
    x = (torch.rand(steps, batch, 2, size, size, device=run.device) < 0.04).float()
    y = torch.randint(0, 10, (batch,), device=run.device)
    if run.on_gpu:
        # As convolutions have it by default; the fully connected layers too.
        torch.backends.cuda.matmul.allow_tf32 = True
    start = snnlib.models.from_notation(layers, (2, size, size)).to(run.device)
    snnlib.prepare_(start, x)
    for precision, fused in product(("TF32", "bf16"), (False, True)):
        net = copy.deepcopy(start)
        if fused:
            snnlib.fuse_(net)
        what = f"SRM, {precision}{', fused' * fused}"
        note(eager_and_graph(run, what, training_step(net, x, y, precision == "bf16"), repeats=8))
    with torch.no_grad():
        return {"spikes of the output per step": round(start(x).mean().item(), 4)}


def training_step(
    net: nn.Module, x: Tensor, y: Tensor, half: bool = False, lr: float = 1e-4
) -> Callable[[], None]:
    """Returns a step with cross-entropy of spike counts and Adam."""
    optimizer = torch.optim.Adam(net.parameters(), lr=lr, capturable=x.is_cuda)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        # A graph would keep casts of the weights as they were before its first step.
        with torch.autocast(x.device.type, torch.bfloat16, enabled=half, cache_enabled=False):
            output = net(x)
        nn.functional.cross_entropy(output.float().sum(0), y).backward()
        optimizer.step()

    return step


def recurrent_speed(run: Setting) -> Results:
    """Milliseconds, T = 100, and how many times as long the definition takes, step by step and as a graph.

    Backward multiplies where the surrogate is not zero: at few steps by the triangle, at all by ATan.
    """
    rates: Results = {}
    definitions: list[tuple[str, Callable[[], object], float]] = []
    triangle, everywhere = surrogate.Triangle(width=0.5, height=0.4), surrogate.ATan()
    sizes = ((64, 128), (256, 128), (64, 512), (256, 512), (256, 1024))
    for (batch, size), gradient in [*((pair, triangle) for pair in sizes), ((256, 256), everywhere)]:
        steps, n, h = (5, 2, 16) if run.small else (100, batch, size)
        current, weight = (tensor.to(run.device) for tensor in numbers(steps, n, h))
        neuron = neurons.CubaLIF(surrogate=gradient).to(run.device)
        leaves = [current.requires_grad_(), weight.requires_grad_()]

        def forward(x: Tensor = leaves[0], w: Tensor = leaves[1], neuron: neurons.Neuron = neuron) -> Tensor:
            return F.spiking_recurrent(x, w, neuron).value

        def step(leaves: list[Tensor] = leaves, forward: Callable[..., Tensor] = forward) -> None:
            torch.autograd.grad(forward(*leaves).sum(), leaves)

        def infer(forward: Callable[..., Tensor] = forward) -> None:
            with torch.no_grad():
                forward()

        what = f"recurrent CubaLIF, {type(gradient).__name__}, N = {batch}, H = {size}"
        for kind, call in (("forward", infer), ("both passes", step)):
            # A graph: the host takes longer to call both passes than median_ms keeps the device busy.
            fast = median_ms(run, replayed(run, call), 10)
            with snnlib.use_path("reference" if run.on_gpu else "auto"):
                slow = median_ms(run, call, 3, with_host=True)
            times = {"ms": round(fast, 3), "definition, times as long": round(slow / fast, 2)}
            note({f"{what}, {kind}, {name}": time for name, time in times.items()})
            definitions.append((f"{what}, {kind}", call, fast))
        rates[f"{what}, spikes per neuron and step"] = round(forward().detach().mean().item(), 3)
    # Last, as nothing can follow a capture that fails.
    for what, definition, fast in definitions:
        with snnlib.use_path("reference" if run.on_gpu else "auto"):
            launched = median_ms(run, replayed(run, definition), 3)
        note({f"{what}, definition as a graph, times as long": round(launched / fast, 2)})
    return rates
