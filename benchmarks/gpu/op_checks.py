"""Stages of check.py: every op on the device against the CPU, its streams, errors and sizes."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import op_calls
import torch
from torch import Tensor, nn

import snnlib
from snnlib import functional as F
from snnlib.backends import native

from .stages import Setting
from .tools import (
    CONSTANTS,
    DTYPES,
    OPS,
    Results,
    assert_bits,
    assert_close,
    currents,
    signals,
    to_device,
    without_tf32,
)


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
    """Whether each output has the CPU's bits; raises where it is further away than it may be."""
    forward = ("srm_forward", "srm_trace", "srm_pool_forward", "scan_forward", "scan_pool_forward")
    forward += ("recurrent_forward", "delay_forward")
    for case in OPS.values():
        for sample in case.samples[: 2 if run.small else None]:
            for dtype in DTYPES:
                args = sample.arguments(dtype)
                outputs = case(*(to_device(run.device, value) for value in args))
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
    """The same for the backward pass of sequences that the kernel takes in one chunk, two and many."""
    case = OPS["srm_backward"]
    for steps in (48, 49, 97, 300):
        for dtype in DTYPES:
            current = currents(run, steps, 2, 3, 40, dtype=dtype)
            for needs in ((True, True), (True, False), (False, True)):
                limit = torch.ones((), device=run.device)
                args = (current.flip(0), current, limit, None, *CONSTANTS, 0, *needs)
                expected = case(*(to_device(torch.device("cpu"), value) for value in args))
                for out, other in zip(case(*args), expected, strict=True):
                    assert_close(out.cpu(), other.double(), case.tolerance[dtype], f"{steps} steps, {dtype}")
                    yield torch.equal(out.cpu(), other)


def _reciprocals(run: Setting) -> Iterator[bool]:
    """The same for 1 / x of every mantissa, by exponents at both ends and in the middle, in one launch."""
    mantissas = torch.arange(0, 2**23, 2**13 if run.small else 1, dtype=torch.int32)
    exponents = torch.tensor([-125, 0, 125], dtype=torch.int32)
    x = (mantissas + ((exponents[:, None] + 127) << 23)).view(torch.float32).reshape(1, 1, -1)
    # By these constants the potential rises in its first step by the current, its trace for inputs by half of it, and
    # both signals are 1 / x.
    taus, limit = (5.0, 1.0, 2.0, math.inf), torch.full((), 2.0**-126, device=run.device)
    current = x.to(run.device)
    for signal in OPS["srm_backward"](torch.ones_like(current), current, limit, None, *taus, 0, True, True):
        assert_bits(signal.cpu(), 1 / x, "reciprocals")
        yield True


def scans(run: Setting) -> Results:
    """Every neuron model on the device and on the CPU: spikes and states to the bit, gradients too."""
    compared = 0
    for name, model in snnlib.neurons.MODELS.items():
        for steps in (1, 7, 50, 300) if not run.small else (7,):
            neuron = model()
            x = currents(run, steps, 4, 3, 40) * 2 + 1

            def outputs(x: Tensor, neuron: nn.Module = neuron) -> list[Tensor]:
                x = x.detach().requires_grad_()
                value, (state, *_) = neuron.run(x)  # type: ignore[operator]
                total = (value * signals(value)).sum()
                return [value, state, *torch.autograd.grad(total, [x, *neuron.parameters()])]

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
