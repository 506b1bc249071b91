"""Delayed sequences, one delay per channel; delayed_linear.py delays the events of a fully connected map.

A delay between whole steps interpolates two steps, whose difference is its gradient; a rounded delay gets the slope
between the neighbouring steps. Kernels: cpp/include/snnlib/delay/delay.h, cpp/cpu/delay.cpp and cuda/delay.cu;
reference: snnlib/backends/reference/delay.py.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from snnlib import checks
from snnlib.backends import cpu_memory, native, reference
from snnlib.backends.memo import once
from snnlib.backends.native import state_dtype
from snnlib.backends.reference.delay import slope, split
from snnlib.ops.declare import custom_op, register_fake
from snnlib.ops.sequence_layout import contiguous, neuron_order, outer_strides


def check_delays(x: Tensor, delay: Tensor, weight: Tensor | None = None) -> None:
    """Checks a sequence and its delays, one per channel or one for each element of the weight."""
    _check_kinds(x, delay, weight)
    # The smallest of numbers with a NaN among them is NaN.
    if x.device.type == "cpu" and delay.numel() and not float(delay.min()) >= 0:
        raise ValueError(f"delay: expected numbers of time steps >= 0, got {float(delay.min())}")


@once
def _check_kinds(x: Tensor, delay: Tensor, weight: Tensor | None) -> None:
    checks.check_kernel_dtype("x", x)
    checks.check_rank("x", x, "[T, N, C, ...]", at_least=3)
    checks.check_floating("delay", delay)
    checks.check_device("delay", delay, x)
    shape = x.shape[2:3] if weight is None else weight.shape
    checks.check_shape("delay", delay, shape, f"shape {list(shape)}")


def _dense(x: Tensor) -> Tensor:
    """Returns the sequence `[T, N, C, ...]` in the kernels' dtype and as `[T, N, C, S]` or `[T, N, S, C]` in memory."""
    x = x.to(state_dtype(x))
    rest = neuron_order(x)
    return x if rest == (*range(3, x.dim()), 2) else contiguous(x, x)


def _sequence(x: Tensor, delays: Tensor) -> dict[str, Any]:
    """Returns `DelayShiftArgs` of cpp/include/snnlib/delay/delay.h for a dense sequence and whole delays."""
    space = x.shape[3:].numel()
    channel, cell = (1, x.shape[2]) if x.dim() > 3 and x.stride(2) == 1 else (space, 1)
    step, sample = outer_strides(x, x.shape[2] * space)
    return {
        "dtype": native.DTYPE_CODES[x.dtype],
        "steps": x.shape[0],
        "batch": x.shape[1],
        "channels": x.shape[2],
        "space": space,
        "step_stride": step,
        "batch_stride": sample,
        "channel_stride": channel,
        "space_stride": cell,
        "x": x,
        "delays": delays,
    }


def whole_steps(whole: Tensor, x: Tensor) -> Tensor:
    """Returns whole delays for kernels, clamped to the length of the sequence so that they fit an index."""
    return whole.clamp(max=len(x) + 1).int().contiguous()


def shifted(x: Tensor, delay: Tensor, rounded: bool, earlier: bool) -> Tensor:
    """Shifts a sequence by the delays; with `earlier`, a gradient back (the adjoint)."""
    kernel = native.kernel("delay_shift", x, delay=delay)
    if kernel is None:
        wide = x.to(state_dtype(x))
        by = reference.delay.shift_adjoint if earlier else reference.delay.shift
        return torch.empty_like(x).copy_(by(wide, delay.to(wide.dtype), rounded))
    whole, rest = split(delay.to(state_dtype(x)), rounded)
    dense = _dense(x)
    out = cpu_memory.empty_like(dense)
    first, second, delays = (1 - rest).contiguous(), rest.contiguous(), whole_steps(whole, x)
    kernel(**_sequence(dense, delays), first=first, second=second, out=out, earlier=earlier)
    return out.to(x.dtype)


@custom_op("snnlib::delay_forward", "(Tensor x, Tensor delay, bool rounded) -> Tensor")
def delay_forward(c: SimpleNamespace) -> Tensor:
    """Delays each channel of a sequence by `delay` `[C]` steps, >= 0; steps before the first are 0."""
    checks.check_reverse_mode("delays")
    check_delays(c.x, c.delay)
    return shifted(c.x, c.delay, c.rounded, earlier=False)


@register_fake(delay_forward)
def _(c: SimpleNamespace) -> Tensor:
    return torch.empty_like(c.x)


@custom_op(
    "snnlib::delay_backward",
    "(Tensor grad, Tensor x, Tensor delay, bool rounded, bool need_x, bool need_delay) -> (Tensor, Tensor)",
)
def delay_backward(c: SimpleNamespace) -> tuple[Tensor, Tensor]:
    """Returns dL/dx and dL/ddelay `[C]`; unneeded gradients have no elements."""
    grad, x, delay = c.grad, c.x, c.delay
    check_delays(x, delay)
    checks.check_gradient("grad", grad, x.shape, "x's shape", x)
    grad_x, grad_delay = x.new_empty(0), delay.new_empty(0)
    if c.need_x:
        earlier = shifted(grad, delay, c.rounded, earlier=True)
        grad_x = torch.empty_like(x)
        grad_x = earlier.to(x.dtype) if earlier.stride() == grad_x.stride() else grad_x.copy_(earlier)
    if not c.need_delay:
        return grad_x, grad_delay
    kernel = native.kernel("delay_shift_sums", x, grad=grad, delay=delay)
    if kernel is None:
        wide = state_dtype(x)
        found = reference.delay.shift_slopes(grad.to(wide), x.to(wide), delay.to(wide), c.rounded)
        grad_delay = found.to(delay.dtype)
    else:
        dense = _dense(x)
        signal = torch.empty_like(dense).copy_(grad)
        whole = whole_steps(split(delay.to(dense.dtype), c.rounded)[0], x)
        sums = torch.empty(x.shape[1], 3, x.shape[2], dtype=torch.float64, device=x.device)
        kernel(**_sequence(dense, whole), grad=signal, sums=sums)
        grad_delay = slope(list(sums.sum(0)), whole, c.rounded).to(delay.dtype)
    return grad_x, grad_delay


@register_fake(delay_backward)
def _(c: SimpleNamespace) -> tuple[Tensor, Tensor]:
    return (
        torch.empty_like(c.x) if c.need_x else c.x.new_empty(0),
        torch.empty_like(c.delay) if c.need_delay else c.delay.new_empty(0),
    )


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, delay, ctx.rounded = inputs
    ctx.save_for_backward(x, delay)


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    need_x, need_delay = ctx.needs_input_grad[:2]
    grad_x, grad_delay = delay_backward(grad, *ctx.saved_tensors, ctx.rounded, need_x, need_delay)
    return grad_x if need_x else None, grad_delay if need_delay else None, None


delay_forward.register_autograd(_backward, setup_context=_setup)
delay_backward.register_autograd(checks.no_second_derivative)
