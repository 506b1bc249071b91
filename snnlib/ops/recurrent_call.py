"""Calls of the recurrent kernels, for the ops of `recurrent.py`.

Kernels: cpp/include/snnlib/loop/recurrent.h, cpp/cpu/recurrent_*.cpp, cuda/recurrent*.cu and, with delays,
cpp/include/snnlib/loop/recurrent_delays.h; reference: snnlib/backends/reference/recurrent.py and
delayed_recurrent.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from snnlib import checks
from snnlib.backends import cpu_memory, native, reference
from snnlib.backends.native import state_dtype
from snnlib.backends.program_kernel import ProgramKernel
from snnlib.backends.reference.recurrent import Gradients
from snnlib.ops import delayed_linear, sparse_linear
from snnlib.ops.delayed_linear import Delayed
from snnlib.ops.recurrent_args import RecurrentArgs
from snnlib.ops.scan_linear import sum_neurons
from snnlib.ops.sequence_layout import contiguous, empty_rows
from snnlib.ops.sparse_linear import given


def forward(args: RecurrentArgs, keep: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the results of the op `recurrent_forward`."""
    lengths = args.check()
    current, neuron = args.current, args.neuron
    kernel = args.kernel("forward")
    final = args.empty_state()
    value = empty_rows(current, current.shape[2])
    total = current.new_empty(0, dtype=state_dtype(current))
    if keep:
        total = empty_rows(current, current.shape[2], total.dtype)
    if kernel is None:
        spikes, last, sums = reference.recurrent.forward(current, args.matrix, neuron, lengths, args.delays)
        if keep:
            total.copy_(sums)
        value.copy_(spikes), final.copy_(last)
    else:
        spikes = value if value.dtype == total.dtype else cpu_memory.empty_like(value, total.dtype)
        kernel(**args.struct(lengths), value=spikes, state_out=final, total=total if keep else None)
        value = spikes.to(current.dtype)
    neuron.check_final(final)
    return value, final, total


def backward(
    args: RecurrentArgs,
    value: Tensor,
    grad_value: Tensor,
    grad_state: Tensor | None,
    needs: tuple[bool, bool, bool],
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Returns the results of the op `recurrent_backward`; `needs`: coefficients, weight, delay."""
    lengths = args.check("total")
    total, weight, coefficients = args.current, args.weight, args.coefficients
    learn, need_weight, need_delay = needs
    checks.check_gradient("grad_value", grad_value, total.shape, "the currents' shape", total)
    checks.check_gradient("value", value, total.shape, "the currents' shape", total)
    args.check_state("grad_state", grad_state)
    kernel = args.kernel("backward", grad_value=grad_value, value=value)
    if kernel is None:
        signals = (value, grad_value, grad_state)
        found = reference.recurrent.backward(
            total, signals, args.matrix, args.neuron, lengths, args.delays, args.spikes_back
        )
        grad = _empty_gradient(args).copy_(found.current)
    else:
        found = _by_kernel(kernel, args, lengths, (value, grad_value, grad_state), needs)
        grad = found.current
    grad_weight, grad_delay, rows = weight.new_empty(0), total.new_empty(0), coefficients.new_empty(0)
    if args.delay is not None:
        delayed, signal = _as_delayed(args, value.to(grad.dtype), grad)
        if args.starts is None:
            _, grad_weight, grad_delay = delayed_linear.backward(
                signal, delayed, False, need_weight, need_delay
            )
        else:
            connections = args.starts, given(args.targets)
            grad_weight, grad_delay = sparse_linear.delayed_backward(
                signal, delayed, connections, need_weight, need_delay
            )
    elif need_weight:
        grad_weight = found.weight.to(weight.dtype).contiguous()
    if learn:
        rows = sum_neurons(found.coefficients, coefficients, args.neuron.learned)
    past = grad.new_empty(0) if args.past is None else found.past
    return grad, grad_weight, grad_delay, rows, found.state, past


def _empty_gradient(args: RecurrentArgs) -> Tensor:
    return empty_rows(args.current, args.current.shape[2], state_dtype(args.current))


def _by_kernel(
    kernel: Callable[..., Any],
    args: RecurrentArgs,
    lengths: Tensor | None,
    signals: tuple[Tensor, Tensor, Tensor | None],
    needs: tuple[bool, bool, bool],
) -> Gradients:
    """Returns gradients by a kernel, without those of delayed weights."""
    grad, start, struct = _empty_gradient(args), args.empty_state(), args.struct(lengths)
    own, (learn, need_weight, _) = len(start), needs
    if args.delay is not None and struct["state_in"] is not None:
        start = torch.empty_like(struct["state_in"])
    by_neuron = start.new_empty((len(args.neuron.learned), *start.shape[1:]) if learn else 0)
    weight = torch.empty_like(struct["weight"]) if need_weight and args.delay is None else None
    value, grad_value, grad_state = signals
    kernel(
        **struct,
        value=contiguous(value.to(grad.dtype), args.current),
        grad_value=contiguous(grad_value.to(grad.dtype), args.current),
        **native.dense(grad.dtype, grad_state_out=grad_state),
        spikes_back=args.spikes_back,
        grad_current=grad,
        grad_state_in=start,
        grad_coefficients=by_neuron if learn else None,
        grad_weight=weight,
        # Kernels with delays have no use for it.
        kept=_room(args, grad, learn) if args.delay is None else None,
    )
    past, none = start[own:], start[:0]
    if args.delay is not None:
        start, past = start[:own].clone(), past.clone()
    if weight is not None and args.starts is None:
        weight = weight[:, : len(weight)].t()
    return Gradients(grad, none if weight is None else weight, by_neuron, start, past)


def _room(args: RecurrentArgs, grad: Tensor, learn: bool) -> Tensor | None:
    """Returns memory for the values per step of a backward pass by blocks; one of them uses the gradient's memory."""
    neuron = args.neuron
    if native.most_recurrent_neurons(grad) is None or isinstance(neuron, ProgramKernel):
        return None
    values = neuron.states + (learn or neuron.options.quadratic) * neuron.variables
    return grad.new_empty((values - 1) * grad.numel())


def _as_delayed(args: RecurrentArgs, value: Tensor, grad: Tensor) -> tuple[Delayed, Tensor]:
    """Returns recurrent spikes as events of a delayed fully connected map, and the signals of its currents.

    Gradients of recurrent weights and delays are those of such a map, shifted by a step: a spike without delay arrives
    one step later, so event and signal at one index belong to neighbouring steps.
    """
    assert args.delay is not None
    past = value.new_zeros(1, *args.step) if args.past is None else args.past
    before = past.flip(0).to(value.dtype)
    events = torch.cat((before, value[:-1]))
    if not len(value):
        events = events[:-1]
    delayed = Delayed(events, args.weight, args.delay, args.rounded)
    return delayed, torch.cat((torch.zeros_like(before[1:]), grad))
