"""Neurons over whole sequences, with optional average pooling: one pair of ops for all models.

Neurons have one gradient of the current, `a`; the spike response model has two signals, `a` for the weights and `b` for
the inputs of a layer. `scan_linear.py` and `scan_pool.py` call the kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from snnlib import checks
from snnlib.backends.arguments import LinearKernel, NeuronKernel, neuron_kernel
from snnlib.backends.memo import once
from snnlib.backends.native import state_dtype
from snnlib.backends.program_kernel import AnyKernel, ProgramKernel
from snnlib.ops import scan_linear, scan_plan, scan_pool, scan_program
from snnlib.ops.declare import custom_op, register_fake
from snnlib.ops.sequence_layout import as_walkable, empty_state

# Neurons, and how they meet the currents, in the schemas of both ops.
_NEURON = "Tensor constants, Tensor? state, SymInt[] flags, float[] taus, SymInt[] window"
# Windows of one cell.
NO_POOLING = (1, 1)


def run(
    x: Tensor, neuron: AnyKernel, window: tuple[int, int] = NO_POOLING, return_state: bool = True
) -> tuple[Tensor, Tensor]:
    """Returns values, or their means over windows, and the last state.

    Current, coefficients and state get gradients.
    """
    checks.check_untransformed("neurons", batches=True)
    if isinstance(neuron, ProgramKernel):
        return scan_program.run(x, neuron)
    if isinstance(neuron, LinearKernel) and return_state:
        found = scan_plan.run(x, neuron, window)
        if found is not None:
            return found
    value, final = scan_forward(
        x, neuron.constants, neuron.state, neuron.flags, neuron.taus, window, return_state
    )
    return value, final


@once
def _checked(
    current: Tensor, neuron: NeuronKernel, window: Sequence[int], return_state: bool = False
) -> tuple[int, int]:
    """Checks all arguments and returns the window."""
    neuron.check_sequence(current)
    checks.check_axes("window", window, 2, 1)
    high, wide = window
    if (high, wide) != NO_POOLING and neuron.moves_spikes and not neuron.credit:
        raise ValueError(f"window: expected [1, 1] of neurons with exact spike times, got {list(window)}")
    if (high, wide) != NO_POOLING:
        scan_pool.check(current, neuron, (high, wide), return_state)
    return high, wide


@custom_op("snnlib::scan_forward", f"(Tensor current, {_NEURON}, bool return_state) -> (Tensor, Tensor)")
def scan_forward(c: SimpleNamespace) -> tuple[Tensor, Tensor]:
    """Returns (value of every step and window, last state, without elements unless `return_state`).

    `constants`, `flags` and `taus` are those of `neuron_kernel`; the windows `[high, wide]` are over the last two axes.
    """
    checks.check_reverse_mode("neurons")
    neuron = neuron_kernel(c.constants, c.state, c.flags, c.taus)
    sizes = _checked(c.current, neuron, c.window, c.return_state)
    if sizes != NO_POOLING:
        value, final = scan_pool.forward(c.current, neuron, sizes)
    else:
        value, final = scan_linear.forward(c.current, neuron, c.return_state)
    return value, final if c.return_state else final.new_empty(0)


@register_fake(scan_forward)
def _(c: SimpleNamespace) -> tuple[Tensor, Tensor]:
    neuron = neuron_kernel(c.constants, c.state, c.flags, c.taus)
    sizes = _checked(c.current, neuron, c.window, c.return_state)
    current = _laid_out(c.current, c.window)
    final = current.new_empty(0, dtype=state_dtype(current))
    if c.return_state:
        final = empty_state(current, neuron.states)
    value = torch.empty_like(current)
    return value if sizes == NO_POOLING else scan_pool.empty_value(current, sizes), final


def _laid_out(current: Tensor, window: Sequence[int]) -> Tensor:
    return as_walkable(current) if tuple(window) == NO_POOLING else scan_pool.as_planes(current)


@custom_op(
    "snnlib::scan_backward",
    f"(Tensor grad_value, Tensor? grad_state, Tensor current, {_NEURON}, "
    "bool need_weight, bool need_input, bool learn) -> (Tensor, Tensor, Tensor, Tensor)",
)
def scan_backward(c: SimpleNamespace) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Returns the signals a and b, dL/dcoefficients `[P, C]`, and dL/dstate before the first step.

    The linear family has no b, and a gradient of its coefficients only if they `learn`. The spike response model has
    those of a and b that are needed, and a gradient of the state if one was given. Missing results have no elements.
    """
    current = c.current
    neuron = neuron_kernel(c.constants, c.state, c.flags, c.taus)
    sizes = _checked(current, neuron, c.window)
    shape = current.shape if sizes == NO_POOLING else scan_pool.empty_value(current, sizes).shape
    checks.check_gradient("grad_value", c.grad_value, shape, "the output's shape", current)
    neuron.check_state(c.grad_state, current.shape[1:], current, "grad_state")
    if c.learn and neuron.moves_spikes:
        raise ValueError("learn: expected False of neurons with exact spike times, got True")
    gradients = (c.grad_value, c.grad_state, current, neuron)
    needs = c.need_weight, c.need_input
    if sizes == NO_POOLING:
        return scan_linear.backward(*gradients, c.learn, needs)
    return scan_pool.backward(*gradients, sizes, c.learn, needs)


@register_fake(scan_backward)
def _(c: SimpleNamespace) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    neuron = neuron_kernel(c.constants, c.state, c.flags, c.taus)
    _checked(c.current, neuron, c.window)
    current = _laid_out(c.current, c.window)
    needs = (c.need_weight, c.need_input) if neuron.credit else (True, False)
    a, b = (torch.empty_like(current) if need else current.new_empty(0) for need in needs)
    rows = torch.empty_like(c.constants) if c.learn else c.constants.new_empty(0)
    start = current.new_empty(0, dtype=state_dtype(current))
    if not neuron.credit or c.state is not None:
        start = empty_state(current, neuron.states)
    return a, b, rows, start


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    current, constants, state, ctx.flags, ctx.taus, ctx.window, ctx.gives_state = inputs
    value, final = output
    ctx.save_for_backward(current, constants, state)
    ctx.shape = value.shape
    # A state that nobody uses has no gradient, not one of zeros.
    ctx.set_materialize_grads(False)
    if not ctx.gives_state:
        ctx.mark_non_differentiable(final)


def _backward(ctx: Any, grad_value: Tensor | None, grad_state: Tensor | None) -> tuple[Tensor | None, ...]:
    current, constants, state = ctx.saved_tensors
    learn = ctx.needs_input_grad[1]
    if not ctx.gives_state:
        # A compiler's is one without elements.
        grad_state = None
    if grad_value is None:
        grad_value = current.new_zeros(ctx.shape)
    neurons = current, constants, state, ctx.flags, ctx.taus, ctx.window
    # A neuron without a layer around it has one gradient to give: the weight signal, as dL/dcurrent.
    a, _, rows, start = scan_backward(grad_value, grad_state, *neurons, True, False, learn)
    return a, rows if learn else None, start if state is not None else None, *[None] * 4


scan_forward.register_autograd(_backward, setup_context=_setup_context)
scan_backward.register_autograd(checks.no_second_derivative)
