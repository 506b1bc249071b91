"""Stages of check.py: whole nets on the device, eager, captured, compiled and trained."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import torch
from torch import Tensor, nn

import snnlib

from .stages import Setting, note
from .tools import (
    Results,
    assert_bits,
    assert_close,
    close,
    dyadic_net,
    gradients,
    relayed,
    without_tf32,
)


def network(run: Setting) -> Results:
    """A net on the device against the same net on the CPU, without TF32."""
    net, x = dyadic_net(run)
    with without_tf32():
        on_device = gradients(net, net, x)
    cpu = net.to("cpu")
    return close(on_device, gradients(cpu, cpu, x.cpu()), "device and CPU")


def determinism(run: Setting) -> Results:
    """The same bits in every run."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    net, x = dyadic_net(run)
    torch.use_deterministic_algorithms(True)
    try:
        first, *rest = (gradients(net, net, x) for _ in range(4))
    finally:
        torch.use_deterministic_algorithms(False)
    for other in rest:
        for a, b in zip(first, other, strict=True):
            assert_bits(a, b, "a repeated step")
    return {"training steps with the same bits": 4}


def exact(run: Setting) -> Results:
    """With `use_convolution("events")` nets of any weights spike as on the CPU, bit for bit."""
    torch.manual_seed(5)
    x = (torch.rand(12, 3, 2, 16, 16) < 0.15).float()
    results: Results = {}
    for kind, neuron in (("SRM", snnlib.neurons.SRM), ("LIF", lambda: snnlib.neurons.LIF(tau=3.0))):
        layers = [
            snnlib.SpikingConv2d(2, 12, 5, padding=2, neuron=neuron()), snnlib.SpikeAvgPool2d(2),
            snnlib.SpikingConv2d(12, 40, 3, stride=2, neuron=neuron()), nn.Flatten(2),
            snnlib.SpikingLinear(40 * 9, 10, neuron=neuron()),
        ]  # fmt: skip
        net = nn.Sequential(*layers)
        snnlib.prepare_(net, x)
        for dtype in (torch.float32, torch.bfloat16):
            with snnlib.use_convolution("events"), torch.no_grad():
                expected = net.to("cpu", dtype)(x.to(dtype))
                out = net.to(run.device)(x.to(run.device, dtype))
            assert expected.any(), f"{kind}: no spike to compare"
            assert_bits(out.cpu(), expected, f"{kind}, {dtype}")
            results[f"{kind}, {dtype}: spikes equal to the CPU's"] = int(expected.sum())
        net.float()
    return results


def graph(run: Setting) -> Results:
    """A training step captured as a CUDA graph and replayed on new data gives the eager result."""
    net, x = dyadic_net(run)
    if not run.on_gpu:
        return {"CUDA graphs": "none on a CPU"}
    return (
        _captured_gradients(net, x, "graph and eager")
        | _captured_gradients(*_delayed_layer(run), "graph and eager, delays per channel")
        | _captured_losses(run)
    )


def _captured_gradients(net: nn.Module, x: Tensor, what: str) -> Results:
    other = torch.flip(x, [0])
    expected = gradients(net, net, other)
    static = x.clone()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            gradients(net, net, static)
    torch.cuda.current_stream().wait_stream(side)
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        outputs = gradients(net, net, static)
    static.copy_(other)
    captured.replay()
    torch.cuda.synchronize()
    return close(outputs, expected, what)


def _delayed_layer(run: Setting) -> tuple[nn.Module, Tensor]:
    """A layer that learns delays per channel, and events for it."""
    torch.manual_seed(6)
    layer = snnlib.SpikingConv2d(3, 8, 3, neuron=snnlib.neurons.LIF(), delays=snnlib.Delays(6))
    return layer.to(run.device), (torch.rand(20, 4, 3, 8, 8) < 0.3).float().to(run.device)


