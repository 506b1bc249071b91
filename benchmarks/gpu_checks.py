"""Checks of gpu_check.py: CUDA against the CPU, streams, graphs, compilers, memory, errors. A function is a stage."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from gpu_stages import Setting
from torch import Tensor, nn

import snnlib
from snnlib import functional as F
from snnlib.backends import native

ROOT = Path(__file__).resolve().parents[1]
# The op list and the comparisons of the test suite.
sys.path.insert(0, str(ROOT / "tests"))
from compare import assert_bits, assert_close  # noqa: E402
from opdb import DTYPES, OPS  # noqa: E402

Results = dict[str, Any]
CONSTANTS = (5.0, 3.0, 3.0, 4.0)


def _to(device: torch.device, value: Any) -> Any:
    return value.to(device) if isinstance(value, Tensor) else value


def _train(run: Setting, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return (torch.randn(shape, generator=generator) * 1.2 + 0.3).to(run.device, dtype)


def _net(run: Setting) -> tuple[nn.Module, Tensor]:
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
    snnlib.init.calibrate_firing_rate_(net, x, 0.1)
    # Multiples of 1/64: sums of them are exact, in whatever order a convolution adds.
    with torch.no_grad():
        for weight in net.parameters():
            weight.copy_((weight * 64).round() / 64)
    return net.to(run.device), x.to(run.device)


def _gradients(forward: Callable[[Tensor], Tensor], net: nn.Module, x: Tensor) -> list[Tensor]:
    """Spikes and the gradients of all weights."""
    spikes = forward(x)
    q = torch.linspace(-1, 1, spikes.numel(), device=x.device, dtype=spikes.dtype).reshape(spikes.shape)
    return [spikes.detach(), *torch.autograd.grad((spikes * q).sum(), list(net.parameters()))]


def _close(actual: list[Tensor], expected: list[Tensor], what: str) -> Results:
    """Spikes may flip where a convolution rounds otherwise: one in a thousand. Gradients follow them."""
    flips = (actual[0].cpu() != expected[0].cpu()).double().mean().item()
    assert flips <= 1e-3, f"{what}: {flips:.2%} of spikes differ"
    distances = [
        ((a.cpu() - e.cpu()).norm() / e.cpu().norm()).item()
        for a, e in zip(actual[1:], expected[1:], strict=True)
    ]
    assert max(distances) <= (1e-4 if flips == 0 else 0.1), (
        f"{what}: gradients differ by {max(distances):.3g}"
    )
    return {
        f"{what}: share of spikes that differ": flips,
        f"{what}: largest relative difference of gradients": max(distances),
    }


@contextmanager
def _without_tf32() -> Iterator[None]:
    """Convolutions in full float32."""
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    try:
        yield
    finally:
        torch.backends.cudnn.allow_tf32 = before


def install(run: Setting) -> Results:
    """The module that was just built is the one in use, and has kernels for the device."""
    path, reason = native.explain_path(run.device.type)
    assert path == "native", reason
    site, file = os.environ.get("SNNLIB_CHECKED_SITE"), native.module_info()["native module"]
    assert site is None or Path(site) in Path(file).parents, f"{file} is in use, not the module in {site}"
    return {"path": f"{path}: {reason}", **native.module_info()}


def ops(run: Setting) -> Results:
    """Every op, sample and dtype of the test suite on the device and on the CPU."""
    with _without_tf32():
        compared = [*_op_matrix(run), *_long_trains(run)]
    return {"outputs compared with the CPU": len(compared), "of these equal to the bit": sum(compared)}


def _op_matrix(run: Setting) -> Iterator[bool]:
    """Whether each output has the CPU's bits; raises where it is further away than it may be."""
    for case in OPS.values():
        for sample in case.samples[: 2 if run.small else None]:
            for dtype in DTYPES:
                args = sample.arguments(dtype)
                outputs = case(*(_to(run.device, value) for value in args))
                for number, (out, expected) in enumerate(zip(outputs, case(*args), strict=True)):
                    what = f"{case.name}, {sample.name}, {dtype}, output {number}"
                    assert out.device.type == run.device.type, what
                    # Neurons compute in the same order everywhere: spikes, states and traces to the bit.
                    if case.name in ("srm_forward", "srm_trace", "scan_forward"):
                        assert_bits(out.cpu(), expected, what)
                    else:
                        assert_close(out.cpu(), expected.double(), case.tolerance[dtype], what)
                    yield torch.equal(out.cpu(), expected)


