"""Stages that say yes or no to a bound: the host's time, launches of a step, steps beside other libraries, batch norm.

Layers and nets of other libraries are those of benchmarks/cpu/host.py and nmnist_nets.py.
"""

from __future__ import annotations

import copy
import functools
import gc
import os
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from op_checks import ROOT
from stages import Results, Setting, note, verdict
from times import SMALL_LAYERS, VGG_LAYERS, eager_and_graph, median_ms, replayed, training_step
from torch import Tensor, nn

import snnlib

sys.path.insert(0, str(ROOT / "benchmarks" / "cpu"))
import host as layers
import nmnist_nets as nets

STEPS = 30
# Bounds: times torch's convolution and Function; launches of a step without Adam, 15 of them the loss's; milliseconds
# at batch 50; milliseconds of batch norm and of layouts that are turned.
HOST_RATIO, MOST_LAUNCHES, MOST_MS, MOST_NORM_MS = 1.3, 35, 4.6, 6.0


def host(run: Setting) -> Results:
    """Microseconds of the host per call of a layer, on tensors so small that the device waits."""
    tables = layers.our_layers()
    layers.add_peers(tables)
    calls, blocks = layers.QUICK if run.small else (layers.CALLS, layers.BLOCKS)
    # The backward pass of a GPU runs in a thread of its own.
    layers.clock = time.perf_counter_ns
    gc.disable()
    for title in (layers.CONVOLUTION, layers.PRODUCT, layers.MEANS):
        shape, rows = tables[title]
        first: dict[str, float] = {}
        for name, make in rows.items():
            x = (torch.rand(layers.STEPS, 1, *shape, device=run.device) < 0.3).float().requires_grad_()
            row = layers.layer_row(make().to(run.device), x, calls, blocks)
            first = first or row
            for key in ("forward_us", "backward_us"):
                note({f"{name}, {key}": round(row[key], 1)})
                if "SpikingConv2d" in name and "CubaLIF" not in name:
                    note(verdict(f"{name}, {key} by torch's", row[key] / first[key], HOST_RATIO))
    gc.enable()
    return {"calls of a block": calls}


def launches(run: Setting) -> Results:
    """Kernels, copies, allocations and waits of a training step: of one that the watch looks at, and of a quiet one."""
    results: Results = {}
    for fused in (False, True):
        torch.manual_seed(0)
        x, y = events(run, 2)
        net = snnlib.models.nmnist_net().to(run.device)
        snnlib.prepare_(net, x, 0.08)
        step = training_step(snnlib.fuse_(net) if fused else net, x, y)
        for batch in range(1, 12):
            # The watch looks at the first three batches and at every tenth.
            if batch not in (3, 11):
                step()
                continue
            counts = counted(run, step)
            what = f"batch {batch}{', fused' * fused}"
            results |= {f"{what}, {name}": number for name, number in counts.items()}
            if batch == 11:
                adam = counted(run, optimizer_step(net, x))["kernels"] if run.on_gpu else 0
                results |= verdict(
                    f"{what}, launches of layers and loss", counts["kernels"] - adam, MOST_LAUNCHES
                )
                results |= verdict(
                    f"{what}, waits and allocations", counts["waits"] + counts["allocations"], 0
                )
    return results


def optimizer_step(net: nn.Module, x: Tensor) -> Callable[[], object]:
    """Returns a step of Adam alone, of the same parameters."""
    own = copy.deepcopy(net)
    for parameter in own.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer = torch.optim.Adam(own.parameters(), lr=1e-4, capturable=x.is_cuda)
    optimizer.step()
    return optimizer.step


def profiled(run: Setting, step: Callable[[], object]) -> list[Any]:
    """Returns the events of a step: kernels and the runtime's calls, operations on a CPU."""
    kinds = torch.profiler.ProfilerActivity
    activities = [kinds.CPU, kinds.CUDA] if run.on_gpu else [kinds.CPU]
    with torch.profiler.profile(activities=activities) as profile:
        step()
        if run.on_gpu:
            torch.cuda.synchronize()
    return list(profile.events())


def on_device(run: Setting, event: Any) -> bool:
    return not run.on_gpu or event.device_type == torch.autograd.DeviceType.CUDA


def counted(run: Setting, step: Callable[[], object]) -> dict[str, int]:
    """Returns how many of each kind a step starts."""
    found = profiled(run, step)
    names = Counter(event.name for event in found if on_device(run, event))
    copies = sum(number for name, number in names.items() if name.startswith(("Memcpy", "Memset")))
    calls = Counter(event.name for event in found)
    # The profile itself waits once.
    waits = calls["cudaStreamSynchronize"] + max(calls["cudaDeviceSynchronize"] - 1, 0)
    return {
        "kernels": sum(names.values()) - copies,
        "copies": copies,
        "allocations": calls["cudaMalloc"],
        "waits": waits,
    }


def events(run: Setting, batch: int) -> tuple[Tensor, Tensor]:
    """Returns random events in frames of N-MNIST, and labels."""
    x, y = nets.random_events(3 if run.small else STEPS, batch)
    return x.to(run.device), y.to(run.device)


def jelly(kernels: str) -> nn.Module:
    """Returns the N-MNIST net of SpikingJelly, whose neurons run by these kernels from now on."""
    os.environ["SJ_LIF_CUDA_IMPLEMENTATION"] = kernels
    return nets.SpikingJellyNet(torch.channels_last)


