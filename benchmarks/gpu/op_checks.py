"""Stages that compare every op on the device with the CPU: its bits, its streams, errors and sizes."""

from __future__ import annotations

import functools
import math
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from stages import Results, Setting
from torch import Tensor, nn

import snnlib
from snnlib import functional as F
from snnlib import neurons, surrogate
from snnlib.backends import native

ROOT = Path(__file__).resolve().parents[2]
# The op list and the comparisons of the test suite.
sys.path.insert(0, str(ROOT / "tests" / "helpers"))
import op_calls  # noqa: E402
from compare import assert_bits, assert_close  # noqa: E402
from opdb import DTYPES, OPS  # noqa: E402

CONSTANTS = (5.0, 3.0, 3.0, 4.0)


def to_device(device: torch.device, values: tuple[Any, ...]) -> list[Any]:
    return [value.to(device) if isinstance(value, Tensor) else value for value in values]


def signals(like: Tensor) -> Tensor:
    """Weights from -1 to 1 of a sum over all elements, made on the CPU: the same bits for every device."""
    return _ramp(like.numel(), like.device, like.dtype).reshape(like.shape)


@functools.cache
def _ramp(count: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    # Kept, as a CUDA graph takes no copies from the host.
    return torch.linspace(-1, 1, count).to(device, dtype)


def currents(run: Setting, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return (torch.randn(shape, generator=generator) * 1.2 + 0.3).to(run.device, dtype)


@contextmanager
def without_tf32() -> Iterator[None]:
    """Convolutions in full float32."""
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    try:
        yield
    finally:
        torch.backends.cudnn.allow_tf32 = before


def close(actual: list[Tensor], expected: list[Tensor], what: str) -> Results:
    """Spikes may flip where a convolution rounds otherwise: one in a thousand. Gradients follow them."""
    flips = (actual[0].cpu() != expected[0].cpu()).double().mean().item()
    assert flips <= 1e-3, f"{what}: {flips:.2%} of spikes differ"
    distances = [
        ((a.cpu() - e.cpu()).norm() / e.cpu().norm().clamp(min=1e-12)).item()
        for a, e in zip(actual[1:], expected[1:], strict=True)
    ]
    assert max(distances) <= (1e-4 if flips == 0 else 0.1), (
        f"{what}: gradients differ by {max(distances):.3g}"
    )
    return {
        f"{what}: share of spikes that differ": flips,
        f"{what}: largest relative difference of gradients": max(distances),
    }


def install(run: Setting) -> Results:
    """The module that was just built is the one in use, and has kernels for the device."""
    path, reason = native.explain_path(run.device.type)
    assert path == "native", reason
    site, file = os.environ.get("SNNLIB_CHECKED_SITE"), native.module_info()["native module"]
    assert site is None or Path(site) in Path(file).parents, f"{file} is in use, not the module in {site}"
    return {"path": f"{path}: {reason}", **native.module_info()}


def ops(run: Setting) -> Results:
    """Every op, sample and dtype of the test suite on the device and on the CPU."""
    with without_tf32():
        compared = [*_op_matrix(run), *_long_sequences(run), *_reciprocals(run)]
    return {"outputs compared with the CPU": len(compared), "of these equal to the bit": sum(compared)}


def _op_matrix(run: Setting) -> Iterator[bool]:
    """Yields whether each output has the CPU's bits; raises above the tolerance."""
    forward = ("srm_forward", "srm_trace", "srm_pool_forward", "scan_forward", "scan_pool_forward")
    forward += ("recurrent_forward", "delay_forward")
    for case in OPS.values():
        for sample in case.samples[: 2 if run.small else None]:
            for dtype in DTYPES:
                args = sample.arguments(dtype)
                outputs = case(*to_device(run.device, args))
                for number, (out, expected) in enumerate(zip(outputs, case(*args), strict=True)):
                    what = f"{case.name}, {sample.name}, {dtype}, output {number}"
                    assert out.device.type == run.device.type, what
                    # Neurons compute in the same order everywhere: spikes, states and traces to the bit.
                    if case.name in forward:
                        assert_bits(out.cpu(), expected, what)
                    else:
                        assert_close(out.cpu(), expected.double(), case.tolerance[dtype], what)
                    yield torch.equal(out.cpu(), expected)


def _long_sequences(run: Setting) -> Iterator[bool]:
    """Compares the backward pass of sequences of one, two and many chunks."""
    case = OPS["srm_backward"]
    for steps in (48, 49, 97, 300):
        for dtype in DTYPES:
            current = currents(run, steps, 2, 3, 40, dtype=dtype)
            for needs in ((True, True), (True, False), (False, True)):
                limit = torch.ones((), device=run.device)
                args = (current.flip(0), current, limit, None, *CONSTANTS, 0, *needs)
                expected = case(*to_device(torch.device("cpu"), args))
                for out, other in zip(case(*args), expected, strict=True):
                    assert_close(out.cpu(), other.double(), case.tolerance[dtype], f"{steps} steps, {dtype}")
                    yield torch.equal(out.cpu(), other)


def _reciprocals(run: Setting) -> Iterator[bool]:
    """Compares 1 / x of every mantissa, with exponents at both ends and in the middle, in one launch."""
    mantissas = torch.arange(0, 2**23, 2**13 if run.small else 1, dtype=torch.int32)
    exponents = torch.tensor([-125, 0, 125], dtype=torch.int32)
    x = (mantissas + ((exponents[:, None] + 127) << 23)).view(torch.float32).reshape(1, 1, -1)
    # With these constants the potential rises in its first step by the current, its trace for inputs by half of it, and
    # both signals are 1 / x.
    taus, limit = (5.0, 1.0, 2.0, math.inf), torch.full((), 2.0**-126, device=run.device)
    current = x.to(run.device)
    for signal in OPS["srm_backward"](torch.ones_like(current), current, limit, None, *taus, 0, True, True):
        assert_bits(signal.cpu(), 1 / x, "reciprocals")
        yield True


def scans(run: Setting) -> Results:
    """Every neuron model on the device and on the CPU: spikes and states to the bit, gradients too."""
    compared = 0
    for name, model in neurons.MODELS.items():
        for steps in (1, 7, 50, 300) if not run.small else (7,):
            neuron = model()
            x = currents(run, steps, 4, 3, 40) * 2 + 1

            def outputs(x: Tensor, neuron: nn.Module = neuron) -> tuple[Tensor, Tensor, list[Tensor]]:
                x = x.detach().requires_grad_()
                value, (state, *_) = neuron.run(x)  # type: ignore[operator]
                total = (value * signals(value)).sum()
                return value, state, list(torch.autograd.grad(total, [x, *neuron.parameters()]))

            value, state, grads = outputs(x.cpu())
            on_device, its_state, its_grads = outputs(x, neuron.to(run.device))
            what = f"{name}, {steps} steps"
            if neuron.dynamics(neuron.constants()) is not None:
                assert_bits(on_device.cpu(), value, f"{what}, spikes")
                assert_bits(its_state.cpu(), state, f"{what}, state")
            close([on_device, *its_grads], [value, *grads], what)
            compared += len(grads)
    return {"gradients of neuron models compared with the CPU": compared}


RECURRENT = {
    "LIF": neurons.LIF(),
    "LIF, triangle": neurons.LIF(surrogate=surrogate.Triangle(0.5)),
    "LIF, next": neurons.LIF(reset_time="next", detach_reset=False),
    "LIF, learned": neurons.LIF(learnable=("tau", "threshold")),
    "CubaLIF": neurons.CubaLIF(),
    "AdLIF": neurons.AdLIF(),
    "KLIF": neurons.KLIF(),
    "Izhikevich": neurons.Izhikevich(a=0.5, b=0.25),
    "Alpha, learned": neurons.Alpha(learnable=("threshold",)),
}


def numbers(*shape: int) -> tuple[Tensor, Tensor]:
    """Currents and weights by which neurons fire now and then."""
    generator = torch.Generator().manual_seed(sum(shape))
    current = torch.randn(shape, generator=generator) * 1.5 + 0.6
    weight = torch.randn(shape[2], shape[2], generator=generator) / math.sqrt(shape[2])
    return current, weight


def _outputs(
    neuron: neurons.Neuron, current: Tensor, weight: Tensor, lengths: Tensor | None
) -> tuple[list[Tensor], list[Tensor]]:
    """Spikes, states and gradients; the gradients of constants, which torch sums over neurons, apart."""
    leaves = [tensor.detach().requires_grad_() for tensor in (current, weight)]
    value, state = F.spiking_recurrent(*leaves, neuron, lengths=lengths)  # type: ignore[arg-type]
    grads = torch.autograd.grad(
        (value * signals(value)).sum() + state[0].sum(), [*leaves, *neuron.parameters()]
    )
    return [value.detach(), *(part.detach() for part in state), *grads[:2]], list(grads[2:])


def recurrent(run: Setting) -> Results:
    """Spikes, states, and gradients of currents and weights have the CPU's bits; each run gives them again."""
    compared = 0
    for name, neuron in RECURRENT.items():
        for size in (20, 200, 600) if not run.small else (20,):
            current, weight = numbers(40, 5, size)
            lengths = torch.tensor([40, 0, 7, 39, 40]) if size == 200 else None
            exact, summed = _outputs(neuron.cpu(), current, weight, lengths)
            on_device = (current.to(run.device), weight.to(run.device))
            there = None if lengths is None else lengths.to(run.device)
            for _ in range(3):
                got, got_sums = _outputs(neuron.to(run.device), *on_device, there)
                for number, (out, expected) in enumerate(zip(got, exact, strict=True)):
                    assert_bits(out.cpu(), expected, f"{name}, {size} neurons, output {number}")
                    compared += 1
                # Sums of 120,000 terms of both signs, in another order.
                for out, expected in zip(got_sums, summed, strict=True):
                    assert_close(out.cpu(), expected.double(), 1e-3, f"{name}, {size} neurons, a constant")
    return {"outputs of recurrent neurons equal to the CPU's": compared}


def streams(run: Setting) -> Results:
    """Kernels run on the current stream: after what was queued there, and not after what waits on another."""
    current = currents(run, 30, 8, 1000)
    limit = torch.ones((), device=run.device)

    def spikes(train: Tensor) -> Tensor:
        return op_calls.srm_forward(train, limit, None, *CONSTANTS, 0, False)[0]  # type: ignore[no-any-return]

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


def errors(run: Setting) -> Results:
    """Wrong devices are refused, nothing outlives a call that ran out of memory, and little is saved for backward."""
    if not run.on_gpu:
        return {"errors": "tested on a GPU"}
    current = currents(run, 6, 2, 8)
    try:
        op_calls.srm_forward(current, torch.ones(()), None, *CONSTANTS, 0, False)
    except ValueError as error:
        assert "threshold: expected a tensor on" in str(error), error
    else:
        raise AssertionError("a threshold on another device was taken")
    results: Results = {"wrong device": "refused"}
    steps, neurons = 30, 1_000_000
    x = currents(run, steps, neurons).reshape(steps, neurons, 1)
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
        op_calls.srm_forward(huge, torch.ones((), device=run.device), None, *CONSTANTS, 0, False)
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
    spikes, _ = op_calls.srm_forward(current, limit, None, *CONSTANTS, 0, False)
    expected, _ = op_calls.srm_forward(tail, limit, None, *CONSTANTS, 0, False)
    assert expected.any()
    assert_bits(spikes[..., -4096:], expected, "last neurons")
    a, b = op_calls.srm_backward(current, current, limit, None, *CONSTANTS, 0, True, True)
    expected_a, expected_b = op_calls.srm_backward(tail, tail, limit, None, *CONSTANTS, 0, True, True)
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


def kernels(run: Setting) -> Results:
    """Every kernel of the library once, for compute-sanitizer: torch's own would take most of the time."""
    calls = 0
    scans = ("scan_forward", "scan_backward", "scan_pool_forward", "scan_pool_backward")
    scans += ("srm_pool_forward", "srm_pool_backward", "recurrent_forward", "recurrent_backward")
    for name in ("srm_forward", "srm_backward", "srm_trace", *scans):
        for sample in OPS[name].samples:
            for dtype in DTYPES:
                OPS[name](*to_device(run.device, sample.arguments(dtype)))
                calls += 1
    for name in ("spike_avg_pool", "spike_avg_pool_backward"):
        for sample in OPS[name].samples:
            OPS[name](*to_device(run.device, sample.arguments(torch.float32)))
            calls += 1
    for steps in (49, 97, 300):
        current = currents(run, steps, 2, 3, 40)
        limit = torch.ones((), device=run.device)
        op_calls.srm_backward(current, current, limit, None, *CONSTANTS, 0, True, True)
        calls += 1
    with snnlib.use_convolution("events"):
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            x = (currents(run, 5, 2, 3, 7, 6) > 1).to(dtype)
            snnlib.SRMConv2d(3, 5, 3, padding=1, stride=2).to(run.device, dtype)(x)
            calls += 1
    if run.on_gpu:
        torch.cuda.synchronize()
    return {"calls of kernels": calls}
