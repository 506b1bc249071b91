"""Neurons with one adjoint over whole sequences, the linear family and those with exact spike times: how the ops of
`scan.py` call their kernels.

Kernels: cpp/include/snnlib/neurons/linear.h and credit.h, cpp/cpu/scan.cpp and spike_time.cpp; reference: linear.py and
exact.py of snnlib/backends/reference. Only the current is saved for backward, which repeats the cheap forward
recurrence.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from snnlib.backends import cpu_memory, native, reference
from snnlib.backends.arguments import ExactKernel, LinearKernel
from snnlib.backends.native import state_dtype
from snnlib.ops.sequence_layout import as_walkable, empty_state, laid_out_state, neuron_order, scan_arguments


def per_neuron(coefficients: Tensor, current: Tensor) -> Tensor:
    """Returns coefficients `[P, period]`: neuron i of a sample, in memory order, has column `i % period`.

    The period is 1, the number of channels if they are contiguous, or else the number of neurons of a sample.
    """
    coefficients = coefficients.to(state_dtype(current))
    order = [dim - 1 for dim in neuron_order(current) or []]
    # Channel by channel: spread to all neurons the coefficients can be as large as the currents of several steps.
    if coefficients.shape[1] > 1 and order[-1] != 1:
        spread = coefficients.view(*coefficients.shape, *[1] * (current.dim() - 3))
        spread = spread.expand(len(coefficients), *current.shape[2:])
        coefficients = spread.permute(0, *order).reshape(len(coefficients), -1)
    return coefficients.contiguous()


def _arguments(
    current: Tensor, neuron: LinearKernel | ExactKernel, time_dim: int, learn: bool = False
) -> dict[str, Any]:
    """Returns the arguments of a scan, see cpp/include/snnlib/loop/scan.h."""
    # The arithmetic is in float32 anyhow: a kernel that does not convert itself gets a wider copy.
    if neuron.states > 1 or learn or not native.scan_takes_half(current):
        current = current.to(state_dtype(current))
    return scan_arguments(current, neuron, per_neuron(neuron.constants, current), time_dim)


def _family(neuron: LinearKernel | ExactKernel, current: Tensor) -> str:
    if isinstance(neuron, ExactKernel):
        return "exact"
    # GPUs have no kernels for fixed-point states and for a later reset with a refractory time: no kernel has this name.
    options = neuron.options
    unknown = options.fixed_point or (options.reset_next and options.refractory)
    return "fixed_point" if unknown and current.is_cuda else "scan"


def forward(current: Tensor, neuron: LinearKernel | ExactKernel, time_dim: int) -> tuple[Tensor, Tensor]:
    """Returns the value of every step and the last state."""
    current = as_walkable(current)
    final = empty_state(current, neuron.states, time_dim)
    kernel = native.kernel(f"{_family(neuron, current)}_forward", current, **neuron.tensors())
    if kernel is None:
        if isinstance(neuron, ExactKernel):
            value, last = reference.exact.forward(current, neuron, time_dim)
        else:
            value, last = reference.linear.forward(current, neuron, time_dim)
        value, final = torch.empty_like(current).copy_(value), final.copy_(last)
    else:
        arguments = _arguments(current, neuron, time_dim)
        value = cpu_memory.empty_like(arguments["current"])
        kernel(**arguments, value=value, state_out=final)
        value = value.to(current.dtype)
    neuron.check_final(final)
    return value, final


def backward(
    grad_value: Tensor,
    grad_state: Tensor | None,
    current: Tensor,
    neuron: LinearKernel | ExactKernel,
    time_dim: int,
    learn: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns dL/dcurrent, dL/dcoefficients `[P, C]`, without elements unless `learn`, and dL/dstate."""
    coefficients, current = neuron.constants, as_walkable(current)
    grad_start = empty_state(current, neuron.states, time_dim)
    kernel = native.kernel(
        f"{_family(neuron, current)}_backward", current, grad_value=grad_value, **neuron.tensors()
    )
    if kernel is None:
        if isinstance(neuron, ExactKernel):
            rows = coefficients
            grad, start = reference.exact.backward(grad_value, grad_state, current, neuron, time_dim)
        else:
            grad, rows, start = reference.linear.backward(grad_value, grad_state, current, neuron, time_dim)
        return (
            torch.empty_like(current).copy_(grad),
            sum_neurons(rows, coefficients) if learn else coefficients.new_empty(0),
            grad_start.copy_(start),
        )
    arguments = _arguments(current, neuron, time_dim, learn)
    wide = arguments["current"]
    grad = cpu_memory.empty_like(wide)
    by_neuron = empty_state(wide, len(coefficients), time_dim) if learn else None
    if isinstance(neuron, ExactKernel):
        arguments["input_signal"] = None
    kernel(
        **arguments,
        grad_value=cpu_memory.laid_out_like(grad_value, wide),
        grad_state_out=laid_out_state(grad_state, wide, time_dim),
        grad_current=grad,
        grad_state_in=grad_start,
        grad_coefficients=by_neuron,
    )
    rows = coefficients.new_empty(0) if by_neuron is None else sum_neurons(by_neuron, coefficients)
    return grad.to(current.dtype), rows, grad_start


def sum_neurons(rows: Tensor, coefficients: Tensor) -> Tensor:
    """Sums gradients of all neurons `[P, N, C, ...]` to the coefficients' `[P, C]` or `[P, 1]`."""
    if coefficients.shape[1] == 1:
        return rows.flatten(1).sum(1, keepdim=True).to(coefficients.dtype)
    return rows.movedim(2, 1).flatten(2).sum(2).to(coefficients.dtype)