def peers(run: Setting) -> Results:
    """Training steps of the N-MNIST net with LIF neurons, eager and as a graph, beside other libraries."""
    ours = {"snnlib": False, "snnlib, fused": True}
    theirs: dict[str, Callable[[], nn.Module]] = {}
    if layers.installed("SpikingJelly"):
        for kernels in ("auto", "native", "triton") if run.on_gpu else ("auto",):
            theirs[f"SpikingJelly, {kernels}"] = functools.partial(jelly, kernels)
    if layers.installed("snnTorch"):
        theirs["snnTorch"] = lambda: nets.SnnTorchNet(torch.channels_last)
    batches = (1,) if run.small else (1, 8, 50, 128, 512)
    for batch in batches:
        torch.manual_seed(0)
        x, y = events(run, batch)
        start = snnlib.models.from_notation(
            "12C5p1-P2-64C5-P2-10", (2, 34, 34), neuron=layers.lif(snnlib.surrogate.ATan())
        ).to(run.device)
        snnlib.prepare_(start, x, 0.08)
        own, other = {}, {}
        for name, fused in ours.items():
            net = snnlib.fuse_(copy.deepcopy(start)) if fused else copy.deepcopy(start)
            what = f"{name}, batch {batch}"
            note(found := eager_and_graph(run, what, training_step(net, x, y), 10))
            own[name] = found[f"{what}, eager, ms"]
        for name, make in theirs.items():
            what = f"{name}, batch {batch}"
            try:
                step = training_step(make().to(run.device), x, y)
                other[name] = median_ms(run, step, 10, with_host=True)
            except Exception as error:
                # A backend that does not start is a result.
                note({f"{what} does not start": repr(error)[:100]})
            else:
                note({f"{what}, eager, ms": round(other[name], 3)})
        if other:
            note(verdict(f"batch {batch}, eager ms", min(own.values()), min(other.values())))
        if batch == 50:
            note(verdict("batch 50, eager ms of snnlib", min(own.values()), MOST_MS))
    return {"batches": list(batches), "libraries beside": list(theirs)}


def batch_norm(run: Setting) -> Results:
    """Training steps of the CIFAR10-DVS VGG with LIF neurons behind batch norm, in float32: apart, and as one."""
    notation, steps, batch, size = (SMALL_LAYERS, 4, 2, 12) if run.small else (VGG_LAYERS, 20, 32, 48)
    torch.manual_seed(0)
    x = (torch.rand(steps, batch, 2, size, size, device=run.device) < nets.DENSITY).float()
    y = torch.randint(0, 10, (batch,), device=run.device)
    if run.on_gpu:
        torch.backends.cuda.matmul.allow_tf32 = True
    neuron = snnlib.neurons.LIF(2.0)
    start = snnlib.models.from_notation(notation, (2, size, size), neuron=neuron, batch_norm=True).to(
        run.device
    )
    snnlib.prepare_(start, x)
    for name in ("planes", "channels-last", "fused"):
        net = copy.deepcopy(start)
        if name != "planes":
            net = net.to(memory_format=torch.channels_last)
        step = training_step(snnlib.fuse_(net) if name == "fused" else net, x, y)
        note(eager_and_graph(run, f"LIF with batch norm, {name}", step, repeats=8))
        spent = Counter[str]()
        for event in profiled(run, step):
            if on_device(run, event):
                spent[kind_of(event.name)] += event.device_time_total if run.on_gpu else event.cpu_time_total
        note({f"{name}, ms of {kind}": round(time / 1000, 2) for kind, time in spent.items()})
        if name == "fused":
            note(
                verdict(
                    "fused, ms of batch norm and turns",
                    (spent["batch norm"] + spent["turns"]) / 1000,
                    MOST_NORM_MS,
                )
            )
    return {"layers": notation}


def kind_of(kernel: str) -> str:
    """Returns what a kernel of a step with batch norm works on, by its name."""
    name = kernel.lower()
    for kind, words in {
        "batch norm": ("batch_norm", "bn_", "batchnorm"),
        "turns": ("nchw", "nhwc", "transpose", "copy"),
        "neurons": ("scan", "forward_kernel", "backward_kernel"),
    }.items():
        if any(word in name for word in words):
            return kind
    return "all else"


def captured(run: Setting) -> Results:
    """A step captured after `prepare_` and replayed has the bits of eager steps, and learns."""
    torch.manual_seed(0)
    x, y = events(run, 4)
    start = snnlib.fuse_(snnlib.models.nmnist_net()).to(run.device)
    snnlib.prepare_(start, x, 0.08)
    eager, replay = (copy.deepcopy(start) for _ in range(2))
    steps, loss = (2 if run.small else 200), nn.functional.cross_entropy
    before = loss(start(x).sum(0), y).item()
    deterministic = torch.backends.cudnn.deterministic
    torch.backends.cudnn.deterministic = True
    try:
        one = training_step(eager, x, y, lr=1e-3)
        graph = replayed(run, training_step(replay, x, y, lr=1e-3))
        # The steps that warm a capture up train as well; the capture itself does not run.
        for _ in range(steps + 3 * run.on_gpu):
            one()
        for _ in range(steps):
            graph()
    finally:
        torch.backends.cudnn.deterministic = deterministic
    for a, b in zip(eager.parameters(), replay.parameters(), strict=True):
        assert torch.equal(a, b), "expected the same bits of a captured step and an eager one"
    after = loss(replay(x).sum(0), y).item()
    return {"steps with the same bits": steps, **verdict("loss after", after, before)}
