"""Recurrent neurons of the linear family: how the ops of `recurrent.py` call the kernels.

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
from snnlib.backends.geometry import GROUP
from snnlib.backends.native import state_dtype
from snnlib.ops import delayed_linear
from snnlib.ops.delay import time_first
from snnlib.ops.delayed_linear import Delayed
from snnlib.ops.recurrent_args import RecurrentArgs
from snnlib.ops.scan_linear import sum_neurons


def _arguments(args: RecurrentArgs, lengths: Tensor | None) -> dict[str, Any]:
    """`RecurrentArgs` of cpp/include/snnlib/loop/recurrent.h."""
    current, neuron, time_dim = args.current, args.neuron, args.time_dim
    dtype = state_dtype(current)
    (batch, neurons), steps = args.step, current.shape[time_dim]
    rows = neuron.constants.to(dtype).contiguous()
    row, state = -(-neurons // GROUP) * GROUP, neuron.state
    delays: dict[str, Any] = {"delay": None, "longest": 0, "two": False}
    if args.rows is not None:
        weight = args.weight.to(dtype).contiguous()
    elif args.delay is None:
        weight = current.new_zeros((neurons, row), dtype=dtype)
        weight[:, :neurons] = args.weight.t()
    else:
        weight = args.weight.to(dtype).contiguous()
        # Without a past the sequence's own spikes never arrive later than this.
        longest = args.longest if args.past is not None else min(args.longest, steps)
        delays = {"delay": args.delay.to(dtype).contiguous(), "longest": longest, "two": not args.rounded}
        state = _with_past(args, longest)
    return {
        "view": {
            "outer": batch,
            "steps": steps,
            "inner": neurons,
            "outer_stride": steps * neurons if time_dim else neurons,
            "step_stride": neurons if time_dim else batch * neurons,
        },
        "dtype": native.DTYPE_CODES[dtype],
        "states": neuron.variables,
        "flags": neuron.settings(),
        "coefficients": rows,
        "period": rows.shape[1],
        "current": current.to(dtype).contiguous(),
        "state_in": None if state is None else state.to(dtype).contiguous(),
        "weight": weight,
        "row": row,
        "delays": delays,
        "lengths": lengths,
        **dict(zip(("starts", "targets"), args.rows or (None, None), strict=True)),
    }


def _with_past(args: RecurrentArgs, longest: int) -> Tensor | None:
    """The neurons' own states and the spikes before the first step; None where both are zero."""
    state, past = args.neuron.state, args.past
    if state is None and past is None:
        return None
    own = args.empty_state().zero_() if state is None else state
    spikes = own.new_zeros((longest + 2, *own.shape[1:])) if past is None else past.to(own.dtype)
    return torch.cat((own, spikes))


