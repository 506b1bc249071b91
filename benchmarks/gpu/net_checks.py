"""Stages that check whole nets on the device, eager, captured, compiled and trained, and those that start programs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from op_checks import ROOT, assert_bits, assert_close, close, signals, without_tf32
from stages import Results, Setting, cuda_tool, note, verdict
from torch import Tensor, nn

import snnlib


def relayed(
    command: Sequence[str | Path], environment: Mapping[str, str], folder: str | None = None
) -> tuple[int, list[str]]:
    """Exit status and lines of another program, which are printed as they come: they count though it is stopped."""
    lines = []
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", env=environment,
        cwd=folder,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        for line in process.stdout:
            # Marked, as a stage's own lines may be results.
            print("|", line, end="", flush=True)
            lines.append(line.rstrip("\n"))
    return process.returncode, lines


def dyadic_net(run: Setting) -> tuple[nn.Module, Tensor]:
    """A small net with every kind of layer, firing, and its input events."""
    torch.manual_seed(3)
    net = nn.Sequential(
        snnlib.SRMConv2d(2, 8, 5, padding=1),
        snnlib.SpikeAvgPool2d(2),
        snnlib.SRMConv2d(8, 16, 3),
        snnlib.SpikeAvgPool2d(2),
        nn.Flatten(2),
        snnlib.SRMLinear(16 * 9, 10),
    )
    x = (torch.rand(20, 4, 2, 20, 20) < 0.1).float()
    snnlib.prepare_(net, x, 0.1, gain=False)
    # Multiples of 1/64: sums of them are exact, in whatever order a convolution adds.
    with torch.no_grad():
        for weight in net.parameters():
            weight.copy_((weight * 64).round() / 64)
    return net.to(run.device), x.to(run.device)


def gradients(forward: Callable[[Tensor], Tensor], net: nn.Module, x: Tensor) -> list[Tensor]:
    """Spikes and the gradients of all weights."""
    spikes = forward(x)
    return [
        spikes.detach(),
        *torch.autograd.grad((spikes * signals(spikes)).sum(), list(net.parameters())),
    ]


def network(run: Setting) -> Results:
    """A net on the device against the same net on the CPU, without TF32."""
    net, x = dyadic_net(run)
    with without_tf32():
        on_device = gradients(net, net, x)
    cpu = net.to("cpu")
    return close(on_device, gradients(cpu, cpu, x.cpu()), "device and CPU")


def determinism(run: Setting) -> Results:
    """Checks that every run has the same bits."""
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
    documented = _documented_step(run)
    if not run.on_gpu:
        return documented
    torch.manual_seed(6)
    delayed = snnlib.SpikingConv2d(3, 8, 3, neuron=snnlib.neurons.LIF(), delays=snnlib.Delays(6)).to(
        run.device
    )
    events = (torch.rand(20, 4, 3, 8, 8) < 0.3).float().to(run.device)
    return (
        _captured_gradients(net, x, "graph and eager")
        | _captured_gradients(delayed, events, "graph and eager, delays per channel")
        | _captured_losses(run)
        | documented
    )


def _documented_step(run: Setting) -> Results:
    """The training step of docs/cuda.md, then the same as a graph, as they stand there."""
    text = (ROOT / "docs" / "cuda.md").read_text(encoding="utf-8")
    step = re.search(r"```python\n(.*?lr=1e-3)(\).*?)```", text, re.DOTALL)
    graph = re.search(r"^    def step\(\):.*?^    graph\.replay\(\)$", text, re.DOTALL | re.MULTILINE)
    assert step and graph, "docs/cuda.md: expected a step with Adam, and the same as a graph"
    if not run.on_gpu:
        return {"CUDA graphs": "none on a CPU"}
    names: dict[str, Any] = {}
    # As the page asks for.
    exec(f"{step[1]}, capturable=True{step[2]}", names)
    names |= {"next_x": names["x"].flip(0), "next_y": names["y"].flip(0)}
    exec(textwrap.dedent(graph[0]), names)
    losses = []
    for _ in range(20):
        names["graph"].replay()
        losses.append(names["loss"].item())
    assert losses[-1] < losses[0], losses
    return {"the documented step as a graph: loss, then after 20 steps": [losses[0], losses[-1]]}


def captured(step: Callable[[], object], warm_up: int = 3) -> torch.cuda.CUDAGraph:
    """A step as a CUDA graph, after as many runs as it needs to find its algorithms."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(warm_up):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph


def _captured_gradients(net: nn.Module, x: Tensor, what: str) -> Results:
    other = torch.flip(x, [0])
    expected, static, outputs = gradients(net, net, other), x.clone(), []

    def step() -> None:
        outputs[:] = gradients(net, net, static)

    replayed = captured(step)
    static.copy_(other)
    replayed.replay()
    torch.cuda.synchronize()
    return close(outputs, expected, what)


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

    expected, outputs = values(), []

    def step() -> None:
        outputs[:] = values()

    captured(step).replay()
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


