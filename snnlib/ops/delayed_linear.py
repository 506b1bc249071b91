"""Currents of a fully connected map whose events take a time of their own on each connection.

Kernels: cpp/include/snnlib/delay.h and cpp/cpu/delay.cpp; reference: snnlib/backends/reference/delay.py. The gradient
by the input is dense: one product for each whole delay.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from snnlib.backends import native, reference
from snnlib.backends.reference.delay import slope, split
from snnlib.backends.reference.srm import state_dtype
from snnlib.ops import checks
from snnlib.ops.delay import check_delays, time_first


class _Linear:
    """Arguments that the kernels with a delay per connection share; keeps the tensors behind the addresses alive."""

    def __init__(self, x: Tensor, weight: Tensor, delay: Tensor, rounded: bool, time_dim: int) -> None:
        dtype = state_dtype(x)
        self.x = x.to(dtype).contiguous()
        whole, self.rest = split(delay.t().to(dtype), rounded)
        self.delays = whole.int().contiguous()
        self.longest = int(self.delays.max()) if self.delays.numel() else 0
        self.weight = weight.t().to(dtype)
        batch, steps = x.shape[1 - time_dim], x.shape[time_dim]
        rows = (1, steps) if time_dim else (batch, 1)
        self.sizes = (steps, batch, x.shape[2], weight.shape[0], *rows, self.longest)
        self.code = native.DTYPE_CODES[dtype]
        self.time_dim = time_dim

    def sums(self, kernel: Any, grad: Tensor, earlier: int) -> Tensor:
        """Sums `[I, O, 2]` of `x[t] grad[t + k - earlier]` and of the step behind it."""
        time_last = grad.to(self.x.dtype).movedim(self.time_dim, 2)
        # Zeros where a delayed event arrives before the first or after the last step.
        around = torch.nn.functional.pad(time_last, (1, self.longest + 2)).contiguous()
        out = around.new_empty(*self.delays.shape, 2)
        kernel(
            self.sizes,
            self.code,
            self.x.data_ptr(),
            self.delays.data_ptr(),
            around.data_ptr(),
            around.shape[2],
            1 - earlier,
            out.data_ptr(),
        )
        return out


@torch.library.custom_op("snnlib::delayed_linear_forward", mutates_args=())
def delayed_linear_forward(x: Tensor, weight: Tensor, delay: Tensor, rounded: bool, time_dim: int) -> Tensor:
    """Currents `[T, N, O]` of events `[T, N, I]` that reach output o from input i after `delay[o, i]` steps."""
    _check_linear(x, weight, delay, time_dim)
    out = x.new_empty(*x.shape[:2], weight.shape[0])
    kernel = native.kernel("delayed_linear", x, weight=weight, delay=delay)
    if kernel is None:
        wide = state_dtype(x)
        found = reference.delay.linear(
            time_first(x, time_dim).to(wide), weight.to(wide), delay.to(wide), rounded
        )
        return out.copy_(time_first(found, time_dim))
    call = _Linear(x, weight, delay, rounded, time_dim)
    taps = torch.stack((call.weight * (1 - call.rest), call.weight * call.rest), 2).contiguous()
    currents = native.on_huge_pages(out.to(call.x.dtype))
    kernel(
        call.sizes,
        call.code,
        call.x.data_ptr(),
        call.delays.data_ptr(),
        taps.data_ptr(),
        currents.data_ptr(),
    )
    return currents.to(x.dtype)


def _check_linear(x: Tensor, weight: Tensor, delay: Tensor, time_dim: int) -> None:
    checks.check_kernel_dtype("x", x)
    checks.check_kernel_dtype("weight", weight)
    checks.check_rank("weight", weight, "[O, I]", exactly=2)
    checks.check_device("weight", weight, x)
    check_delays(x, delay, time_dim, weight)
    checks.check_rank("x", x, "[T, N, I]", exactly=3)
    if x.shape[2] != weight.shape[1]:
        raise ValueError(f"x: expected {weight.shape[1]} inputs in dimension 2, got shape {tuple(x.shape)}")


@delayed_linear_forward.register_fake
def _(x: Tensor, weight: Tensor, delay: Tensor, rounded: bool, time_dim: int) -> Tensor:
    return x.new_empty(*x.shape[:2], weight.shape[0])


@torch.library.custom_op("snnlib::delayed_linear_backward", mutates_args=())
def delayed_linear_backward(
    grad: Tensor,
    x: Tensor,
    weight: Tensor,
    delay: Tensor,
    rounded: bool,
    time_dim: int,
    need_x: bool,
    need_weight: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """dL/dx, dL/dweight and dL/ddelay; the first without elements unless `need_x`, the others unless `need_weight`."""
    _check_linear(x, weight, delay, time_dim)
    shape = (*x.shape[:2], weight.shape[0])
    checks.check_gradient("grad", grad, shape, "the currents' shape", x)
    wide = state_dtype(x)
    grad_x, grad_weight, grad_delay = x.new_empty(0), weight.new_empty(0), delay.new_empty(0)
    if need_x:
        found = reference.delay.linear_input_backward(
            time_first(grad, time_dim).to(wide), weight.to(wide), delay.to(wide), rounded
        )
        grad_x = torch.empty_like(x).copy_(time_first(found, time_dim))
    if not need_weight:
        return grad_x, grad_weight, grad_delay
    kernel = native.kernel("delayed_linear_sums", x, grad=grad, weight=weight, delay=delay)
    if kernel is None:
        whole, rest = split(delay.to(wide), rounded)
        signal, events = (time_first(part, time_dim).to(wide) for part in (grad, x))
        sums = reference.delay.linear_sums(signal, events, whole)
    else:
        call = _Linear(x, weight, delay, rounded, time_dim)
        whole, rest = call.delays.t(), call.rest.t()
        now, after = call.sums(kernel, grad, 0).permute(2, 1, 0)
        sums = [call.sums(kernel, grad, 1)[..., 0].t() if rounded else now, now, after]
    grad_weight = (sums[1] + rest * (sums[2] - sums[1])).to(weight.dtype).contiguous()
    grad_delay = weight.to(wide) * slope(sums, whole, rounded)
    return grad_x, grad_weight, grad_delay.to(delay.dtype).contiguous()


@delayed_linear_backward.register_fake
def _(
    grad: Tensor,
    x: Tensor,
    weight: Tensor,
    delay: Tensor,
    rounded: bool,
    time_dim: int,
    need_x: bool,
    need_weight: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    return (
        torch.empty_like(x) if need_x else x.new_empty(0),
        weight.new_empty(weight.shape if need_weight else 0),
        delay.new_empty(delay.shape if need_weight else 0),
    )


def _setup_linear(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, weight, delay, ctx.rounded, ctx.time_dim = inputs
    ctx.save_for_backward(x, weight, delay)


def _backward_linear(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    need_x, need_weight, need_delay = ctx.needs_input_grad[:3]
    grad_x, grad_weight, grad_delay = delayed_linear_backward(
        grad, *ctx.saved_tensors, ctx.rounded, ctx.time_dim, need_x, need_weight or need_delay
    )
    return (
        grad_x if need_x else None,
        grad_weight if need_weight else None,
        grad_delay if need_delay else None,
        None,
        None,
    )


delayed_linear_forward.register_autograd(_backward_linear, setup_context=_setup_linear)