def forward(args: RecurrentArgs, keep: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Returns what the op `recurrent_forward` gives."""
    lengths = args.check()
    current, neuron, time_dim = args.current, args.neuron, args.time_dim
    kernel = args.kernel("forward")
    final = args.empty_state()
    every = range(current.dim())
    value = cpu_memory.empty_permuted(current.shape, every, current)
    total = current.new_empty(0, dtype=state_dtype(current))
    if keep:
        total = cpu_memory.empty_permuted(current.shape, every, current, total.dtype)
    if kernel is None:
        first = time_first(current, time_dim)
        if args.delay is None:
            spikes, last, sums = reference.recurrent.forward(first, args.matrix, neuron, lengths)
        else:
            spikes, last, sums = reference.delayed_recurrent.forward(
                first, args.weight, args.delays, neuron, lengths
            )
        if keep:
            total.copy_(time_first(sums, time_dim))
        value.copy_(time_first(spikes, time_dim)), final.copy_(last)
    else:
        spikes = value if value.dtype == total.dtype else cpu_memory.empty_like(value, total.dtype)
        kernel(**_arguments(args, lengths), value=spikes, state_out=final, total=total if keep else None)
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
    """Returns what the op `recurrent_backward` gives; `needs` are those of coefficients, weight and delay."""
    lengths = args.check("total")
    total = args.current
    checks.check_gradient("grad_value", grad_value, total.shape, "the currents' shape", total)
    checks.check_gradient("value", value, total.shape, "the currents' shape", total)
    args.check_state("grad_state", grad_state)
    grad = cpu_memory.empty_permuted(total.shape, range(total.dim()), total, state_dtype(total))
    kernel = args.kernel("backward", grad_value=grad_value, value=value)
    if kernel is None:
        found = _by_reference(args, lengths, value, grad_value, grad_state, needs)
        grad.copy_(time_first(found[0], args.time_dim))
        grad_weight, rows, start, grad_past = found[1:]
    else:
        grad_weight, rows, start, grad_past = _by_kernel(
            kernel, _arguments(args, lengths), args, value, grad_value, grad_state, grad, needs
        )
    grad_delay = total.new_empty(0)
    if args.delay is not None:
        _, need_weight, need_delay = needs
        delayed, signals = _as_delayed(args, value.to(grad.dtype), grad)
        _, grad_weight, grad_delay = delayed_linear.backward(signals, delayed, False, need_weight, need_delay)
    return grad, grad_weight, grad_delay, rows, start, grad_past


def _by_reference(
    args: RecurrentArgs,
    lengths: Tensor | None,
    value: Tensor,
    grad_value: Tensor,
    grad_state: Tensor | None,
    needs: tuple[bool, bool, bool],
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """dL/dcurrent, time first, and what `_by_kernel` returns."""
    neuron, weight = args.neuron, args.weight
    learn, need_weight, _ = needs
    grad_weight, rows, grad_past = weight.new_empty(0), neuron.constants.new_empty(0), args.empty_state()[:0]
    first, of_value, total = (time_first(part, args.time_dim) for part in (value, grad_value, args.current))
    if args.delay is None:
        found = reference.recurrent.backward(of_value, grad_state, total, first, args.matrix, neuron, lengths)
        grad, by_neuron, start = found.current, found.coefficients, found.state
        if need_weight:
            grad_weight = weight.new_empty(weight.shape).copy_(found.weight)
    else:
        grad, by_neuron, start, grad_past = reference.delayed_recurrent.backward(
            of_value, grad_state, total, weight, args.delays, neuron, lengths
        )
    if learn:
        rows = sum_neurons(by_neuron, neuron.constants)
    return grad, grad_weight, rows, args.empty_state().copy_(start), _past_gradient(args, grad_past)


def _by_kernel(
    kernel: Callable[..., Any],
    arguments: dict[str, Any],
    args: RecurrentArgs,
    value: Tensor,
    grad_value: Tensor,
    grad_state: Tensor | None,
    grad: Tensor,
    needs: tuple[bool, bool, bool],
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Fills `grad` with dL/dcurrent; returns dL/dweight, dL/dcoefficients, dL/dstate and dL/dpast."""
    coefficients, (learn, need_weight, _) = args.neuron.constants, needs
    dtype, start = grad.dtype, args.empty_state()
    own = len(start)
    if args.delay is not None and arguments["state_in"] is not None:
        start = torch.empty_like(arguments["state_in"])
    by_neuron = start.new_empty((len(coefficients), *start.shape[1:]) if learn else 0)
    by_source = torch.empty_like(arguments["weight"]) if need_weight and args.delay is None else None
    kernel(
        **arguments,
        value=value.to(dtype).contiguous(),
        grad_value=grad_value.to(dtype).contiguous(),
        grad_state_out=None if grad_state is None else grad_state.to(dtype).contiguous(),
        grad_current=grad,
        grad_state_in=start,
        grad_coefficients=by_neuron if learn else None,
        grad_weight=by_source,
        # Kernels with delays have no use for it.
        kept=_room(args, grad, learn) if args.delay is None else None,
    )
    grad_weight, rows = args.weight.new_empty(0), coefficients.new_empty(0)
    if by_source is not None:
        if args.rows is None:
            by_source = by_source[:, : len(args.weight)].t()
        grad_weight = by_source.to(args.weight.dtype).contiguous()
    if learn:
        rows = sum_neurons(by_neuron, coefficients)
    if args.delay is None:
        return grad_weight, rows, start, _past_gradient(args, start[:0])
    return grad_weight, rows, start[:own].clone(), _past_gradient(args, start[own:])


def _past_gradient(args: RecurrentArgs, grad_past: Tensor) -> Tensor:
    return args.empty_state().new_empty(0) if args.past is None else grad_past.clone()


def _room(args: RecurrentArgs, grad: Tensor, learn: bool) -> Tensor | None:
    """Returns memory in which backward by blocks keeps values of every step, but for one, in the gradient's place."""
    if native.most_recurrent_neurons(grad) is None:
        return None
    states, options = args.neuron.variables, args.neuron.options
    values = states + options.added_rows + (learn or options.quadratic) * states
    return grad.new_empty((values - 1) * grad.numel())


def _as_delayed(args: RecurrentArgs, value: Tensor, grad: Tensor) -> tuple[Delayed, Tensor]:
    """Events of a delayed fully connected map and the signals of its currents, from its first event on.

    What the spikes tell weights and delays is what events of such a map tell them, one step later: a spike without
    delay arrives one step later, so event and signal of the same place are those of neighbouring steps.
    """
    assert args.delay is not None
    past, time_dim = args.past, args.time_dim
    steps = value.shape[time_dim]
    if past is None:
        past = value.new_zeros(1, *args.step)
    before = time_first(past.flip(0).to(value.dtype), time_dim)
    events = torch.cat((before, value.narrow(time_dim, 0, max(steps - 1, 0))), time_dim)
    if not steps:
        events = events.narrow(time_dim, 0, len(past) - 1)
    silent = torch.zeros_like(before.narrow(time_dim, 0, len(past) - 1))
    delayed = Delayed(events, args.weight, args.delay, args.rounded, time_dim)
    return delayed, torch.cat((silent, grad), time_dim)
