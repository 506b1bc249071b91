"""Calls of the kernels for fully connected maps with delays, for the ops of `currents.py`.

Delays are per input channel or per connection.

Kernels: cpp/include/snnlib/delay/linear.h and cpp/cpu/delayed_linear.cpp; reference:
snnlib/backends/reference/delay.py.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from snnlib import checks
from snnlib.backends import algorithm, cpu_memory, native, reference
from snnlib.backends.geometry import GROUP
from snnlib.backends.memo import once
from snnlib.backends.native import state_dtype
from snnlib.backends.reference.delay import slope, split
from snnlib.ops.delay import check_delays, shifted, whole_steps
from snnlib.ops.sequence_layout import contiguous, empty_rows, frames_of, outer_strides, sequence_of

# Delays per channel: share of inputs that are not zero from which products of delayed sequences cost less than their
# events, and elements of a sequence below which it does not matter.
_DENSE, _SMALL = 0.25, 1 << 20
# Outputs whose weights the kernel reads at once, beyond the end of a row as well: `N` of `add_all_arrivals`.
_TILE = 8 * GROUP


class Delayed(NamedTuple):
    """Events x `[T, N, I]`, weights `[O, I]`, and delays `[I]` or `[O, I]`, possibly rounded to whole steps."""

    x: Tensor
    weight: Tensor
    delay: Tensor
    rounded: bool


def _by_products(x: Tensor, delay: Tensor) -> bool:
    """Returns whether delays per channel use dense products of delayed sequences."""
    if delay.dim() > 1 or algorithm.chosen() == "events":
        return False
    return algorithm.chosen() == "dense" or (x.numel() > _SMALL and algorithm.density(x) > _DENSE)


def _sums_by_products(x: Tensor, grad: Tensor, whole: Tensor) -> list[Tensor]:
    """Returns all sums of `_sums` by dense products."""
    signal, events = frames_of(grad, x).to(whole.dtype), x.to(whole.dtype)
    # Nobody reads the sum before the arrival of an event without delay.
    steps = (whole - 1).clamp(min=0), whole, whole + 1
    return [frames_of(shifted(events, by, True, earlier=False), x).t() @ signal for by in steps]


def _arguments(call: Delayed) -> dict[str, Any]:
    """Returns `DelayedLinearArgs` of cpp/include/snnlib/delay/linear.h."""
    x, weight, delay, rounded = call
    (steps, batch), dtype = x.shape[:2], state_dtype(x)
    step_rows, batch_rows = outer_strides(x, 1)
    by_connection = delay.dim() > 1
    delay, weight = (part.to(dtype).contiguous() for part in (delay, weight))
    if by_connection:
        latest = split(delay.max(), rounded)[0] if delay.numel() else 0
        # Events that are later by more never arrive, and see nothing of a signal.
        longest, delays = min(int(latest), steps + 1), None
    else:
        delays = whole_steps(split(delay, rounded)[0], x)
        longest = int(delays.max()) if delays.numel() else 0
    return {
        "dtype": native.DTYPE_CODES[dtype],
        "steps": steps,
        "batch": batch,
        "inputs": x.shape[2],
        "outputs": len(weight),
        "step_rows": step_rows,
        "batch_rows": batch_rows,
        "longest": longest,
        "per_channel": not by_connection,
        "two": not rounded,
        "x": contiguous(x.to(dtype), x),
        "delay": delay if by_connection else None,
        "delays": delays,
        "taps": None,
        "weight": weight if by_connection else None,
        "weight_row": 0,
    }


def _by_channel(call: Delayed) -> dict[str, Tensor | int]:
    """Returns interpolation factors and weights for delays per channel."""
    dtype = state_dtype(call.x)
    rest = split(call.delay.to(dtype), call.rounded)[1]
    rows = call.weight.t().to(dtype).contiguous()
    padding = -rows.shape[1] % GROUP
    # Rows behind the last one, so that no tile ends beyond the tensor.
    behind = math.ceil(_TILE / max(rows.shape[1] + padding, 1))
    rows = F.pad(rows, (0, padding, 0, behind))
    return {"taps": torch.stack((1 - rest, rest), -1), "weight": rows, "weight_row": rows.shape[1]}


def _sums(kernel: Any, grad: Tensor, call: Delayed, need_delay: bool) -> list[Tensor]:
    """Returns sums `[I, O]` of `x[t] grad[t + k + i]` for i = -1, 0, 1; unneeded sums repeat i = 0."""
    signal = contiguous(grad.to(state_dtype(call.x)), call.x)
    first = -1 if call.rounded and need_delay else 0
    count = 3 if call.rounded and need_delay else 1 if call.rounded else 2
    out = signal.new_empty(count, *reversed(call.weight.shape))
    kernel(**_arguments(call), grad=signal, sums=out, first=first, count=count)
    now = -first
    before, after = max(now - 1, 0), min(now + 1, count - 1)
    return [out[before], out[now], out[after]]


def _gradients(
    kernel: Any, grad: Tensor, call: Delayed, need_weight: bool, need_delay: bool
) -> tuple[Tensor, Tensor]:
    """Returns dL/dweight and dL/ddelay for delays per connection; unneeded gradients have no elements."""
    signal = contiguous(grad.to(state_dtype(call.x)), call.x)
    by_weight, by_delay = (
        signal.new_empty(call.weight.shape if need else 0) for need in (need_weight, need_delay)
    )
    kernel(
        **_arguments(call),
        grad=signal,
        grad_weight=by_weight if need_weight else None,
        grad_delay=by_delay if need_delay else None,
    )
    return by_weight.to(call.weight.dtype), by_delay.to(call.delay.dtype)


def forward(call: Delayed) -> Tensor:
    """Returns currents `[T, N, O]`, which input i reaches after `delay[o, i]` steps."""
    _check(call)
    x, weight, delay, rounded = call
    out = empty_rows(x, len(weight))
    kernel = native.kernel("delayed_currents", x, weight=weight, delay=delay)
    if kernel is None:
        wide = state_dtype(x)
        by = delay.to(wide).expand_as(weight)
        return out.copy_(reference.delay.linear(x.to(wide), weight.to(wide), by, rounded))
    if _by_products(x, delay):
        delayed = frames_of(shifted(x.to(state_dtype(x)), delay, rounded, earlier=False), x)
        return sequence_of(delayed @ weight.t().to(delayed.dtype), x).to(x.dtype)
    currents = cpu_memory.empty_like(out, state_dtype(x))
    arguments = _arguments(call)
    if delay.dim() == 1:
        arguments |= _by_channel(call)
    kernel(**arguments, out=currents)
    return currents.to(x.dtype)


def _check(call: Delayed) -> None:
    x, weight, delay, _ = call
    _check_kinds(x, weight, delay)
    check_delays(x, delay, None if delay.dim() == 1 else weight)


@once
def _check_kinds(x: Tensor, weight: Tensor, delay: Tensor) -> None:
    checks.check_kernel_dtype("x", x)
    checks.check_kernel_dtype("weight", weight)
    checks.check_rank("weight", weight, "[O, I]", exactly=2)
    checks.check_device("weight", weight, x)
    checks.check_tensor("delay", delay)
    checks.check_rank("x", x, "[T, N, I]", exactly=3)
    if x.shape[2] != weight.shape[1]:
        raise ValueError(f"x: expected {weight.shape[1]} inputs in dimension 2, got shape {tuple(x.shape)}")


def _input_gradient(grad: Tensor, call: Delayed) -> Tensor:
    x, weight, delay, rounded = call
    if delay.dim() == 1:
        field = frames_of(grad.to(state_dtype(x)), x) @ weight.to(state_dtype(x))
        return shifted(sequence_of(field, x), delay, rounded, earlier=True).to(x.dtype)
    kernel = native.kernel("delayed_input", x, grad=grad, weight=weight, delay=delay)
    wide = state_dtype(x)
    if kernel is not None:
        grad_x = empty_rows(x, x.shape[2], wide)
        kernel(**_arguments(call), grad=contiguous(grad.to(wide), x), grad_x=grad_x)
        return grad_x.to(x.dtype)
    found = reference.delay.linear_input_backward(grad.to(wide), weight.to(wide), delay.to(wide), rounded)
    return torch.empty_like(x).copy_(found)


def backward(
    grad: Tensor, call: Delayed, need_x: bool, need_weight: bool, need_delay: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns dL/dx, dL/dweight and dL/ddelay; unneeded gradients have no elements."""
    _check(call)
    x, weight, delay, rounded = call
    shape = (*x.shape[:2], weight.shape[0])
    checks.check_gradient("signal", grad, shape, "the currents' shape", x)
    grad_x, grad_weight, grad_delay = x.new_empty(0), weight.new_empty(0), delay.new_empty(0)
    if need_x:
        grad_x = _input_gradient(grad, call)
    if not need_weight and not need_delay:
        return grad_x, grad_weight, grad_delay
    name = "delayed_sums" if delay.dim() == 1 else "delayed_gradients"
    kernel = native.kernel(name, x, grad=grad, weight=weight, delay=delay)
    if kernel is not None and delay.dim() > 1:
        return grad_x, *_gradients(kernel, grad, call, need_weight, need_delay)
    wide = state_dtype(x)
    # As events meet them, `[I, O]` or `[I, 1]`.
    by_input = (delay[None] if delay.dim() == 1 else delay).t().to(wide).contiguous()
    whole, rest = split(by_input, rounded)
    if kernel is None:
        sums = reference.delay.linear_sums(grad.to(wide), x.to(wide), whole.t().expand_as(weight))
        sums = [part.t() for part in sums]
    elif _by_products(x, delay):
        sums = _sums_by_products(x, grad, whole[:, 0].to(wide))
    else:
        sums = _sums(kernel, grad, call, need_delay)
    if need_weight:
        by_weight = sums[1] if rounded else sums[1] + rest * (sums[2] - sums[1])
        grad_weight = by_weight.t().to(weight.dtype).contiguous()
    if need_delay:
        slopes = weight.to(wide) * slope(sums, whole, rounded).t()
        grad_delay = (slopes.sum(0) if delay.dim() == 1 else slopes).to(delay.dtype).contiguous()
    return grad_x, grad_weight, grad_delay
