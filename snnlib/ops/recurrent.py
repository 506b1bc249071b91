"""Recurrent neurons of the linear family over whole sequences: one op pair for all models, event-driven both ways.

Kernels: cpp/include/snnlib/recurrent.h, cpp/cpu/recurrent_*.cpp and cuda/recurrent*.cu; reference:
snnlib/backends/reference/recurrent.py. The sums of currents and the spikes are kept for backward, which repeats the
neurons' steps but not the sums.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from snnlib import checks
from snnlib.backends import cpu_memory, native, reference
from snnlib.backends.native import state_dtype
from snnlib.backends.reference.linear import Flags, count_states
from snnlib.ops import levels
from snnlib.ops.delay import time_first
from snnlib.ops.scan import check_dynamics, sum_neurons

if TYPE_CHECKING:
    from snnlib.neurons.dynamics import Dynamics

# What a row of weights is padded to: `kGroup` in cpp/include/snnlib/simd.h.
_GROUP = 16


def run(
    current: Tensor,
    weight: Tensor,
    dynamics: Dynamics,
    state: Tensor | None,
    lengths: Tensor | None,
    time_dim: int,
) -> tuple[Tensor, Tensor]:
    """Spikes and the state after each sample's last step, whose last row holds the last spikes."""
    coefficients = dynamics.pack(state_dtype(current), current.device)
    learned = (current, weight, coefficients, state)
    keep = torch.is_grad_enabled() and any(part is not None and part.requires_grad for part in learned)
    value, final, _ = recurrent_forward(
        current, weight, coefficients, state, lengths, dynamics.flags, time_dim, keep
    )
    levels.note(value, 1)
    return value, final


def obstacle(current: Tensor) -> str:
    """Why kernels of the currents' device do not take a sequence of so many neurons; empty if they do."""
    if not native.has_kernel("recurrent_forward", current):
        return native.explain_path(current.device.type, "recurrent_forward")[1]
    most = native.most_recurrent_neurons(current)
    if most is None or current.shape[2] <= most:
        return ""
    return f"recurrent kernels of {current.device.type} take up to {most} neurons, got {current.shape[2]}"


def _kernel(name: str, current: Tensor, **others: Tensor | None) -> Callable[..., Any] | None:
    kernel = native.kernel(name, current, **others)
    return None if kernel is None or obstacle(current) else kernel


def check(
    current: Tensor,
    weight: Tensor,
    coefficients: Tensor,
    state: Tensor | None,
    lengths: Tensor | None,
    flags: Sequence[int],
    time_dim: int,
    name: str = "current",
) -> tuple[Flags, Tensor | None]:
    """The options, and the lengths as the kernels take them."""
    checks.check_kernel_dtype(name, current)
    checks.check_rank(name, current, "[T, N, H]", exactly=3)
    checks.check_time_dim(time_dim)
    options = Flags.of(flags)
    neurons = current.shape[2]
    checks.check_coefficients(coefficients, neurons, current)
    if not coefficients.shape[1]:
        raise ValueError(
            f"coefficients: expected [P, C] with at least one column, got shape {tuple(coefficients.shape)}"
        )
    if options.membrane:
        raise ValueError("flags: expected spikes as values, got membrane potentials")
    check_dynamics(options, count_states(len(coefficients)))
    checks.check_kernel_dtype("weight", weight)
    checks.check_device("weight", weight, current)
    checks.check_shape("weight", weight, (neurons, neurons), "shape [H, H]")
    _check_state("state", state, current, coefficients, options, time_dim)
    if lengths is None:
        return options, None
    steps, batch = current.shape[time_dim], current.shape[1 - time_dim]
    return options, checks.check_lengths(lengths, steps, batch, current).contiguous()


def _check_state(
    name: str, state: Tensor | None, current: Tensor, coefficients: Tensor, options: Flags, time_dim: int
) -> None:
    rows = [f"state {i}" for i in range(count_states(len(coefficients)) + options.reset_next)]
    step = [current.shape[1 - time_dim], current.shape[2]]
    checks.check_state_shape(state, [*rows, "spikes"], step, current, name)


def _state_like(current: Tensor, coefficients: Tensor, reset_next: bool, time_dim: int) -> Tensor:
    rows = count_states(len(coefficients)) + reset_next + 1
    return current.new_empty(
        (rows, current.shape[1 - time_dim], current.shape[2]), dtype=state_dtype(current)
    )


