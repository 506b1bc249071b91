"""Neurons of the linear family over whole sequences: one op pair for all models.

Kernels: cpp/include/snnlib/neurons/linear.h and cpp/cpu/scan.cpp; reference: snnlib/backends/reference/linear.py.
Nothing but the current is kept for backward, which repeats the cheap forward recurrence.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from snnlib import checks
from snnlib.backends import cpu_memory, native, reference
from snnlib.backends.native import state_dtype
from snnlib.backends.reference.linear import Flags, count_states
from snnlib.ops import levels
from snnlib.ops.srm import as_walkable, dense_strides, neuron_order

if TYPE_CHECKING:
    from snnlib.neurons.dynamics import Dynamics


def run(x: Tensor, dynamics: Dynamics, state: Tensor | None, time_dim: int) -> tuple[Tensor, Tensor]:
    """Value of every step and the state after the last, with gradients for current, coefficients and state."""
    coefficients = dynamics.pack(state_dtype(x), x.device)
    value, final = scan_forward(x, coefficients, state, dynamics.flags, time_dim)
    if not dynamics.membrane:
        levels.note(value, 1)
    return value, final


def check(
    current: Tensor, coefficients: Tensor, state: Tensor | None, flags: Sequence[int], time_dim: int
) -> Flags:
    checks.check_kernel_dtype("current", current)
    checks.check_rank("current", current, "[T, N, ...]", at_least=2)
    checks.check_time_dim(time_dim)
    options = Flags.of(flags)
    checks.check_coefficients(coefficients, current.shape[2] if current.dim() > 2 else 1, current)
    check_dynamics(options, count_states(len(coefficients)))
    check_state("state", state, current, coefficients, options, time_dim)
    return options


def check_dynamics(options: Flags, states: int) -> None:
    """Check that a neuron of so many states can have these options."""
    got = f"got {[int(flag) for flag in options]} and {states} states"
    if options.rectified and (options.reset_next or states > 1):
        raise ValueError(
            f"flags: expected a rectified membrane with one state and a reset in the same step, {got}"
        )
    if options.quadratic and (options.reset_next or states == 1):
        raise ValueError(
            f"flags: expected products of states with two or three of them and a reset in the same step, {got}"
        )


def check_state(
    name: str, state: Tensor | None, current: Tensor, coefficients: Tensor, options: Flags, time_dim: int
) -> None:
    states = count_states(len(coefficients)) + options.reset_next
    step = [size for dim, size in enumerate(current.shape) if dim != time_dim]
    checks.check_state_shape(state, [f"state {i}" for i in range(states)], step, current, name)


def empty_state(current: Tensor, states: int, time_dim: int) -> Tensor:
    """`[K, N, ...]`, each in the memory order of one step of the current."""
    shape = [states] + [size for dim, size in enumerate(current.shape) if dim != time_dim]
    order = [0, 1, *(neuron_order(current) or [])]
    return torch.empty_strided(
        shape, dense_strides(shape, order), dtype=state_dtype(current), device=current.device
    )


def _per_neuron(coefficients: Tensor, current: Tensor) -> Tensor:
    """Coefficients `[P, period]` of neuron `i % period` in the memory order of one sample.

    The period is 1, the channels where they lie next to each other, or else all neurons of a sample.
    """
    coefficients = coefficients.to(state_dtype(current))
    order = [dim - 1 for dim in neuron_order(current) or []]
    # Channel by channel: spread to all neurons the coefficients can be as large as the currents of several steps.
    if coefficients.shape[1] > 1 and order[-1] != 1:
        spread = coefficients.view(*coefficients.shape, *[1] * (current.dim() - 3))
        spread = spread.expand(len(coefficients), *current.shape[2:])
        coefficients = spread.permute(0, *order).reshape(len(coefficients), -1)
    return coefficients.contiguous()


class _Call:
    """Arguments that both native calls share; keeps the tensors behind the addresses alive."""

    def __init__(
        self,
        current: Tensor,
        coefficients: Tensor,
        state: Tensor | None,
        flags: Flags,
        time_dim: int,
        learn: bool = False,
    ) -> None:
        self.states = count_states(len(coefficients))
        # The arithmetic is in float32 anyhow: a kernel that does not convert itself gets a wider copy.
        if self.states > 1 or learn or not native.scan_takes_half(current):
            current = current.to(state_dtype(current))
        self.current = current
        first, second = current.shape[:2]
        inner = math.prod(current.shape[2:])
        if time_dim == 0:
            self.view = (1, first, second * inner, 0, second * inner)
        else:
            self.view = (first, second, inner, second * inner, inner)
        self.rows = _per_neuron(coefficients, current)
        self.flags = flags
        self.state = None
        if state is not None:
            self.state = empty_state(current, len(state), time_dim).copy_(state)

    def arguments(self) -> tuple[object, ...]:
        return (
            self.view,
            native.DTYPE_CODES[self.current.dtype],
            self.states,
            tuple(int(flag) for flag in self.flags),
            self.rows.data_ptr(),
            self.rows.shape[1],
            self.current.data_ptr(),
            native.address(self.state),
        )


@torch.library.custom_op("snnlib::scan_forward", mutates_args=())
def scan_forward(
    current: Tensor, coefficients: Tensor, state: Tensor | None, flags: Sequence[int], time_dim: int
) -> tuple[Tensor, Tensor]:
    """(value of every step, state after the last)."""
    options = check(current, coefficients, state, flags, time_dim)
    current = as_walkable(current)
    states = count_states(len(coefficients)) + options.reset_next
    final = empty_state(current, states, time_dim)
    kernel = native.kernel("scan_forward", current, coefficients=coefficients, state=state)
    if kernel is None:
        value, last = reference.linear.forward(current, coefficients, state, options, time_dim)
        return torch.empty_like(current).copy_(value), final.copy_(last)
    call = _Call(current, coefficients, state, options, time_dim)
    value = cpu_memory.empty_like(call.current)
    kernel(*call.arguments(), value.data_ptr(), final.data_ptr())
    return value.to(current.dtype), final


@scan_forward.register_fake
def _(
    current: Tensor, coefficients: Tensor, state: Tensor | None, flags: Sequence[int], time_dim: int
) -> tuple[Tensor, Tensor]:
    current = as_walkable(current)
    states = count_states(len(coefficients)) + bool(flags[4])
    return torch.empty_like(current), empty_state(current, states, time_dim)


@torch.library.custom_op("snnlib::scan_backward", mutates_args=())
def scan_backward(
    grad_value: Tensor,
    grad_state: Tensor | None,
    current: Tensor,
    coefficients: Tensor,
    state: Tensor | None,
    flags: Sequence[int],
    time_dim: int,
    learn: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """dL/dcurrent, dL/dcoefficients `[P, C]` (no elements unless `learn`), dL/dstate."""
    options = check(current, coefficients, state, flags, time_dim)
    checks.check_gradient("grad_value", grad_value, current.shape, "the current's shape", current)
    check_state("grad_state", grad_state, current, coefficients, options, time_dim)
    current = as_walkable(current)
    states = count_states(len(coefficients)) + options.reset_next
    grad_start = empty_state(current, states, time_dim)
    kernel = native.kernel(
        "scan_backward", current, grad_value=grad_value, coefficients=coefficients, state=state
    )
    if kernel is None:
        grad, rows, start = reference.linear.backward(
            grad_value, grad_state, current, coefficients, state, options, time_dim
        )
        return (
            torch.empty_like(current).copy_(grad),
            sum_neurons(rows, coefficients) if learn else coefficients.new_empty(0),
            grad_start.copy_(start),
        )
    call = _Call(current, coefficients, state, options, time_dim, learn)
    if grad_value.stride() != call.current.stride() or grad_value.dtype != call.current.dtype:
        grad_value = cpu_memory.empty_like(call.current).copy_(grad_value)
    final = None if grad_state is None else empty_state(call.current, states, time_dim).copy_(grad_state)
    grad = cpu_memory.empty_like(call.current)
    rows = empty_state(call.current, len(coefficients), time_dim) if learn else coefficients.new_empty(0)
    kernel(
        *call.arguments(),
        grad_value.data_ptr(),
        native.address(final),
        grad.data_ptr(),
        grad_start.data_ptr(),
        rows.data_ptr() if learn else 0,
    )
    return grad.to(current.dtype), sum_neurons(rows, coefficients) if learn else rows, grad_start


def sum_neurons(rows: Tensor, coefficients: Tensor) -> Tensor:
    """Gradients of all neurons `[P, N, C, ...]`, summed to the coefficients' `[P, C]` or `[P, 1]`."""
    if coefficients.shape[1] == 1:
        return rows.flatten(1).sum(1, keepdim=True).to(coefficients.dtype)
    return rows.movedim(2, 1).flatten(2).sum(2).to(coefficients.dtype)


@scan_backward.register_fake
def _(
    grad_value: Tensor,
    grad_state: Tensor | None,
    current: Tensor,
    coefficients: Tensor,
    state: Tensor | None,
    flags: Sequence[int],
    time_dim: int,
    learn: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    current = as_walkable(current)
    states = count_states(len(coefficients)) + bool(flags[4])
    rows = torch.empty_like(coefficients) if learn else coefficients.new_empty(0)
    return torch.empty_like(current), rows, empty_state(current, states, time_dim)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    current, coefficients, state, ctx.flags, ctx.time_dim = inputs
    ctx.save_for_backward(current, coefficients, state)
    # A state that nobody uses has no gradient, not one of zeros.
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, grad_value: Tensor | None, grad_state: Tensor | None) -> tuple[Tensor | None, ...]:
    current, coefficients, state = ctx.saved_tensors
    learn = ctx.needs_input_grad[1]
    if grad_value is None:
        grad_value = torch.zeros_like(current)
    grad, rows, start = scan_backward(
        grad_value, grad_state, current, coefficients, state, ctx.flags, ctx.time_dim, learn
    )
    return grad, rows if learn else None, start if state is not None else None, None, None


scan_forward.register_autograd(_backward, setup_context=_setup_context)