def _long_trains(run: Setting) -> Iterator[bool]:
    """The same for the backward pass of sequences that the kernel takes in one chunk, two and many."""
    case = OPS["srm_backward"]
    for steps in (48, 49, 97, 300):
        for dtype in DTYPES:
            current = _train(run, steps, 2, 3, 40, dtype=dtype)
            for needs in ((True, True), (True, False), (False, True)):
                limit = torch.ones((), device=run.device)
                args = (current.flip(0), current, limit, None, *CONSTANTS, 0, *needs)
                expected = case(*(_to(torch.device("cpu"), value) for value in args))
                for out, other in zip(case(*args), expected, strict=True):
                    assert_close(out.cpu(), other.double(), case.tolerance[dtype], f"{steps} steps, {dtype}")
                    yield torch.equal(out.cpu(), other)


def scans(run: Setting) -> Results:
    """Every neuron model on the device and on the CPU: spikes and states to the bit, gradients too."""
    compared = 0
    for name, model in snnlib.neurons.MODELS.items():
        for steps in (1, 7, 50, 300) if not run.small else (7,):
            neuron = model()
            x = _train(run, steps, 4, 3, 40) * 2 + 1

            def outputs(x: Tensor, neuron: nn.Module = neuron) -> list[Tensor]:
                x = x.detach().requires_grad_()
                value, (state, *_) = neuron.run(x)  # type: ignore[operator]
                q = torch.linspace(-1, 1, value.numel(), device=value.device).reshape(value.shape)
                return [value, state, *torch.autograd.grad((value * q).sum(), [x, *neuron.parameters()])]

            expected = outputs(x.cpu())
            on_device = [tensor.cpu() for tensor in outputs(x, neuron.to(run.device))]
            what = f"{name}, {steps} steps"
            if neuron.dynamics(neuron.constants()) is not None:
                assert_bits(on_device[0], expected[0], f"{what}, spikes")
                assert_bits(on_device[1], expected[1], f"{what}, state")
            flips = (on_device[0] != expected[0]).double().mean().item()
            assert flips <= 1e-3, f"{what}: {flips:.2%} of spikes differ"
            for actual, wanted in zip(on_device[2:], expected[2:], strict=True):
                difference = (actual - wanted).norm() / wanted.norm().clamp(min=1e-12)
                assert difference <= (1e-4 if flips == 0 else 0.1), (
                    f"{what}: gradients differ by {difference:.3g}"
                )
                compared += 1
    return {"gradients of neuron models compared with the CPU": compared}


def network(run: Setting) -> Results:
    """A net on the device against the same net on the CPU, without TF32."""
    net, x = _net(run)
    with _without_tf32():
        on_device = _gradients(net, net, x)
    cpu = net.to("cpu")
    return _close(on_device, _gradients(cpu, cpu, x.cpu()), "device and CPU")


