"""Currents of a fully connected map whose events arrive later: how the ops of `currents.py` call its kernels.

There is a delay for each input channel or for each connection.

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
from snnlib.backends import choice, cpu_memory, native, reference
from snnlib.backends.geometry import GROUP
from snnlib.backends.native import state_dtype
from snnlib.backends.reference.delay import slope, split
from snnlib.ops.delay import check_delays, shifted, time_first, whole_steps

# Delays per channel: share of inputs that are not zero from which products of delayed sequences cost less than their
# events, and elements of a sequence below which it does not matter.
_DENSE, _SMALL = 0.25, 1 << 20
# Outputs whose weights the kernel reads at once, beyond the end of a row as well: `N` of `add_all_arrivals`.
_TILE = 8 * GROUP


def _by_products(x: Tensor, delay: Tensor) -> bool:
    """Returns whether delays per channel go by dense products of delayed sequences."""
    if delay.dim() > 1 or choice.chosen() == "events":
        return False
    return choice.chosen() == "dense" or (x.numel() > _SMALL and choice.density(x) > _DENSE)


def _sums_by_products(x: Tensor, grad: Tensor, whole: Tensor, time_dim: int) -> list[Tensor]:
    """The sums of `_Linear.sums`, all of them, for delays per channel."""
    signal = grad.to(whole.dtype).flatten(0, 1)
    events = x.to(whole.dtype)
    # Nobody reads the sum before the arrival of an event without delay.
    steps = (whole - 1).clamp(min=0), whole, whole + 1
    return [shifted(events, by, True, time_dim, earlier=False).flatten(0, 1).t() @ signal for by in steps]


def _sizes(
    x: Tensor, outputs: int, longest: int, per_channel: bool, rounded: bool, time_dim: int
) -> tuple[int, ...]:
    """Sizes and options of a call, as the kernels take them."""
    batch, steps = x.shape[1 - time_dim], x.shape[time_dim]
    rows = (1, steps) if time_dim else (batch, 1)
    return steps, batch, x.shape[2], outputs, *rows, longest, per_channel, not rounded


class _Channels:
    """Arguments that the kernels of delays per channel share; keeps the tensors behind the addresses alive."""

    def __init__(self, x: Tensor, weight: Tensor, delay: Tensor, rounded: bool, time_dim: int) -> None:
        dtype = state_dtype(x)
        self.x = x.to(dtype).contiguous()
        self.rounded = rounded
        whole, self.rest = split(delay.to(dtype), rounded)
        self.delays = whole_steps(whole, x, time_dim)
        longest = int(self.delays.max()) if self.delays.numel() else 0
        self.weight = weight.t().to(dtype).contiguous()
        self.sizes = _sizes(x, len(weight), longest, True, rounded, time_dim)
        self.code = native.DTYPE_CODES[dtype]

    def currents(self, kernel: Any, out: Tensor) -> None:
        padding = -self.weight.shape[1] % GROUP
        # Rows behind the last one, so that no tile ends beyond the tensor.
        behind = math.ceil(_TILE / max(self.weight.shape[1] + padding, 1))
        rows = F.pad(self.weight, (0, padding, 0, behind))
        taps = torch.stack((1 - self.rest, self.rest), -1)
        kernel(
            self.sizes,
            self.code,
            self.x.data_ptr(),
            self.delays.data_ptr(),
            taps.data_ptr(),
            rows.data_ptr(),
            rows.shape[1],
            out.data_ptr(),
        )

    def sums(self, kernel: Any, grad: Tensor, need_delay: bool) -> list[Tensor]:
        """Sums `[I, O]` of `x[t] grad[t + k + i]` for i = -1, 0, 1; one that is not needed is that of i = 0."""
        signal = grad.to(self.x.dtype).contiguous()
        first = -1 if self.rounded and need_delay else 0
        count = 3 if self.rounded and need_delay else 1 if self.rounded else 2
        out = signal.new_empty(count, *self.weight.shape)
        kernel(
            self.sizes,
            self.code,
            self.x.data_ptr(),
            self.delays.data_ptr(),
            signal.data_ptr(),
            out.data_ptr(),
            first,
            count,
        )
        now = -first
        before, after = max(now - 1, 0), min(now + 1, count - 1)
        return [out[before], out[now], out[after]]


class _Connections:
    """Arguments that the kernels of delays per connection share; keeps the tensors behind the addresses alive."""

    def __init__(self, x: Tensor, weight: Tensor, delay: Tensor, rounded: bool, time_dim: int) -> None:
        dtype = state_dtype(x)
        self.x, self.weight, self.delay = (part.to(dtype).contiguous() for part in (x, weight, delay))
        latest = split(self.delay.max(), rounded)[0] if self.delay.numel() else 0
        # Events that are later by more never arrive, and see nothing of a signal.
        longest = min(int(latest), x.shape[time_dim] + 1)
        self.sizes = _sizes(x, len(weight), longest, False, rounded, time_dim)
        self.code = native.DTYPE_CODES[dtype]

    def currents(self, kernel: Any, out: Tensor) -> None:
        addresses = [part.data_ptr() for part in (self.x, self.weight, self.delay, out)]
        kernel(self.sizes, self.code, *addresses)

    def gradients(
        self, kernel: Any, grad: Tensor, need_weight: bool, need_delay: bool
    ) -> tuple[Tensor, Tensor]:
        """dL/dweight and dL/ddelay, of the kernels' dtype; one that is not needed has no elements."""
        signal = grad.to(self.x.dtype).contiguous()
        by_weight, by_delay = (
            torch.empty_like(self.weight) if need else self.weight.new_empty(0)
            for need in (need_weight, need_delay)
        )
        inputs = [part.data_ptr() for part in (self.x, self.weight, self.delay, signal)]
        outputs = (by_weight.data_ptr() if need_weight else 0, by_delay.data_ptr() if need_delay else 0)
        kernel(self.sizes, self.code, *inputs, *outputs)
        return by_weight, by_delay

    def input_gradient(self, kernel: Any, grad: Tensor) -> Tensor:
        """dL/dx, of the kernels' dtype."""
        signal, out = grad.to(self.x.dtype).contiguous(), cpu_memory.empty_like(self.x)
        addresses = [part.data_ptr() for part in (self.weight, self.delay, signal, out)]
        kernel(self.sizes, self.code, *addresses)
        return out


