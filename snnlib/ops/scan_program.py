"""Neurons whose step is a program over whole sequences: an autograd function of the machine's kernels.

Compilers see `step`, so that there is no custom op. Kernel: cpp/cpu/program.cpp; reference:
snnlib/backends/reference/program.py. The current is saved for backward, and for long sequences the states before each
chunk of steps, from which backward repeats the chunk.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx

from snnlib.backends import cpu_memory, native, reference
from snnlib.backends.native import state_dtype
from snnlib.backends.program_kernel import ProgramKernel
from snnlib.checks import differentiable_once, in_transform
from snnlib.ops.scan_linear import per_neuron, sum_neurons
from snnlib.ops.sequence_layout import as_walkable, empty_state, laid_out_state, scan_arguments

# Neurons of a tile, whose registers fit into the L1 cache: 64 take 1.3 to 1.7 times as long, 2048 1.3 to 1.5 times.
_TILE = 256
# Bytes that backward saves of a chunk of steps, within the L2 cache.
_CHUNK_BYTES = 384 << 10


def run(current: Tensor, neuron: ProgramKernel) -> tuple[Tensor, Tensor]:
    """Returns the value of every step and the last state; current, constants and state get gradients."""
    neuron.check_sequence(current)
    value, final = _Scan.apply(current, neuron.constants, neuron.state, neuron)  # type: ignore[no-untyped-call]
    return value, final


def _chunk(current: Tensor, neuron: ProgramKernel) -> int:
    """Returns the steps that backward repeats at a time."""
    row = _TILE * state_dtype(current).itemsize * (neuron.states + neuron.codes.saved)
    return max(_CHUNK_BYTES // row, 1)


def _arguments(current: Tensor, neuron: ProgramKernel, checkpoints: Tensor | None) -> dict[str, Any]:
    """Returns the fields of `Tiled` arguments of cpp/include/snnlib/program/program.h."""
    arguments = scan_arguments(current, neuron, per_neuron(neuron.constants, current))
    return {**arguments, "tile": _TILE, "chunk": _chunk(current, neuron), "checkpoints": checkpoints}


def forward(
    current: Tensor, neuron: ProgramKernel, differentiates: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Returns the value of every step, the last state, and what `backward` wants of a long sequence."""
    kernel = native.kernel("program_forward", current, **neuron.tensors())
    value = cpu_memory.empty_like(current)
    final = empty_state(current, neuron.states)
    if kernel is None:
        found, last = reference.program.forward(current, neuron)
        return value.copy_(found), final.copy_(last), None
    chunks = -(-len(current) // _chunk(current, neuron))
    checkpoints = None
    if differentiates and chunks > 1:
        checkpoints = final.new_empty((chunks - 1, neuron.states, final[0].numel()))
    arguments = _arguments(current, neuron, checkpoints)
    kernel(**arguments, value=value, state_out=final)
    return value, final, checkpoints


def backward(
    grad_value: Tensor,
    grad_state: Tensor | None,
    current: Tensor,
    neuron: ProgramKernel,
    checkpoints: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns dL/dcurrent, dL/dconstants `[P, C]`, 0 of those that do not learn, and dL/dstate."""
    # Within vmap a gradient has no memory; torch's operations take it.
    kernel = None if in_transform() else native.kernel("program_backward", current, grad_value=grad_value)
    if kernel is None:
        grad, rows, start = reference.program.backward(grad_value, grad_state, current, neuron)
        grad = grad.to(current.dtype)
    else:
        grad = cpu_memory.empty_like(current)
        start = empty_state(current, neuron.states)
        rows = empty_state(current, len(neuron.learned))
        kernel(
            **_arguments(current, neuron, checkpoints),
            grad_value=cpu_memory.laid_out_like(grad_value, current),
            grad_state_out=laid_out_state(grad_state, current),
            grad_current=grad,
            grad_state_in=start,
            grad_coefficients=rows,
        )
    return grad, sum_neurons(rows, neuron.constants, neuron.learned), start


class _Scan(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: FunctionCtx, current: Tensor, constants: Tensor, state: Tensor | None, neuron: ProgramKernel
    ) -> tuple[Tensor, Tensor]:
        made: Any = ctx
        current = as_walkable(current)
        differentiates = any(made.needs_input_grad)
        value, final, checkpoints = forward(current, neuron, differentiates)
        made.save_for_backward(current, constants, state, checkpoints)
        # The state would keep the graph of the sequence before it.
        made.neuron = neuron.from_state(None)
        made.set_materialize_grads(False)
        return value, final

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        grad_value, grad_state = grads
        current, _, state, checkpoints = ctx.saved_tensors
        neuron = ctx.neuron.from_state(state)
        if grad_value is None:
            grad_value = torch.zeros_like(current)
        grad, rows, start = backward(grad_value, grad_state, current, neuron, checkpoints)
        _, learn, begins, *_ = ctx.needs_input_grad
        return grad, rows if learn else None, start if begins else None, None