def streams(run: Setting) -> Results:
    """Kernels run on the current stream: after what was queued there, and not after what waits on another."""
    current = _train(run, 30, 8, 1000)
    limit = torch.ones((), device=run.device)

    def spikes(train: Tensor) -> Tensor:
        return torch.ops.snnlib.srm_forward(train, limit, None, *CONSTANTS, 0, False)[0]  # type: ignore[no-any-return]

    expected = spikes(current)
    if not run.on_gpu:
        return {"streams": "none on a CPU"}
    late = torch.full_like(current, torch.nan)
    side = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        torch.cuda._sleep(200_000_000)
        late.copy_(current)
        after_copy = spikes(late)
    side.synchronize()
    assert torch.equal(after_copy, expected), "a kernel did not wait for its own stream"
    busy = torch.cuda.Event()
    torch.cuda._sleep(1_000_000_000)
    busy.record()
    with torch.cuda.stream(side):
        spikes(current)
    side.synchronize()
    waited = busy.query()
    torch.cuda.synchronize()
    assert not waited, "a kernel waited for another stream"
    return {"second stream": "in order, and independent of the first"}


def determinism(run: Setting) -> Results:
    """The same bits in every run."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    net, x = _net(run)
    torch.use_deterministic_algorithms(True)
    try:
        first, *rest = (_gradients(net, net, x) for _ in range(4))
    finally:
        torch.use_deterministic_algorithms(False)
    for other in rest:
        for a, b in zip(first, other, strict=True):
            assert_bits(a, b, "a repeated step")
    return {"training steps with the same bits": 4}


def graph(run: Setting) -> Results:
    """A training step captured as a CUDA graph and replayed on new data gives the eager result."""
    net, x = _net(run)
    if not run.on_gpu:
        return {"CUDA graphs": "none on a CPU"}
    other = torch.flip(x, [0])
    expected = _gradients(net, net, other)
    static = x.clone()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            _gradients(net, net, static)
    torch.cuda.current_stream().wait_stream(side)
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        outputs = _gradients(net, net, static)
    static.copy_(other)
    captured.replay()
    torch.cuda.synchronize()
    return _close(outputs, expected, "graph and eager") | _captured_losses(run)


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
    net, x = _net(run)
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


def errors(run: Setting) -> Results:
    """Wrong devices are refused, nothing outlives a call that ran out of memory, and little is saved for backward."""
    if not run.on_gpu:
        return {"errors": "tested on a GPU"}
    current = _train(run, 6, 2, 8)
    try:
        torch.ops.snnlib.srm_forward(current, torch.ones(()), None, *CONSTANTS, 0, False)
    except ValueError as error:
        assert "threshold: expected a tensor on" in str(error), error
    else:
        raise AssertionError("a threshold on another device was taken")
    results: Results = {"wrong device": "refused"}
    steps, neurons = 30, 1_000_000
    x = _train(run, steps, neurons).reshape(steps, neurons, 1)
    weight = torch.ones(1, 1, device=run.device, requires_grad=True)
    # cuBLAS takes its workspace, 32 MiB on Hopper, from torch's allocator with the first product.
    F.srm_linear(x[:, :1], weight)
    before = torch.cuda.memory_allocated()
    spikes = F.srm_linear(x, weight)
    saved = (torch.cuda.memory_allocated() - before) / spikes.numel() - spikes.element_size()
    assert saved <= 4.1, f"{saved} bytes"
    results["bytes saved per neuron-step beside the spikes"] = round(saved, 3)
    del spikes
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.empty_cache()
    free, _ = torch.cuda.mem_get_info()
    huge = torch.empty(int(free * 0.6) // 4, device=run.device).reshape(1, 1, -1)
    held = torch.cuda.memory_allocated()
    try:
        torch.ops.snnlib.srm_forward(huge, torch.ones((), device=run.device), None, *CONSTANTS, 0, False)
    except torch.OutOfMemoryError:
        pass
    else:
        raise AssertionError("an output of 60 % of the memory beside as large an input did not run out of it")
    assert torch.cuda.memory_allocated() == held, "memory was kept after running out of it"
    del huge
    assert torch.cuda.memory_allocated() == before
    results["out of memory"] = "torch's error, nothing kept"
    return results


def large(run: Setting) -> Results:
    """More than 2^31 elements: the last neurons of a sequence are computed like a sequence of their own."""
    neurons = 2**30 + 4096 if not run.small else 4096
    if run.on_gpu and torch.cuda.mem_get_info()[0] < 22 * neurons:
        return {"elements": "skipped: less than 24 GB of free memory"}
    current = torch.empty(2, 1, neurons, device=run.device, dtype=torch.bfloat16).normal_(0.7, 1)
    limit = torch.ones((), device=run.device)
    tail = current[..., -4096:].contiguous()
    spikes, _ = torch.ops.snnlib.srm_forward(current, limit, None, *CONSTANTS, 0, False)
    expected, _ = torch.ops.snnlib.srm_forward(tail, limit, None, *CONSTANTS, 0, False)
    assert expected.any()
    assert_bits(spikes[..., -4096:], expected, "last neurons")
    a, b = torch.ops.snnlib.srm_backward(current, current, limit, None, *CONSTANTS, 0, True, True)
    expected_a, expected_b = torch.ops.snnlib.srm_backward(tail, tail, limit, None, *CONSTANTS, 0, True, True)
    assert_bits(a[..., -4096:], expected_a, "last weight signals")
    assert_bits(b[..., -4096:], expected_b, "last input signals")
    return {"elements": current.numel()}


# (stride, padding, dilation, groups): every value of each, and those that meet awkwardly.
GEOMETRIES = (
    (1, 0, 1, 1), (1, 1, 1, 1), (1, 2, 1, 4), (1, 1, 2, 1), (2, 0, 1, 1), (2, 1, 1, 4), (2, 2, 2, 1), (3, 0, 1, 1),
    (3, 1, 2, 4), (1, 2, 3, 1), (2, 1, 3, 1), (3, 2, 3, 4),
)  # fmt: skip


def convolution(run: Setting) -> Results:
    """conv2d_input_backward and conv2d_weight_backward against aten in float64, over geometries, dtypes and layouts."""
    calls = 0
    # Relative to the largest element: sums of some hundred products, rounded to the dtype once or twice.
    tolerance = {torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}
    for geometry in GEOMETRIES[: 3 if run.small else None]:
        stride, padding, dilation, groups = geometry
        # Where a stage that runs out of time was.
        print(f"convolution {geometry}", flush=True)
        generator = torch.Generator().manual_seed(calls)
        x = torch.randn(3, 8, 15, 13, generator=generator, dtype=torch.float64)
        weight = torch.randn(12, 8 // groups, 3, 3, generator=generator, dtype=torch.float64)
        shape = nn.functional.conv2d(x, weight, None, *geometry).shape
        g = torch.randn(shape, generator=generator, dtype=torch.float64)
        answers = torch.ops.aten.convolution_backward(
            *(g, x, weight, None, [stride] * 2, [padding] * 2, [dilation] * 2),
            *(False, [0, 0], groups, [True, True, False]),
        )[:2]
        options: dict[str, Any] = {
            "stride": stride, "padding": padding, "dilation": dilation, "groups": groups, "allow_tf32": False,
        }  # fmt: skip
        for dtype, limit in tolerance.items():
            for layout in (torch.contiguous_format, torch.channels_last):
                xs, ws, gs = (
                    tensor.to(run.device, dtype).contiguous(memory_format=layout) for tensor in (x, weight, g)
                )
                outputs = (
                    F.conv2d_input_backward(x.shape, gs, ws, **options),
                    F.conv2d_weight_backward(weight.shape, gs, xs, **options),
                )
                for out, answer in zip(outputs, answers, strict=True):
                    error = (out.double().cpu() - answer).abs().max() / answer.abs().max()
                    assert error <= limit, f"{geometry}, {dtype}, {layout}: {error:.3g}"
                    calls += 1
    return {"results compared with aten in float64": calls}


def pytest(run: Setting) -> Results:
    """The tests that need a GPU, with the module that was built: the source folder must not shadow it."""
    if not run.on_gpu:
        return {"pytest": "runs the tests that need a GPU"}
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--rootdir", folder]
        command += [
            "-c",
            os.devnull,
            # The suite's own fixtures need packages that a GPU machine may not have.
            "--noconftest",
            str(ROOT / "tests" / "test_cudnn_gpu.py"),
        ]
        path = [*filter(None, [os.environ.get("PYTHONPATH")]), str(ROOT / "tests")]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env=environment, cwd=folder
        )
    assert done.returncode == 0, done.stdout[-2500:] + done.stderr[-500:]
    return {"tests that need a GPU": done.stdout.strip().splitlines()[-1]}


def compiled(run: Setting) -> Results:
    """torch.compile(fullgraph=True) of a net, forward and backward."""
    net, x = _net(run)
    # The default backend writes kernels with Triton; its C++ backend would take a minute on a CPU.
    function = torch.compile(net, fullgraph=True, backend="inductor" if run.on_gpu else "aot_eager")
    with _without_tf32():
        return _close(_gradients(function, net, x), _gradients(net, net, x), "compiled and eager")


def training(run: Setting) -> Results:
    """One epoch on the embedded digits, through the command line."""
    if run.small:
        return {"training": "skipped: the test suite trains on the CPU"}
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable,
            "-m",
            "snnlib.app.command",
            "train",
            "--epochs",
            "1",
            "--out",
            f"{folder}/run",
        ]
        command += ["--device", run.device.type]
        environment = {**os.environ, "SNNLIB_CACHE": f"{folder}/cache"}
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env=environment, cwd=folder
        )
        assert done.returncode == 0, done.stdout[-1500:] + done.stderr[-1500:]
        metrics = Path(folder, "run", "metrics.csv").read_text(encoding="utf-8").splitlines()
    return {"metrics": metrics[0], "after one epoch": metrics[-1]}


def kernels(run: Setting) -> Results:
    """Every kernel of the library once, for `sanitizer`: torch's own would take most of the time."""
    calls = 0
    for name in ("srm_forward", "srm_backward", "srm_trace", "scan_forward", "scan_backward"):
        for sample in OPS[name].samples:
            for dtype in DTYPES:
                OPS[name](*(_to(run.device, value) for value in sample.arguments(dtype)))
                calls += 1
    for name in ("spike_avg_pool", "spike_avg_pool_backward"):
        for sample in OPS[name].samples:
            OPS[name](*(_to(run.device, value) for value in sample.arguments(torch.float32)))
            calls += 1
    for steps in (49, 97, 300):
        current = _train(run, steps, 2, 3, 40)
        limit = torch.ones((), device=run.device)
        torch.ops.snnlib.srm_backward(current, current, limit, None, *CONSTANTS, 0, True, True)
        calls += 1
    if run.on_gpu:
        torch.cuda.synchronize()
    return {"calls of kernels": calls}


def sanitizer(run: Setting) -> Results:
    """compute-sanitizer over every kernel of the library: no access outside of a tensor."""
    tool = shutil.which("compute-sanitizer") or shutil.which(
        "compute-sanitizer", path="/usr/local/cuda/bin:/opt/cuda/bin"
    )
    if tool is None or not run.on_gpu:
        return {"compute-sanitizer": "skipped: not here"}
    command = [tool, "--tool", "memcheck", "--error-exitcode", "9", "--kernel-regex", "kns=snnlib"]
    script = str(Path(__file__).with_name("gpu_check.py"))
    # Without torch's cache every tensor is an allocation of its own, and its end can be overrun.
    environment = {**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    done = subprocess.run(
        [*command, sys.executable, script, "--stage", "kernels"],
        capture_output=True, text=True, check=False, env=environment,
    )  # fmt: skip
    output = done.stdout + done.stderr
    if "Device not supported" in output:
        return {"compute-sanitizer": "skipped: it does not support this device"}
    assert done.returncode == 0, output[-2500:]
    return {"compute-sanitizer": output.strip().splitlines()[-1].strip("= ")}