class Delayed(NamedTuple):
    """Events x `[T, N, I]`, weights `[O, I]`, and delays `[I]` or `[O, I]`, rounded to whole steps or not."""

    x: Tensor
    weight: Tensor
    delay: Tensor
    rounded: bool
    time_dim: int


def forward(call: Delayed) -> Tensor:
    """Returns currents `[T, N, O]`, which input i reaches after `delay[o, i]` steps."""
    _check(call)
    x, weight, delay, rounded, time_dim = call
    out = x.new_empty(*x.shape[:2], weight.shape[0])
    name = "delayed_channels" if delay.dim() == 1 else "delayed_connections"
    kernel = native.kernel(name, x, weight=weight, delay=delay)
    if kernel is None:
        wide = state_dtype(x)
        found = reference.delay.linear(
            time_first(x, time_dim).to(wide), weight.to(wide), delay.to(wide).expand_as(weight), rounded
        )
        return out.copy_(time_first(found, time_dim))
    if _by_products(x, delay):
        delayed = shifted(x.to(state_dtype(x)), delay, rounded, time_dim, earlier=False)
        return (delayed @ weight.t().to(delayed.dtype)).to(x.dtype)
    currents = cpu_memory.empty_like(out, state_dtype(x))
    arguments = _Channels if delay.dim() == 1 else _Connections
    arguments(x, weight, delay, rounded, time_dim).currents(kernel, currents)
    return currents.to(x.dtype)