class Call:
    """Arguments that both native calls share; keeps the tensors behind the addresses alive."""

    def __init__(
        self,
        current: Tensor,
        weight: Tensor,
        coefficients: Tensor,
        state: Tensor | None,
        lengths: Tensor | None,
        flags: Flags,
        time_dim: int,
    ) -> None:
        self.dtype = dtype = state_dtype(current)
        self.current = current.to(dtype).contiguous()
        batch, steps, neurons = current.shape[1 - time_dim], current.shape[time_dim], current.shape[2]
        strides = (steps * neurons, neurons) if time_dim else (neurons, batch * neurons)
        self.sizes = (batch, steps, neurons, *strides)
        self.row = -(-neurons // _GROUP) * _GROUP
        self.weight = current.new_zeros((neurons, self.row), dtype=dtype)
        self.weight[:, :neurons] = weight.t()
        # Address, longest, whether there are second taps: ops/delayed_recurrent.py.
        self.delays = (0, 0, False)
        self.rows = coefficients.to(dtype).contiguous()
        self.states = count_states(len(coefficients))
        self.flags, self.lengths = flags, lengths
        self.state = None if state is None else state.to(dtype).contiguous()

    def arguments(self) -> tuple[object, ...]:
        tensors = (
            self.rows.data_ptr(),
            self.rows.shape[1],
            self.current.data_ptr(),
            native.address(self.state),
            self.weight.data_ptr(),
            self.row,
            native.address(self.lengths),
        )
        flags = tuple(int(flag) for flag in self.flags)
        return self.sizes, native.DTYPE_CODES[self.dtype], self.states, flags, tensors, self.delays


def _room(call: Call, flags: Flags, learn: bool) -> Tensor | None:
    """Where backward by blocks keeps values of every step, but for one that waits in the gradient's place."""
    if native.most_recurrent_neurons(call.current) is None:
        return None
    values = call.states + flags.reset_next + (learn or flags.quadratic) * call.states
    return call.current.new_empty((values - 1) * call.current.numel())


@torch.library.custom_op("snnlib::recurrent_forward", mutates_args=())
def recurrent_forward(
    current: Tensor,
    weight: Tensor,
    coefficients: Tensor,
    state: Tensor | None,
    lengths: Tensor | None,
    flags: Sequence[int],
    time_dim: int,
    keep: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """(spikes, state after each sample's last step, sums of currents of every step; these are empty unless `keep`)."""
    options, lengths = check(current, weight, coefficients, state, lengths, flags, time_dim)
    kernel = _kernel("recurrent_forward", current, weight=weight, coefficients=coefficients, state=state)
    final = _state_like(current, coefficients, options.reset_next, time_dim)
    every = range(current.dim())
    value = cpu_memory.empty_permuted(current.shape, every, current)
    total = current.new_empty(0, dtype=state_dtype(current))
    if keep:
        total = cpu_memory.empty_permuted(current.shape, every, current, total.dtype)
    if kernel is None:
        spikes, last, sums = reference.recurrent.forward(
            time_first(current, time_dim), weight, coefficients, state, lengths, options
        )
        if keep:
            total.copy_(time_first(sums, time_dim))
        return value.copy_(time_first(spikes, time_dim)), final.copy_(last), total
    call = Call(current, weight, coefficients, state, lengths, options, time_dim)
    spikes = value if value.dtype == call.dtype else cpu_memory.empty_like(value, call.dtype)
    kernel(
        *call.arguments(),
        spikes.data_ptr(),
        final.data_ptr(),
        total.data_ptr() if keep else 0,
    )
    return spikes.to(current.dtype), final, total


@recurrent_forward.register_fake
def _(
    current: Tensor,
    weight: Tensor,
    coefficients: Tensor,
    state: Tensor | None,
    lengths: Tensor | None,
    flags: Sequence[int],
    time_dim: int,
    keep: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    final = _state_like(current, coefficients, bool(flags[4]), time_dim)
    total = current.new_empty(current.shape if keep else 0, dtype=state_dtype(current))
    return current.new_empty(current.shape), final, total


@torch.library.custom_op("snnlib::recurrent_backward", mutates_args=())
def recurrent_backward(
    grad_value: Tensor,
    grad_state: Tensor | None,
    total: Tensor,
    value: Tensor,
    weight: Tensor,
    coefficients: Tensor,
    state: Tensor | None,
    lengths: Tensor | None,
    flags: Sequence[int],
    time_dim: int,
    learn: bool,
    need_weight: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """dL/dcurrent, dL/dweight, dL/dcoefficients `[P, C]`, dL/dstate.

    The second has no elements unless `need_weight`, the third none unless `learn`.
    """
    options, lengths = check(total, weight, coefficients, state, lengths, flags, time_dim, "total")
    checks.check_gradient("grad_value", grad_value, total.shape, "the currents' shape", total)
    checks.check_gradient("value", value, total.shape, "the currents' shape", total)
    _check_state("grad_state", grad_state, total, coefficients, options, time_dim)
    kernel = _kernel(
        "recurrent_backward",
        total,
        grad_value=grad_value,
        value=value,
        weight=weight,
        coefficients=coefficients,
        state=state,
    )
    grad_weight, rows = weight.new_empty(0), coefficients.new_empty(0)
    grad = cpu_memory.empty_permuted(total.shape, range(total.dim()), total, state_dtype(total))
    start = _state_like(total, coefficients, options.reset_next, time_dim)
    if kernel is None:
        found = reference.recurrent.backward(
            time_first(grad_value, time_dim),
            grad_state,
            time_first(total, time_dim),
            time_first(value, time_dim),
            weight,
            coefficients,
            state,
            lengths,
            options,
        )
        if need_weight:
            grad_weight = weight.new_empty(weight.shape).copy_(found.weight)
        if learn:
            rows = sum_neurons(found.coefficients, coefficients)
        return (
            grad.copy_(time_first(found.current, time_dim)),
            grad_weight,
            rows,
            start.copy_(found.state),
        )
    call = Call(total, weight, coefficients, state, lengths, options, time_dim)
    spikes, signal = (tensor.to(call.dtype).contiguous() for tensor in (value, grad_value))
    final = None if grad_state is None else grad_state.to(call.dtype).contiguous()
    by_neuron = start.new_empty((len(coefficients), *start.shape[1:]) if learn else 0)
    by_source = torch.empty_like(call.weight) if need_weight else None
    kept = _room(call, options, learn)
    kernel(
        *call.arguments(),
        spikes.data_ptr(),
        signal.data_ptr(),
        native.address(final),
        grad.data_ptr(),
        start.data_ptr(),
        by_neuron.data_ptr() if learn else 0,
        native.address(by_source),
        native.address(kept),
    )
    if by_source is not None:
        grad_weight = by_source[:, : len(weight)].t().to(weight.dtype).contiguous()
    if learn:
        rows = sum_neurons(by_neuron, coefficients)
    return grad, grad_weight, rows, start


@recurrent_backward.register_fake
def _(
    grad_value: Tensor,
    grad_state: Tensor | None,
    total: Tensor,
    value: Tensor,
    weight: Tensor,
    coefficients: Tensor,
    state: Tensor | None,
    lengths: Tensor | None,
    flags: Sequence[int],
    time_dim: int,
    learn: bool,
    need_weight: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return (
        total.new_empty(total.shape, dtype=state_dtype(total)),
        weight.new_empty(weight.shape if need_weight else 0),
        coefficients.new_empty(coefficients.shape if learn else 0),
        _state_like(total, coefficients, bool(flags[4]), time_dim),
    )


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    current, weight, coefficients, state, lengths, ctx.flags, ctx.time_dim, _ = inputs
    value, _, total = output
    levels.note(value, 1)
    ctx.dtype = current.dtype
    ctx.save_for_backward(total, value, weight, coefficients, state, lengths)
    # The sums have no gradient, for which zeros of their size would be filled in.
    ctx.set_materialize_grads(False)


def _backward(
    ctx: Any, grad_value: Tensor | None, grad_state: Tensor | None, _total: Tensor | None
) -> tuple[Tensor | None, ...]:
    *tensors, state, lengths = ctx.saved_tensors
    if grad_value is None:
        grad_value = torch.zeros_like(tensors[1])
    need_weight, learn = ctx.needs_input_grad[1:3]
    grad, grad_weight, rows, start = recurrent_backward(
        grad_value, grad_state, *tensors, state, lengths, ctx.flags, ctx.time_dim, learn, need_weight
    )
    return (
        grad.to(ctx.dtype),
        grad_weight if need_weight else None,
        rows if learn else None,
        start if state is not None else None,
        *[None] * 4,
    )


recurrent_forward.register_autograd(_backward, setup_context=_setup_context)
