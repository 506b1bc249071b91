"""Recurrent neurons over whole sequences: one event-driven pair of ops for all models of the linear family, and an
autograd function of the same kernels for programs.

Recurrent spikes arrive one step later, or with a delay per connection. The forward pass saves sums of currents and
spikes; the backward pass repeats the neurons' steps but not the sums. `recurrent_call.py` calls the kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from snnlib import checks
from snnlib.backends.arguments import Delays, LinearKernel
from snnlib.backends.native import state_dtype
from snnlib.backends.program_kernel import ProgramKernel
from snnlib.ops import recurrent_call
from snnlib.ops.declare import custom_op, register_fake
from snnlib.ops.recurrent_args import RecurrentArgs
from snnlib.ops.sequence_layout import empty_rows

# Arguments of both ops behind the currents, or their sums, in their schemas.
_RECURRENCE = (
    "Tensor weight, Tensor? starts, Tensor? targets, Tensor? delay, Tensor coefficients, Tensor? state, Tensor? past, "
    "Tensor? lengths, SymInt[] flags, SymInt longest, bool rounded"
)


def run(
    current: Tensor,
    weight: Tensor,
    neuron: LinearKernel | ProgramKernel,
    lengths: Tensor | None,
    delays: Delays | None = None,
    rows: tuple[Tensor, Tensor] | None = None,
    eprop: bool = False,
) -> tuple[Tensor, Tensor]:
    """Returns spikes and each sample's last state; `rows` are starts and targets of sparse connections.

    With `eprop` no gradient comes back through recurrent spikes.

    Without delays the last row of the state holds the last spikes; with delays the state has the neurons' states only.
    """
    delay, past, longest, rounded = delays or (None, None, 0, True)
    learned = (delay, neuron.constants, neuron.state, past)
    keep = torch.is_grad_enabled() and any(
        part is not None and part.requires_grad for part in (current, weight, *learned)
    )
    program = isinstance(neuron, ProgramKernel)
    value, final, _ = (_Program.apply if program else recurrent_forward)(
        current,
        weight,
        *(rows or (None, None)),
        *learned,
        lengths,
        # The state would keep the graph of the sequence before it.
        neuron.from_state(None) if program else neuron.flags,
        longest,
        rounded,
        keep,
        eprop,
    )
    return value, final


@custom_op(
    "snnlib::recurrent_forward",
    f"(Tensor current, {_RECURRENCE}, bool keep, bool eprop=False) -> (Tensor, Tensor, Tensor)",
)
def recurrent_forward(c: SimpleNamespace) -> tuple[Tensor, Tensor, Tensor]:
    """Returns (spikes, each sample's last state, sums of currents at every step, empty unless `keep`).

    With `starts` and `targets` connections are sparse: those of neuron j begin at index `starts[j]` of the weights.
    State, `past` and `longest` are as in `RecurrentArgs`.
    """
    checks.check_reverse_mode("recurrent layer")
    return recurrent_call.forward(RecurrentArgs.of(c, c.current), c.keep)


@register_fake(recurrent_forward)
def _(c: SimpleNamespace) -> tuple[Tensor, Tensor, Tensor]:
    args = RecurrentArgs.of(c, c.current)
    wide = state_dtype(c.current)
    total = empty_rows(c.current, c.current.shape[2], wide) if c.keep else c.current.new_empty(0, dtype=wide)
    return empty_rows(c.current, c.current.shape[2]), args.empty_state(), total


@custom_op(
    "snnlib::recurrent_backward",
    f"(Tensor grad_value, Tensor? grad_state, Tensor total, Tensor value, {_RECURRENCE}, "
    "bool learn, bool need_weight, bool need_delay, bool eprop=False) -> "
    "(Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
)
def recurrent_backward(c: SimpleNamespace) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Returns dL/dcurrent, dL/dweight, dL/ddelay, dL/dcoefficients `[P, C]`, dL/dstate, dL/dpast.

    The second has no elements unless `need_weight`, the third none unless `need_delay`, the fourth none unless `learn`,
    the last none without `past`.
    """
    args, needs = RecurrentArgs.of(c, c.total), (c.learn, c.need_weight, c.need_delay)
    return recurrent_call.backward(args, c.value, c.grad_value, c.grad_state, needs)


@register_fake(recurrent_backward)
def _(c: SimpleNamespace) -> tuple[Tensor, ...]:
    args = RecurrentArgs.of(c, c.total)
    wide = state_dtype(c.total)
    grad_delay = c.total.new_empty(0)
    if c.delay is not None:
        grad_delay = c.delay.new_empty(c.delay.shape if c.need_delay else 0)
    return (
        empty_rows(c.total, c.total.shape[2], wide),
        c.weight.new_empty(c.weight.shape if c.need_weight else 0),
        grad_delay,
        c.coefficients.new_empty(c.coefficients.shape if c.learn else 0),
        args.empty_state(),
        c.total.new_empty(0 if c.past is None else c.past.shape, dtype=wide),
    )


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    current, *others, ctx.flags, ctx.longest, ctx.rounded, _, ctx.eprop = inputs
    value, _, total = output
    ctx.dtype = current.dtype
    ctx.save_for_backward(total, value, *others)
    # The sums have no gradient, for which zeros of their size would be filled in.
    ctx.set_materialize_grads(False)


def _backward(
    ctx: Any, grad_value: Tensor | None, grad_state: Tensor | None, _total: Tensor | None
) -> tuple[Tensor | None, ...]:
    tensors = ctx.saved_tensors
    if grad_value is None:
        grad_value = torch.zeros_like(tensors[1])
    need_weight, _, _, need_delay, learn = ctx.needs_input_grad[1:6]
    options, needs = (ctx.flags, ctx.longest, ctx.rounded), (learn, need_weight, need_delay)
    if isinstance(ctx.flags, ProgramKernel):
        given: Sequence[Any] = (tensors[0], *tensors[2:], *options, ctx.eprop)
        found = recurrent_call.backward(RecurrentArgs(*given), tensors[1], grad_value, grad_state, needs)
    else:
        found = recurrent_backward(grad_value, grad_state, *tensors, *options, *needs, ctx.eprop)
    grad, grad_weight, grad_delay, rows, start, grad_past = found
    state, past = tensors[7:9]
    return (
        grad.to(ctx.dtype),
        grad_weight if need_weight else None,
        None,
        None,
        grad_delay if need_delay else None,
        rows if learn else None,
        None if state is None else start,
        None if past is None else grad_past.to(past.dtype),
        *[None] * 6,
    )


recurrent_forward.register_autograd(_backward, setup_context=_setup_context)
recurrent_backward.register_autograd(checks.no_second_derivative)


class _Program(torch.autograd.Function):
    """Neurons whose step is a program; the arguments are those of `recurrent_forward`, with a kernel for the flags."""

    @staticmethod
    def forward(*arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
        given: Sequence[Any] = (*arguments[:-2], arguments[-1])
        return recurrent_call.forward(RecurrentArgs(*given), arguments[-2])

    setup_context = staticmethod(_setup_context)

    @staticmethod
    @checks.differentiable_once
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        return _backward(ctx, *grads)
