"""Calls of the kernels for SRM neurons over whole sequences, for the ops of `scan.py`.

Kernels: cpp/include/snnlib/neurons/srm.h; reference: snnlib/backends/reference/srm.py. Only the current is saved for
backward (4 bytes per neuron-step in float32, 2 in half precision), which repeats the cheap forward recurrence.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from snnlib.backends import cpu_memory, native, reference
from snnlib.backends.arguments import SrmKernel, neuron_kernel
from snnlib.backends.native import state_dtype
from snnlib.ops.sequence_layout import as_walkable, empty_state, neuron_order, scan_arguments


def _arguments(current: Tensor, neuron: SrmKernel, time_dim: int) -> dict[str, Any]:
    """Returns fields of `SpikeTimeForwardArgs` of cpp/include/snnlib/loop/scan.h, on a GPU `SrmArgs`."""
    threshold = neuron.constants.to(state_dtype(current)).reshape(-1)
    if neuron.constants.dim() > 0 and current.dim() > 2:
        order = [dim - 2 for dim in neuron_order(current) or []]
        spread = threshold.view(-1, *[1] * (current.dim() - 3)).expand(current.shape[2:])
        threshold = spread.permute(order).reshape(-1)
    if _by_itself(current):
        return scan_arguments(current, neuron, threshold.contiguous(), time_dim)
    moved = neuron.moved(threshold)
    return scan_arguments(current, moved, moved.constants, time_dim)


def _by_itself(current: Tensor) -> bool:
    """Returns whether the device has kernels for these neurons alone, as CUDA has."""
    return native.has_kernel("srm_forward", current)


def _family(current: Tensor) -> str:
    return "srm" if _by_itself(current) else "exact"


def forward(current: Tensor, neuron: SrmKernel, time_dim: int, return_state: bool) -> tuple[Tensor, Tensor]:
    """Returns spikes, and the state after the last step (no elements unless `return_state`)."""
    current = as_walkable(current)
    spikes = cpu_memory.empty_like(current)
    final = current.new_empty(0, dtype=state_dtype(current))
    if return_state:
        final = empty_state(current, neuron.states, time_dim)
    run = native.kernel(f"{_family(current)}_forward", current, **neuron.tensors())
    if run is None:
        out, last = reference.srm.srm_forward(current, neuron, time_dim)
        spikes.copy_(out)
        if return_state:
            final.copy_(last)
        return spikes, final
    outputs: dict[str, Tensor | None] = {"state_out": final if return_state else None}
    if _by_itself(current):
        outputs.update(spikes=spikes, potential=None, delta_u=None, delta_ut=None)
    else:
        outputs["value"] = spikes
    run(**_arguments(current, neuron, time_dim), **outputs)
    return spikes, final


def backward(
    grad_spikes: Tensor, current: Tensor, neuron: SrmKernel, time_dim: int, needs: tuple[bool, bool]
) -> tuple[Tensor, Tensor]:
    """Returns the signals `a` for the weights and `b` for the inputs; unneeded signals have no elements."""
    current = as_walkable(current)
    a, b = (cpu_memory.empty_like(current) if need else current.new_empty(0) for need in needs)
    run = native.kernel(f"{_family(current)}_backward", current, grad_spikes=grad_spikes, **neuron.tensors())
    if run is None:
        signals = reference.srm.srm_backward(grad_spikes, current, neuron, time_dim)
        for signal, out in zip(signals, (a, b), strict=True):
            if out.numel():
                out.copy_(signal)
        return a, b
    grad_spikes = cpu_memory.laid_out_like(grad_spikes, current)
    results: dict[str, Tensor | None] = {"input_signal": b if needs[1] else None}
    if _by_itself(current):
        results.update(grad_spikes=grad_spikes, weight_signal=a if needs[0] else None)
    else:
        states = dict.fromkeys(("grad_state_out", "grad_state_in", "grad_coefficients"))
        results.update(grad_value=grad_spikes, grad_current=a if needs[0] else None, **states)
    run(**_arguments(current, neuron, time_dim), **results)
    return a, b


def trace(
    current: Tensor, threshold: Tensor, taus: Sequence[float], time_dim: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Returns spikes, potential before the reset, delta_u and delta_ut at every step, in the current's dtype.

    This is not a torch op: compilers trace the reference, which has the same values.
    """
    neuron = neuron_kernel(threshold, None, (), (*taus, math.inf))
    assert isinstance(neuron, SrmKernel)
    neuron.check_sequence(current, time_dim)
    current = as_walkable(current)
    outputs = tuple(torch.empty_like(current) for _ in range(4))
    run = None
    if not torch.compiler.is_compiling() and _by_itself(current):
        run = native.kernel("srm_forward", current, threshold=threshold)
    if run is None:
        found = reference.srm.srm_trace(current, neuron, time_dim)
        for out, column in zip(outputs, found, strict=False):
            out.copy_(column)
        return outputs[0], outputs[1], outputs[2], outputs[3]
    columns = dict(zip(("spikes", "potential", "delta_u", "delta_ut"), outputs, strict=True))
    run(**_arguments(current, neuron, time_dim), **columns, state_out=None)
    return outputs[0], outputs[1], outputs[2], outputs[3]