def _captured_losses(run: Setting) -> Results:
    """Losses, read-outs and the teacher inside a captured step: values as without the graph."""
    torch.manual_seed(4)
    net = nn.Sequential(snnlib.SRMLinear(20, 30), snnlib.SRMLinear(30, 5)).to(run.device)
    head = snnlib.SRMReadout(30, 5).to(run.device)
    x = (torch.rand(20, 4, 20, device=run.device) < 0.3).float()
    y = torch.arange(4, device=run.device)

    def values() -> list[Tensor]:
        with snnlib.nn.supervised_spikes(net[1], y):
            spikes = net(x)
        counts, times = snnlib.readout.spike_count(spikes), snnlib.readout.first_spike_time(spikes)
        wanted = snnlib.losses.target_spike_train(y, 20, 5, desired=6, undesired=1)
        return [
            snnlib.losses.spike_count_loss(counts, y, desired=6, undesired=1),
            snnlib.losses.count_cross_entropy_plus(counts, y),
            snnlib.losses.first_spike_loss(times, y, scale=0.5),
            snnlib.losses.van_rossum_loss(spikes, wanted),
            snnlib.losses.tet_loss(head(net[0](x)), y),
        ]

    expected = values()
    torch.cuda.synchronize()
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        outputs = values()
    captured.replay()
    torch.cuda.synchronize()
    for number, (out, value) in enumerate(zip(outputs, expected, strict=True)):
        assert_close(out.cpu(), value.double().cpu(), 1e-5, f"captured loss {number}")
    return {"losses captured": len(outputs)}


def autocast(run: Setting) -> Results:
    """bfloat16 and float16 layers with float32 weights: spikes in the half type, finite float32 gradients."""
    net, x = dyadic_net(run)
    results: Results = {}
    for dtype in (torch.bfloat16, torch.float16):
        with torch.autocast(run.device.type, dtype):
            spikes = net(x)
        assert spikes.dtype == dtype, spikes.dtype
        gradients = torch.autograd.grad(spikes.float().sum(), list(net.parameters()))
        assert all(g.dtype == torch.float32 and bool(g.isfinite().all()) for g in gradients)
        assert any(bool(g.any()) for g in gradients)
        results[f"spikes per neuron and step, {dtype}"] = round(spikes.double().mean().item(), 4)
    return results


def compiled(run: Setting) -> Results:
    """torch.compile(fullgraph=True) of a net, of the same fused, and of a recurrent layer, forward and backward."""
    net, x = dyadic_net(run)
    torch.manual_seed(7)
    neuron = snnlib.neurons.LIF(surrogate=snnlib.surrogate.Triangle(width=0.5, height=0.4))
    recurrent = snnlib.SpikingRNN(30, 20, neuron=neuron).to(run.device)
    sequence = (torch.rand(20, 4, 30) < 0.3).float().to(run.device)
    cases = {"": (net, x), ", recurrent": (recurrent, sequence), ", fused": (net, x)}
    # The default backend writes kernels with Triton; its C++ backend would take a minute on a CPU.
    backend = "inductor" if run.on_gpu else "aot_eager"
    for what, (module, inputs) in cases.items():
        if what == ", fused":
            snnlib.fuse_(net)
        function = torch.compile(module, fullgraph=True, backend=backend)
        with without_tf32():
            compared = gradients(function, module, inputs), gradients(module, module, inputs)
        note(close(*compared, f"compiled and eager{what}"))
    return {"compiled": len(cases)}


def training(run: Setting) -> Results:
    """One epoch on the embedded digits, through the command line."""
    return _epoch(run)


def _epoch(run: Setting, *options: str) -> Results:
    """Metrics of an epoch; on a CPU the command as for a GPU, which it misses, and where it has none to itself."""
    if run.on_gpu:
        status, lines, metrics = _train("cuda", *options)
        assert status == 0, "\n".join(lines)
        return {"metrics": metrics[0], "after one epoch": metrics[-1]}
    status, lines, _ = _train("cuda", *options)
    assert status and any("CUDA device" in line for line in lines), "\n".join(lines)
    results = {"without a GPU": lines[-1]}
    if run.whole and not options:
        # To its end, with a net that takes seconds.
        status, lines, metrics = _train("cpu", "--net", "P5-10", "--time-steps", "5")
        assert status == 0, "\n".join(lines)
        results["after one epoch"] = metrics[-1]
    return results


def _train(device: str, *options: str) -> tuple[int, list[str], list[str]]:
    """Exit status and lines of one epoch on the embedded digits, and the lines of its metrics."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", "from snnlib_command import main; main()", "train", "--epochs", "1"]
        command += ["--out", f"{folder}/run", "--device", device, *options]
        status, lines = relayed(command, {**os.environ, "SNNLIB_CACHE": f"{folder}/cache"}, folder)
        metrics = Path(folder, "run", "metrics.csv")
        return status, lines, metrics.read_text(encoding="utf-8").splitlines() if metrics.exists() else []