def _check(call: Delayed) -> None:
    x, weight, delay, _, time_dim = call
    checks.check_kernel_dtype("x", x)
    checks.check_kernel_dtype("weight", weight)
    checks.check_rank("weight", weight, "[O, I]", exactly=2)
    checks.check_device("weight", weight, x)
    checks.check_tensor("delay", delay)
    check_delays(x, delay, time_dim, None if delay.dim() == 1 else weight)
    checks.check_rank("x", x, "[T, N, I]", exactly=3)
    if x.shape[2] != weight.shape[1]:
        raise ValueError(f"x: expected {weight.shape[1]} inputs in dimension 2, got shape {tuple(x.shape)}")


def _input_gradient(grad: Tensor, call: Delayed) -> Tensor:
    x, weight, delay, rounded, time_dim = call
    if delay.dim() == 1:
        field = grad.to(state_dtype(x)) @ weight.to(state_dtype(x))
        return shifted(field, delay, rounded, time_dim, earlier=True).to(x.dtype)
    kernel = native.kernel("delayed_connections_input", x, grad=grad, weight=weight, delay=delay)
    if kernel is not None:
        return _Connections(x, weight, delay, rounded, time_dim).input_gradient(kernel, grad).to(x.dtype)
    wide = state_dtype(x)
    found = reference.delay.linear_input_backward(
        time_first(grad, time_dim).to(wide), weight.to(wide), delay.to(wide), rounded
    )
    return torch.empty_like(x).copy_(time_first(found, time_dim))


def backward(
    grad: Tensor, call: Delayed, need_x: bool, need_weight: bool, need_delay: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns dL/dx, dL/dweight and dL/ddelay; one that is not needed has no elements."""
    _check(call)
    x, weight, delay, rounded, time_dim = call
    shape = (*x.shape[:2], weight.shape[0])
    checks.check_gradient("signal", grad, shape, "the currents' shape", x)
    grad_x, grad_weight, grad_delay = x.new_empty(0), weight.new_empty(0), delay.new_empty(0)
    if need_x:
        grad_x = _input_gradient(grad, call)
    if not need_weight and not need_delay:
        return grad_x, grad_weight, grad_delay
    name = "delayed_channels_sums" if delay.dim() == 1 else "delayed_connections_gradients"
    kernel = native.kernel(name, x, grad=grad, weight=weight, delay=delay)
    if kernel is not None and delay.dim() > 1:
        found = _Connections(x, weight, delay, rounded, time_dim).gradients(
            kernel, grad, need_weight, need_delay
        )
        return grad_x, found[0].to(weight.dtype), found[1].to(delay.dtype)
    wide = state_dtype(x)
    # As events meet them, `[I, O]` or `[I, 1]`.
    by_input = (delay[None] if delay.dim() == 1 else delay).t().to(wide).contiguous()
    whole, rest = split(by_input, rounded)
    if kernel is None:
        signal, events = (time_first(part, time_dim).to(wide) for part in (grad, x))
        sums = reference.delay.linear_sums(signal, events, whole.t().expand_as(weight))
        sums = [part.t() for part in sums]
    elif _by_products(x, delay):
        sums = _sums_by_products(x, grad, whole[:, 0].to(wide), time_dim)
    else:
        sums = _Channels(x, weight, delay, rounded, time_dim).sums(kernel, grad, need_delay)
    if need_weight:
        by_weight = sums[1] if rounded else sums[1] + rest * (sums[2] - sums[1])
        grad_weight = by_weight.t().to(weight.dtype).contiguous()
    if need_delay:
        slopes = weight.to(wide) * slope(sums, whole, rounded).t()
        grad_delay = (slopes.sum(0) if delay.dim() == 1 else slopes).to(delay.dtype).contiguous()
    return grad_x, grad_weight, grad_delay
