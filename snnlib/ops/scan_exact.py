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
from snnlib.ops.sequence_layout import as_walkable, empty_state, laid_out_state, scan_arguments


def _arguments(current: Tensor, neuron: NeuronArgs, time_dim: int) -> dict[str, Any]:
    """`ExactArgs` of cpp/include/snnlib/loop/scan.h, of currents in the state's dtype."""
    return scan_arguments(current, neuron, per_neuron(neuron.constants, current), time_dim)


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
    grad = cpu_memory.empty_like(wide)
    kernel(
        **_arguments(wide, neuron, time_dim),
        grad_value=cpu_memory.laid_out_like(grad_value, wide),
        grad_state_out=laid_out_state(grad_state, wide, time_dim),
        grad_current=grad,
        grad_state_in=grad_start,
    )
    return grad.to(current.dtype), grad_start
