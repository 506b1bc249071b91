"""Neurons of the linear family over whole sequences: how the ops of `scan.py` call their kernels.

Kernels: cpp/include/snnlib/neurons/linear.h and cpp/cpu/scan.cpp; reference: snnlib/backends/reference/linear.py.
Nothing but the current is kept for backward, which repeats the cheap forward recurrence.
"""

from __future__ import annotations

import torch
from torch import Tensor

from snnlib.backends import cpu_memory, native, reference
from snnlib.backends.arguments import NeuronArgs, count_states
from snnlib.backends.native import state_dtype
from snnlib.ops.sequence_layout import as_walkable, empty_state, neuron_order, view_of


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

    def __init__(self, current: Tensor, neuron: NeuronArgs, time_dim: int, learn: bool = False) -> None:
        self.states = count_states(len(neuron.constants))
        # The arithmetic is in float32 anyhow: a kernel that does not convert itself gets a wider copy.
        if self.states > 1 or learn or not native.scan_takes_half(current):
            current = current.to(state_dtype(current))
        self.current, self.view = current, view_of(current, time_dim)
        self.rows = _per_neuron(neuron.constants, current)
        self.flags = neuron.options
        self.state = None
        if neuron.state is not None:
            self.state = empty_state(current, len(neuron.state), time_dim).copy_(neuron.state)

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


def forward(current: Tensor, neuron: NeuronArgs, time_dim: int) -> tuple[Tensor, Tensor]:
    """Returns the value of every step and the state after the last."""
    current = as_walkable(current)
    final = empty_state(current, neuron.states, time_dim)
    kernel = native.kernel("scan_forward", current, **neuron.tensors())
    if kernel is None:
        value, last = reference.linear.forward(
            current, neuron.constants, neuron.state, neuron.options, time_dim
        )
        return torch.empty_like(current).copy_(value), final.copy_(last)
    call = _Call(current, neuron, time_dim)
    value = cpu_memory.empty_like(call.current)
    kernel(*call.arguments(), value.data_ptr(), final.data_ptr())
    return value.to(current.dtype), final


def backward(
    grad_value: Tensor,
    grad_state: Tensor | None,
    current: Tensor,
    neuron: NeuronArgs,
    time_dim: int,
    learn: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns dL/dcurrent, dL/dcoefficients `[P, C]`, without elements unless `learn`, and dL/dstate."""
    coefficients, current = neuron.constants, as_walkable(current)
    grad_start = empty_state(current, neuron.states, time_dim)
    kernel = native.kernel("scan_backward", current, grad_value=grad_value, **neuron.tensors())
    if kernel is None:
        grad, rows, start = reference.linear.backward(
            grad_value, grad_state, current, coefficients, neuron.state, neuron.options, time_dim
        )
        return (
            torch.empty_like(current).copy_(grad),
            sum_neurons(rows, coefficients) if learn else coefficients.new_empty(0),
            grad_start.copy_(start),
        )
    call = _Call(current, neuron, time_dim, learn)
    if grad_value.stride() != call.current.stride() or grad_value.dtype != call.current.dtype:
        grad_value = cpu_memory.empty_like(call.current).copy_(grad_value)
    final = None
    if grad_state is not None:
        final = empty_state(call.current, neuron.states, time_dim).copy_(grad_state)
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
