"""Measurements of check.py: medians of repeats in one process, after a warm-up, timed with CUDA events.

Kernels are timed behind a GPU that is kept busy, so that the interval holds no time of the host.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import op_calls as ops
import torch
from torch import Tensor, nn

import snnlib
from snnlib import functional as F
from snnlib.learning.preparing.calibration import calibrate_firing_rate_

from .stages import Setting, note

Results = dict[str, Any]
CONSTANTS = (8.0, 4.0, 4.0, 4.0)


# Clock cycles of a GPU, about 0.3 ms: longer than the host takes to queue one call.
_BUSY_CYCLES = 600_000


def median_ms(
    run: Setting, function: Callable[[], object], repeats: int = 20, *, with_host: bool = False
) -> float:
    """Milliseconds of one call on the device; `with_host` leaves in the time that the device waits for the host."""
    for _ in range(3):
        function()
    times = []
    for _ in range(2 if run.small else repeats):
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


def _rates(run: Setting, dtype: torch.dtype, neurons: int) -> Results:
    """Calls by name: GB/s of the tensors that must be read and written once, and their share of a copy's."""
    generator = torch.Generator(run.device).manual_seed(1)
    current, q = (
        torch.randn(30, 1, neurons, generator=generator, device=run.device).to(dtype) for _ in range(2)
    )
    limit = torch.ones((), device=run.device)
    neuron = (current, limit, None, *CONSTANTS, 0)
    spikes, _ = ops.srm_forward(*neuron, False)
    frames = spikes.reshape(-1, 1, 20, 50)
    window = ([2, 2], [2, 2], [0, 0], False)
    pooled = ops.spike_avg_pool(frames, *window, True, None)
    out = torch.empty_like(current)
    neuron_model = snnlib.neurons.LIF()
    dynamics = neuron_model.dynamics(neuron_model.constants())
    assert dynamics is not None
    scan = (current, dynamics.pack(torch.float32, run.device), None, dynamics.flags, 0)
    cells = current.view(30, 1, -1, 20, 50)
    means = pooled.view(30, 1, -1, 10, 25)
    # Name: (tensors of the currents' size that move, call).
    calls: dict[str, tuple[float, Callable[[], object]]] = {
        "copy": (2, lambda: out.copy_(current)),
        "SRM forward": (2, lambda: ops.srm_forward(*neuron, False)),
        "SRM backward": (4, lambda: ops.srm_backward(q, *neuron, True, True)),
        "SRM backward, weights only": (3, lambda: ops.srm_backward(q, *neuron, True, False)),
        "LIF forward": (2, lambda: ops.scan_forward(*scan)),
        "LIF backward": (3, lambda: ops.scan_backward(q, None, *scan, False)),
        "SRM and pool forward": (1.25, lambda: ops.srm_pool_forward(cells, limit, *CONSTANTS[:3], 0)),
        "SRM and pool backward": (
            3.25,
            lambda: ops.srm_pool_backward(means, cells, limit, *CONSTANTS, 0, True, True),
        ),
        "LIF and pool forward": (1.25, lambda: ops.scan_pool_forward(cells, *scan[1:])),
        "LIF and pool backward": (2.25, lambda: ops.scan_pool_backward(means, None, cells, *scan[1:])),
        "pool forward, 2x2": (1.25, lambda: ops.spike_avg_pool(frames, *window, True, None)),
        "pool backward, 2x2": (2.25, lambda: ops.spike_avg_pool_backward(pooled, frames, *window)),
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
    """SRM neurons at T = 30 and 10^7 neurons, pooling of as many cells: GB/s of the bytes that must move."""
    neurons = 10_000_000 if not run.small else 1000
    for dtype in (torch.float32, torch.bfloat16):
        note(_rates(run, dtype, neurons))
    return {"neurons": neurons}


def captured(run: Setting, step: Callable[[], object]) -> Callable[[], object]:
    """The step as a CUDA graph; as it is on a CPU."""
    if not run.on_gpu:
        return step
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


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
    results[f"{name}, CUDA graph, ms"] = round(median_ms(run, captured(run, step), repeats), 3)
    return results


def step(run: Setting) -> Results:
    """Forward, backward and Adam of the N-MNIST net 12C5(p1)-P2-64C5-P2-10 at T = 30, random events at 4 % density."""
    results: Results = {}
    for batch in (50, 512) if not run.small else (2,):
        torch.manual_seed(0)
        x = (torch.rand(30, batch, 2, 34, 34, device=run.device) < 0.04).float()
        y = torch.randint(0, 10, (batch,), device=run.device)
        net = snnlib.models.nmnist_net().to(run.device)
        calibrate_firing_rate_(net, x, 0.08, spread=1.0)
        optimizer = torch.optim.Adam(net.parameters(), lr=1e-4, capturable=run.on_gpu)

        def train(net: nn.Module = net, x: Tensor = x, y: Tensor = y, optimizer: Any = optimizer) -> None:
            optimizer.zero_grad(set_to_none=True)
            nn.functional.cross_entropy(net(x).sum(0), y).backward()
            optimizer.step()

        results |= eager_and_graph(run, f"N-MNIST step, batch {batch}", train)
    return results


def layer(run: Setting) -> Results:
    """A layer 128 -> 128, 3x3, on 32x32 at T = 12, batch 50, 10 % events: forward and backward, and its two adjoints
    alone beside aten's.
    """
    channels, size, batch = (128, 32, 50) if not run.small else (4, 8, 2)
    torch.manual_seed(0)
    x = (torch.rand(12, batch, channels, size, size, device=run.device) < 0.1).float()
    module = snnlib.SRMConv2d(channels, channels, 3, padding=1, device=run.device)
    calibrate_firing_rate_(module, x, 0.1)
    weight = module.weight
    x.requires_grad_()
    q = torch.randn(12, batch, channels, size, size, device=run.device)
    events, signal = x.detach().flatten(0, 1), q.flatten(0, 1)

    def srm() -> None:
        torch.autograd.grad(module(x), [x, weight], q)

    def dense() -> None:
        frames = events.clone().requires_grad_()
        torch.autograd.grad(nn.functional.conv2d(frames, weight, padding=1), [frames, weight], signal)

    results = eager_and_graph(run, "SRM layer", srm)
    results |= eager_and_graph(run, "its convolution alone", dense)
    for dtype in (torch.float32, torch.bfloat16):
        e, s, w = events.to(dtype), signal.to(dtype), weight.detach().to(dtype)

        def aten(mask: list[bool], e: Tensor = e, s: Tensor = s, w: Tensor = w) -> Callable[[], object]:
            arguments = (s, e, w, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1, mask)
            return lambda: torch.ops.aten.convolution_backward(*arguments)

        name = str(dtype).removeprefix("torch.")
        ours = {
            "input": lambda e=e, s=s, w=w: F.conv2d_input_backward(e.shape, s, w, padding=1),
            "weight": lambda e=e, s=s, w=w: F.conv2d_weight_backward(w.shape, s, e, padding=1),
        }
        for side, mask in (("input", [True, False, False]), ("weight", [False, True, False])):
            mine, theirs = median_ms(run, ours[side]), median_ms(run, aten(mask))
            results[f"{side} backward, {name}, ms (aten)"] = f"{mine:.3f} ({theirs:.3f})"
    return results
