"""Neurons with one adjoint over whole sequences, the linear family and those with exact spike times: how the ops of
`scan.py` call their kernels.

Kernels: cpp/include/snnlib/neurons/linear.h and credit.h, cpp/cpu/scan.cpp and spike_time.cpp; reference: linear.py and
exact.py of snnlib/backends/reference. Only the current is saved for backward, which repeats the cheap forward
recurrence.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from snnlib.backends import cpu_memory, native, reference
from snnlib.backends.arguments import NeuronKernel, SpikeTimeKernel
from snnlib.backends.native import state_dtype
from snnlib.ops import scan_srm_cuda
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


def _arguments(current: Tensor, neuron: NeuronKernel, learn: bool = False) -> dict[str, Any]:
    """Returns the arguments of a scan, see cpp/include/snnlib/loop/scan.h."""
    # The arithmetic is in float32 anyhow: a kernel that does not convert itself gets a wider copy.
    converts = neuron.credit or (neuron.states == 1 and not learn and native.scan_takes_half(current))
    if not converts:
        current = current.to(state_dtype(current))
    return scan_arguments(current, neuron, per_neuron(neuron.constants, current))


def _family(neuron: NeuronKernel, current: Tensor) -> str:
    if isinstance(neuron, SpikeTimeKernel):
        return neuron.family
    # GPUs have no kernels for fixed-point states and for a later reset with a refractory time: no kernel has this name.
    options = neuron.options
    unknown = options.fixed_point or (options.reset_next and options.refractory)
    return "fixed_point" if unknown and current.is_cuda else "scan"


def forward(current: Tensor, neuron: NeuronKernel, return_state: bool = True) -> tuple[Tensor, Tensor]:
    """Returns the value of every step and the last state, which SRM neurons have only with `return_state`."""
    current = as_walkable(current)
    srm = scan_srm_cuda.taken_by(neuron, current)
    if srm is not None:
        rows = per_neuron(neuron.constants, current)
        return scan_srm_cuda.forward(current, srm, rows, return_state)
    wanted = return_state or not neuron.credit
    final = current.new_empty(0, dtype=state_dtype(current))
    if wanted:
        final = empty_state(current, neuron.states)
    kernel = native.kernel(f"{_family(neuron, current)}_forward", current, **neuron.tensors())
    if kernel is None:
        if isinstance(neuron, SpikeTimeKernel):
            value, last = reference.exact.forward(current, neuron)
        else:
            value, last = reference.linear.forward(current, neuron)
        value = torch.empty_like(current).copy_(value)
        final = final.copy_(last) if wanted else final
    else:
        arguments = _arguments(current, neuron)
        value = cpu_memory.empty_like(arguments["current"])
        kernel(**arguments, value=value, state_out=final if wanted else None)
        value = value.to(current.dtype)
    neuron.check_final(final)
    return value, final


class Gradients(NamedTuple):
    """Results of a backward pass; unneeded ones have no elements."""

    # dL/dcurrent, and the signal for the inputs of neurons that have one.
    current: Tensor
    inputs: Tensor
    coefficients: Tensor
    state: Tensor


def backward(
    grad_value: Tensor,
    grad_state: Tensor | None,
    current: Tensor,
    neuron: NeuronKernel,
    learn: bool = False,
    needs: tuple[bool, bool] = (True, False),
) -> Gradients:
    """Returns dL/dcurrent and the inputs' signal, dL/dcoefficients `[P, C]` if they `learn`, and dL/dstate.

    SRM neurons have the signals that are needed, and a gradient of a state if one was given.
    """
    coefficients, current = neuron.constants, as_walkable(current)
    # Outputs of an op are tensors of their own.
    empty, no_rows = partial(current.new_empty, 0), coefficients.new_empty(0)
    srm = scan_srm_cuda.taken_by(neuron, current)
    if srm is not None:
        rows = per_neuron(coefficients, current)
        a, b, start = scan_srm_cuda.backward(grad_value, grad_state, current, srm, rows, needs)
        return Gradients(a if needs[0] else empty(), b if needs[1] else empty(), no_rows, start)
    of_current, of_inputs = needs if neuron.credit else (True, False)
    with_state = not neuron.credit or neuron.state is not None
    grad_start = current.new_empty(0, dtype=state_dtype(current))
    if with_state:
        grad_start = empty_state(current, neuron.states)
    kernel = native.kernel(
        f"{_family(neuron, current)}_backward", current, grad_value=grad_value, **neuron.tensors()
    )
    if kernel is None:
        rows = coefficients
        if isinstance(neuron, SpikeTimeKernel):
            grad, signal, start = reference.exact.backward(grad_value, grad_state, current, neuron)
        else:
            grad, rows, start = reference.linear.backward(grad_value, grad_state, current, neuron)
            signal = grad
        return Gradients(
            torch.empty_like(current).copy_(grad) if of_current else empty(),
            torch.empty_like(current).copy_(signal) if of_inputs else empty(),
            sum_neurons(rows, coefficients, neuron.learned) if learn else no_rows,
            grad_start.copy_(start) if with_state else grad_start,
        )
    arguments = _arguments(current, neuron, learn)
    wide = arguments["current"]
    grad, signal = (cpu_memory.empty_like(wide) if need else empty() for need in (of_current, of_inputs))
    by_neuron = empty_state(wide, len(coefficients)) if learn else None
    if neuron.moves_spikes:
        arguments["input_signal"] = signal if of_inputs else None
    kernel(
        **arguments,
        grad_value=cpu_memory.laid_out_like(grad_value, wide),
        grad_state_out=laid_out_state(grad_state, wide),
        grad_current=grad if of_current else None,
        grad_state_in=grad_start if with_state else None,
        grad_coefficients=by_neuron,
    )
    rows = no_rows if by_neuron is None else sum_neurons(by_neuron, coefficients, neuron.learned)
    return Gradients(grad.to(current.dtype), signal, rows, grad_start)


def sum_neurons(rows: Tensor, coefficients: Tensor, learned: Sequence[int]) -> Tensor:
    """Sums gradients of all neurons `[learned, N, C, ...]` to the coefficients' `[P, C]` or `[P, 1]`."""
    if coefficients.shape[1] == 1:
        sums = rows.flatten(1).sum(1, keepdim=True).to(coefficients.dtype)
    else:
        sums = rows.movedim(2, 1).flatten(2).sum(2).to(coefficients.dtype)
    if len(learned) == len(coefficients):
        return sums
    found = dict(zip(learned, sums, strict=True))
    return torch.stack([found.get(j, zero) for j, zero in enumerate(torch.zeros_like(coefficients))])
