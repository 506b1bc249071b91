"""Neurons with exact spike times over whole sequences: how the ops of `scan.py` call their kernels.

Kernels: cpp/include/snnlib/neurons/exact.h and cpp/cpu/exact.cpp; reference: snnlib/backends/reference/exact.py.
Nothing but the current is kept for backward, which repeats the cheap forward recurrence.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from snnlib.backends import cpu_memory, native, reference
from snnlib.backends.arguments import NeuronArgs
from snnlib.backends.native import state_dtype
from snnlib.ops.scan_linear import per_neuron
from snnlib.ops.sequence_layout import as_walkable, empty_state, laid_out_state, view_of


def _arguments(current: Tensor, neuron: NeuronArgs, time_dim: int) -> dict[str, Any]:
    """`ExactArgs` of cpp/include/snnlib/loop/scan.h, of currents in the state's dtype."""
    rows = per_neuron(neuron.constants, current)
    return {
        "view": view_of(current, time_dim),
        "dtype": native.DTYPE_CODES[current.dtype],
        "flags": neuron.exact_flags._asdict(),
        "coefficients": rows,
        "period": rows.shape[1],
        "current": current,
        "state_in": laid_out_state(neuron.state, current, time_dim),
    }


def forward(current: Tensor, neuron: NeuronArgs, time_dim: int) -> tuple[Tensor, Tensor]:
    """Returns the spikes of every step and the state after the last."""
    current = as_walkable(current)
    final = empty_state(current, neuron.states, time_dim)
    kernel = native.kernel("exact_forward", current, **neuron.tensors())
    if kernel is None:
        value, last = reference.exact.forward(current, neuron, time_dim)
        return torch.empty_like(current).copy_(value), final.copy_(last)
    wide = current.to(state_dtype(current))
    value = cpu_memory.empty_like(wide)
    kernel(**_arguments(wide, neuron, time_dim), value=value, state_out=final)
    return value.to(current.dtype), final


def backward(
    grad_value: Tensor, grad_state: Tensor | None, current: Tensor, neuron: NeuronArgs, time_dim: int
) -> tuple[Tensor, Tensor]:
    """Returns dL/dcurrent and dL/dstate."""
    current = as_walkable(current)
    grad_start = empty_state(current, neuron.states, time_dim)
    kernel = native.kernel("exact_backward", current, grad_value=grad_value, **neuron.tensors())
    if kernel is None:
        grad, start = reference.exact.backward(grad_value, grad_state, current, neuron, time_dim)
        return torch.empty_like(current).copy_(grad), grad_start.copy_(start)
    wide = current.to(state_dtype(current))
    if grad_value.stride() != wide.stride() or grad_value.dtype != wide.dtype:
        grad_value = cpu_memory.empty_like(wide).copy_(grad_value)
    grad = cpu_memory.empty_like(wide)
    kernel(
        **_arguments(wide, neuron, time_dim),
        grad_value=grad_value,
        grad_state_out=laid_out_state(grad_state, wide, time_dim),
        grad_current=grad,
        grad_state_in=grad_start,
    )
    return grad.to(current.dtype), grad_start