# Per cent of the embedded digits after an epoch on a CPU, and how far a GPU may be below.
CPU_ACCURACY, BELOW = 95.3, 0.5


def accuracy(run: Setting) -> Results:
    """Trains an epoch on the embedded digits by the command, in float32 and bfloat16 with three seeds each.

    On a CPU the command for a GPU, which says what is missing, then a small net.
    """
    results: Results = {}
    if not run.on_gpu:
        status, lines, _ = _train("cuda")
        assert status and any("CUDA device" in line for line in lines), "\n".join(lines)
        results["without a GPU"] = lines[-1]
    if not run.on_gpu and not run.whole:
        return results
    for precision in ("32-true", "bf16-mixed"):
        found = []
        for seed in range(3 if run.on_gpu else 1):
            options = () if run.on_gpu else ("--net", "P5-10", "--time-steps", "5")
            asked = ("--seed", str(seed), "--precision", precision, *options)
            status, lines, metrics = _train(run.device.type, *asked)
            assert status == 0, "\n".join(lines)
            last = dict(zip(metrics[0].split(","), metrics[-1].split(","), strict=True))
            found.append(100 * float(last["test_accuracy"]))
        results[f"{precision}, per cent after an epoch"] = [round(each, 1) for each in found]
        below = CPU_ACCURACY - sum(found) / len(found)
        results |= verdict(f"{precision}, points below a CPU", below, BELOW if run.on_gpu else CPU_ACCURACY)
    return results


def _train(device: str, *options: str) -> tuple[int, list[str], list[str]]:
    """Exit status and lines of one epoch on the embedded digits, and the lines of its metrics."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", "from snnlib_command import main; main()", "train", "--epochs", "1"]
        command += ["--out", f"{folder}/run", "--device", device, *options]
        status, lines = relayed(command, {**os.environ, "SNNLIB_CACHE": f"{folder}/cache"}, folder)
        metrics = Path(folder, "run", "metrics.csv")
        return status, lines, metrics.read_text(encoding="utf-8").splitlines() if metrics.exists() else []


def pytest(run: Setting) -> Results:
    """The tests that need a GPU, with the module that was built: the source folder must not shadow it."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", folder]
        # The suite's own fixtures need packages that a GPU machine may not have.
        command += ["-c", os.devnull, "--noconftest", str(ROOT / "tests" / "backends" / "test_cudnn_gpu.py")]
        path = [*filter(None, [os.environ.get("PYTHONPATH")]), str(ROOT / "tests" / "helpers")]
        status, lines = relayed(command, {**os.environ, "PYTHONPATH": os.pathsep.join(path)}, folder)
    assert status == 0, "\n".join(lines[-40:])
    return {"tests that need a GPU": lines[-1]}


def memcheck(run: Setting) -> Results:
    """compute-sanitizer: no kernel accesses what is outside of a tensor."""
    return _sanitized(run, "memcheck", "snnlib")


def synccheck(run: Setting) -> Results:
    """compute-sanitizer: threads of a block wait for each other at one place."""
    return _sanitized(run, "synccheck", "recurrent")


def initcheck(run: Setting) -> Results:
    """compute-sanitizer: no kernel reads memory that nothing wrote."""
    return _sanitized(run, "initcheck", "scan")


def racecheck(run: Setting) -> Results:
    """compute-sanitizer: no threads of a block race; they work together in recurrent layers alone."""
    return _sanitized(run, "racecheck", "recurrent")


def _sanitized(run: Setting, check: str, names: str) -> Results:
    """The last line of a check of the kernels with such names; on a CPU the calls of the kernels alone.

    The environment variable SNNLIB_KERNELS, which `--kernels` sets, names others: those that changed.
    """
    names = os.environ.get("SNNLIB_KERNELS", names)
    command = [sys.executable, str(Path(__file__).parent), "--stage", "kernels"]
    command += ["--device", run.device.type]
    # Without torch's cache every tensor is an allocation of its own, and its end can be overrun.
    environment = {**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    tool = cuda_tool("compute-sanitizer")
    if run.on_gpu:
        if tool is None:
            return {check: "skipped: there is no compute-sanitizer"}
        command = [tool, "--tool", check, "--error-exitcode", "9", "--kernel-regex", f"kns={names}", *command]
    elif not run.whole:
        command += ["--help"]
    status, lines = relayed(command, environment)
    if any("Device not supported" in line for line in lines):
        return {check: "skipped: compute-sanitizer does not support this device"}
    assert status == 0, "\n".join(lines[-40:])
    return {check: lines[-1].strip("= ")}
