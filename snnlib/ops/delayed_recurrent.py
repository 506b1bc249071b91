"""Recurrent neurons of the linear family whose spikes come back later, with a delay for each connection.

Kernels: cpp/include/snnlib/recurrent.h, cpp/cpu/recurrent_*.cpp and cpp/include/snnlib/kernels/recurrent_delays.h;
reference: snnlib/backends/reference/delayed_recurrent.py. What the spikes tell weights and delays is what the events
of a delayed fully connected layer tell them, one step later (ops/delayed_linear.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from snnlib import checks
from snnlib.backends import cpu_memory, native, reference
from snnlib.backends.native import state_dtype
from snnlib.backends.reference.linear import Flags, count_states
from snnlib.ops import recurrent
from snnlib.ops.delay import check_delays, time_first
from snnlib.ops.delayed_linear import delayed_linear_backward
from snnlib.ops.scan import sum_neurons

if TYPE_CHECKING:
    from snnlib.neurons.dynamics import Dynamics

# Steps of all neurons that the kernels can number, less than 2^31.
_MOST_STEPS = 1 << 30


def run(
    current: Tensor,
    weight: Tensor,
    delay: Tensor,
    dynamics: Dynamics,
    state: Tensor | None,
    past: Tensor | None,
    lengths: Tensor | None,
    longest: int,
    rounded: bool,
    time_dim: int,
) -> tuple[Tensor, Tensor]:
    """Spikes and the neurons' own states after each sample's last step."""
    coefficients = dynamics.pack(state_dtype(current), current.device)
    learned = (current, weight, delay, coefficients, state, past)
    keep = torch.is_grad_enabled() and any(part is not None and part.requires_grad for part in learned)
    value, final, _ = delayed_recurrent_forward(
        *learned, lengths, dynamics.flags, longest, rounded, time_dim, keep
    )
    return value, final


def _check(
    current: Tensor,
    weight: Tensor,
    delay: Tensor,
    coefficients: Tensor,
    state: Tensor | None,
    past: Tensor | None,
    lengths: Tensor | None,
    flags: Sequence[int],
    longest: int,
    time_dim: int,
    name: str = "current",
) -> tuple[Flags, Tensor | None]:
    """The options, and the lengths as the kernels take them."""
    options, lengths = recurrent.check(current, weight, coefficients, None, lengths, flags, time_dim, name)
    checks.check_tensor("delay", delay)
    check_delays(current, delay, time_dim, weight)
    if longest < 0 or (delay.numel() and float(delay.detach().max()) > longest):
        raise ValueError(f"longest: expected a number of steps that no delay exceeds, got {longest}")
    most = _MOST_STEPS // max(current.shape[2], 1)
    if longest > most:
        raise ValueError(
            f"longest: expected at most {most} steps for {current.shape[2]} neurons, got {longest}"
        )
    _check_own("state", state, current, coefficients, options, time_dim)
    step = [current.shape[1 - time_dim], current.shape[2]]
    if past is not None:
        checks.check_kernel_dtype("past", past)
        checks.check_shape(
            "past", past, (longest + 2, *step), "spikes of longest + 2 steps [longest + 2, N, H]"
        )
        checks.check_device("past", past, current)
    return options, lengths


def _check_own(
    name: str, state: Tensor | None, current: Tensor, coefficients: Tensor, options: Flags, time_dim: int
) -> None:
    rows = [f"state {i}" for i in range(count_states(len(coefficients)) + options.reset_next)]
    step = [current.shape[1 - time_dim], current.shape[2]]
    checks.check_state_shape(state, rows, step, current, name)


def _own_like(current: Tensor, coefficients: Tensor, reset_next: bool, time_dim: int) -> Tensor:
    rows = count_states(len(coefficients)) + reset_next
    shape = (rows, current.shape[1 - time_dim], current.shape[2])
    return current.new_empty(shape, dtype=state_dtype(current))


class _Call(recurrent.Call):
    def __init__(
        self,
        current: Tensor,
        weight: Tensor,
        delay: Tensor,
        coefficients: Tensor,
        state: Tensor | None,
        past: Tensor | None,
        lengths: Tensor | None,
        flags: Flags,
        longest: int,
        rounded: bool,
        time_dim: int,
    ) -> None:
        if past is None:
            # The sequence's own spikes never arrive later than this.
            longest = min(longest, current.shape[time_dim])
        before = None
        if state is not None or past is not None:
            own = (
                _own_like(current, coefficients, flags.reset_next, time_dim).zero_()
                if state is None
                else state
            )
            spikes = own.new_zeros((longest + 2, *own.shape[1:])) if past is None else past.to(own.dtype)
            before = torch.cat((own, spikes))
        super().__init__(current, weight, coefficients, before, lengths, flags, time_dim)
        self.weight = weight.to(self.dtype).contiguous()
        self.delay = delay.to(self.dtype).contiguous()
        self.delays = (self.delay.data_ptr(), longest, not rounded)


@torch.library.custom_op("snnlib::delayed_recurrent_forward", mutates_args=())
def delayed_recurrent_forward(
    current: Tensor,
    weight: Tensor,
    delay: Tensor,
    coefficients: Tensor,
    state: Tensor | None,
    past: Tensor | None,
    lengths: Tensor | None,
    flags: Sequence[int],
    longest: int,
    rounded: bool,
    time_dim: int,
    keep: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """(spikes, own states after each sample's last step, sums of currents of every step, empty unless `keep`).

    `past` `[longest + 2, N, H]` has the spikes of the steps before the first one, the newest first.
    """
    options, lengths = _check(
        current, weight, delay, coefficients, state, past, lengths, flags, longest, time_dim
    )
    kernel = native.kernel(
        "delayed_recurrent_forward",
        current,
        weight=weight,
        delay=delay,
        coefficients=coefficients,
        state=state,
        past=past,
    )
    final = _own_like(current, coefficients, options.reset_next, time_dim)
    every = range(current.dim())
    value = cpu_memory.empty_permuted(current.shape, every, current)
    total = current.new_empty(0, dtype=state_dtype(current))
    if keep:
        total = cpu_memory.empty_permuted(current.shape, every, current, total.dtype)
    if kernel is None:
        spikes, last, sums = reference.delayed_recurrent.forward(
            time_first(current, time_dim),
            weight,
            delay,
            coefficients,
            state,
            past,
            lengths,
            options,
            longest,
            rounded,
        )
        if keep:
            total.copy_(time_first(sums, time_dim))
        return value.copy_(time_first(spikes, time_dim)), final.copy_(last), total
    call = _Call(
        current, weight, delay, coefficients, state, past, lengths, options, longest, rounded, time_dim
    )
    spikes = value if value.dtype == call.dtype else cpu_memory.empty_like(value, call.dtype)
    kernel(*call.arguments(), spikes.data_ptr(), final.data_ptr(), total.data_ptr() if keep else 0)
    return spikes.to(current.dtype), final, total


@delayed_recurrent_forward.register_fake
def _(
    current: Tensor,
    weight: Tensor,
    delay: Tensor,
    coefficients: Tensor,
    state: Tensor | None,
    past: Tensor | None,
    lengths: Tensor | None,
    flags: Sequence[int],
    longest: int,
    rounded: bool,
    time_dim: int,
    keep: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    final = _own_like(current, coefficients, bool(flags[4]), time_dim)
    total = current.new_empty(current.shape if keep else 0, dtype=state_dtype(current))
    return current.new_empty(current.shape), final, total


@torch.library.custom_op("snnlib::delayed_recurrent_backward", mutates_args=())
def delayed_recurrent_backward(
    grad_value: Tensor,
    grad_state: Tensor | None,
    total: Tensor,
    value: Tensor,
    weight: Tensor,
    delay: Tensor,
    coefficients: Tensor,
    state: Tensor | None,
    past: Tensor | None,
    lengths: Tensor | None,
    flags: Sequence[int],
    longest: int,
    rounded: bool,
    time_dim: int,
    learn: bool,
    need_weight: bool,
    need_delay: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """dL/dcurrent, dL/dweight, dL/ddelay, dL/dcoefficients `[P, C]`, dL/dstate, dL/dpast.

    The second has no elements unless `need_weight`, the third none unless `need_delay`, the fourth none unless `learn`,
    the last none without `past`.
    """
    options, lengths = _check(
        total, weight, delay, coefficients, state, past, lengths, flags, longest, time_dim, "total"
    )
    checks.check_gradient("grad_value", grad_value, total.shape, "the currents' shape", total)
    checks.check_gradient("value", value, total.shape, "the currents' shape", total)
    _check_own("grad_state", grad_state, total, coefficients, options, time_dim)
    kernel = native.kernel(
        "delayed_recurrent_backward",
        total,
        grad_value=grad_value,
        value=value,
        weight=weight,
        delay=delay,
        coefficients=coefficients,
        state=state,
        past=past,
    )
    rows = coefficients.new_empty(0)
    grad = cpu_memory.empty_permuted(total.shape, range(total.dim()), total, state_dtype(total))
    start = _own_like(total, coefficients, options.reset_next, time_dim)
    if kernel is None:
        found = reference.delayed_recurrent.backward(
            time_first(grad_value, time_dim),
            grad_state,
            time_first(total, time_dim),
            weight,
            delay,
            coefficients,
            state,
            lengths,
            options,
            longest,
            rounded,
        )
        grad.copy_(time_first(found[0], time_dim))
        start, grad_past = found[2:]
        if learn:
            rows = sum_neurons(found[1], coefficients)
    else:
        call = _Call(
            total, weight, delay, coefficients, state, past, lengths, options, longest, rounded, time_dim
        )
        spikes, signal = (tensor.to(call.dtype).contiguous() for tensor in (value, grad_value))
        final = None if grad_state is None else grad_state.to(call.dtype).contiguous()
        own = len(start)
        if call.state is not None:
            start = torch.empty_like(call.state)
        by_neuron = start.new_empty((len(coefficients), *start.shape[1:]) if learn else 0)
        kernel(
            *call.arguments(),
            spikes.data_ptr(),
            signal.data_ptr(),
            native.address(final),
            grad.data_ptr(),
            start.data_ptr(),
            by_neuron.data_ptr() if learn else 0,
            # Neither a gradient of the weights nor room that kernels with delays have no use for.
            *(0, 0),
        )
        if learn:
            rows = sum_neurons(by_neuron, coefficients)
        start, grad_past = start[:own].clone(), start[own:].clone()
    events, signals = _as_delayed(value.to(grad.dtype), grad, past, longest, time_dim)
    _, grad_weight, grad_delay = delayed_linear_backward(
        signals, events, weight, delay, rounded, time_dim, False, need_weight, need_delay
    )
    return grad, grad_weight, grad_delay, rows, start, grad_past if past is not None else grad.new_empty(0)


def _as_delayed(
    value: Tensor, grad: Tensor, past: Tensor | None, longest: int, time_dim: int
) -> tuple[Tensor, Tensor]:
    """Events of a delayed fully connected layer and the signals of its currents, from its first event on.

    A spike without delay arrives one step later, so event and signal of the same place are those of neighbouring steps.
    """
    steps = value.shape[time_dim]
    if past is None:
        past = value.new_zeros(1, value.shape[1 - time_dim], value.shape[2])
    before = time_first(past.flip(0).to(value.dtype), time_dim)
    events = torch.cat((before, value.narrow(time_dim, 0, max(steps - 1, 0))), time_dim)
    if not steps:
        events = events.narrow(time_dim, 0, len(past) - 1)
    silent = torch.zeros_like(before.narrow(time_dim, 0, len(past) - 1))
    return events, torch.cat((silent, grad), time_dim)


@delayed_recurrent_backward.register_fake
def _(
    grad_value: Tensor,
    grad_state: Tensor | None,
    total: Tensor,
    value: Tensor,
    weight: Tensor,
    delay: Tensor,
    coefficients: Tensor,
    state: Tensor | None,
    past: Tensor | None,
    lengths: Tensor | None,
    flags: Sequence[int],
    longest: int,
    rounded: bool,
    time_dim: int,
    learn: bool,
    need_weight: bool,
    need_delay: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    wide = state_dtype(total)
    return (
        total.new_empty(total.shape, dtype=wide),
        weight.new_empty(weight.shape if need_weight else 0),
        delay.new_empty(delay.shape if need_delay else 0),
        coefficients.new_empty(coefficients.shape if learn else 0),
        _own_like(total, coefficients, bool(flags[4]), time_dim),
        total.new_empty(0 if past is None else past.shape, dtype=wide),
    )


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    *tensors, ctx.flags, ctx.longest, ctx.rounded, ctx.time_dim, _ = inputs
    current, *learned = tensors
    value, _, total = output
    ctx.dtype = current.dtype
    ctx.save_for_backward(total, value, *learned)
    # The sums have no gradient, for which zeros of their size would be filled in.
    ctx.set_materialize_grads(False)


def _backward(
    ctx: Any, grad_value: Tensor | None, grad_state: Tensor | None, _total: Tensor | None
) -> tuple[Tensor | None, ...]:
    tensors = ctx.saved_tensors
    if grad_value is None:
        grad_value = torch.zeros_like(tensors[1])
    need_weight, need_delay, learn = ctx.needs_input_grad[1:4]
    options = ctx.flags, ctx.longest, ctx.rounded, ctx.time_dim, learn, need_weight, need_delay
    grad, grad_weight, grad_delay, rows, start, grad_past = delayed_recurrent_backward(
        grad_value, grad_state, *tensors, *options
    )
    state, past = tensors[5:7]
    return (
        grad.to(ctx.dtype),
        grad_weight if need_weight else None,
        grad_delay if need_delay else None,
        rows if learn else None,
        None if state is None else start,
        None if past is None else grad_past.to(past.dtype),
        *[None] * 6,
    )


delayed_recurrent_forward.register_autograd(_backward, setup_context=_setup_context)
