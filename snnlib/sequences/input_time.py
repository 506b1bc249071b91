"""Spike-time gradient of input events, which layers of neurons with exact spike times pass to the layer below.

With `g[t] = dL/dx[t]` of a layer's own input, dense over all steps, an event of amplitude x that comes one step earlier
changes the loss by `x (g[t-1] - g[t])`, and one that comes by a fraction of the step later moves this share of it from
step t to step t + 1. So its gradient in the sense of dL/ds, "more, or earlier, spikes here", is::

    q[t] = -x[t] (g[t+1] - g[t])                  g[t+1] of the step after the sequence is 0

The difference is taken forwards: a spike of step t crossed the threshold within that step, half a step later on
average, and a recurrent spike needs no more than later steps know. A chunk gets g of the step after it from the next
one: its last input is part of the state.

Source: Wunderlich and Pehle, "Event-based backpropagation can compute exact gradients for spiking neural networks",
2021 (`w (lambda_V - lambda_I)`, of which this is the difference over one step).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from snnlib.backends.reference.exact import by_time
from snnlib.checks import differentiable_once
from snnlib.sequences.history import last_steps

# Values of `input_gradient`; None is by time in layers, which take events, and dense of neurons alone.
CHOICES = ("time", "dense")


class _ByTime(torch.autograd.Function):
    """The identity, whose backward pass converts the amplitude gradient of events into the spike-time gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, before: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, before)
        return x.view_as(x)

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, before = ctx.saved_tensors
        # Autograd's own gradient is not to be written to.
        grad_x = by_time(grad.clone(), x) if ctx.needs_input_grad[0] else None
        grad_before = None
        if ctx.needs_input_grad[1]:
            grad_before = -before * grad[:1] if len(grad) else torch.zeros_like(before)
        return grad_x, grad_before


class TimedInput(NamedTuple):
    """The input of neurons with its gradient by time."""

    x: Tensor
    # The state without the last input of the chunk before, which `spike_time_gradient` had put at its end.
    state: tuple[Tensor, ...] | None
    # State at the end of the chunk, `[1, N, ...]`.
    last: Tensor


def spike_time_gradient(x: Tensor, state: tuple[Tensor, ...] | None, parts: int, by_time: bool) -> TimedInput:
    """Returns an input whose gradient is by the time of its events, and the neurons' own state.

    Args:
        x: input events `[T, N, ...]`.
        state: `parts` tensors of the neurons and the last input of the chunk before.
        parts: tensors of the neurons' own state.
        by_time: False leaves the gradient by amplitude; the state has the same parts.
    """
    before = None
    if isinstance(state, tuple) and len(state) == parts + 1:
        before, state = state[-1], state[:-1]
    if before is not None and not len(x):
        # A chunk without steps hands on what it got.
        return TimedInput(x, state, before)
    last = last_steps(x, 1)
    if not (by_time and x.requires_grad and torch.is_grad_enabled()):
        return TimedInput(x, state, last)
    if before is not None and not before.requires_grad:
        # Nobody asks for its gradient, and it may be packed to bits.
        before = None
    timed: Tensor = _ByTime.apply(x, before)  # type: ignore[no-untyped-call]
    return TimedInput(timed, state, last)
