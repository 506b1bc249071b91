"""The gradient of input events by their time, which layers of neurons with exact spike times hand to the layer below.

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

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from snnlib.checks import differentiable_once, warn_caller
from snnlib.sequences.history import last_steps

# What `input_gradient` may be; None chooses by the module below.
CHOICES = ("time", "dense")


class _ByTime(torch.autograd.Function):
    """The identity, whose backward pass takes the gradient by the amplitude of events to that by their time."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, before: Tensor | None, time_dim: int) -> Tensor:
        ctx.save_for_backward(x, before)
        ctx.time_dim = time_dim
        return x.view_as(x)

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, before = ctx.saved_tensors
        steps = grad.shape[ctx.time_dim]
        one = min(steps, 1)
        first, rest = grad.narrow(ctx.time_dim, 0, one), grad.narrow(ctx.time_dim, one, steps - one)
        later = torch.cat((rest, torch.zeros_like(first)), ctx.time_dim)
        grad_x = x * (grad - later) if ctx.needs_input_grad[0] else None
        grad_before = None
        if ctx.needs_input_grad[1]:
            grad_before = -before * first.movedim(ctx.time_dim, 0) if steps else torch.zeros_like(before)
        return grad_x, grad_before, None


class TimedInput(NamedTuple):
    """The input of a layer with its gradient by time."""

    x: Tensor
    # The state without the last input of the chunk before, which `by_time` had put at its end.
    state: tuple[Tensor, ...] | None
    # What the state after the chunk ends with, `[1, N, ...]`.
    last: Tensor


def by_time(
    x: Tensor, state: tuple[Tensor, ...] | None, parts: int, input_gradient: str | None, time_dim: int
) -> TimedInput:
    """Returns the input of a layer with the gradient that the module below reads, and the layer's own state.

    Args:
        x: input events `[T, N, ...]` (`[N, T, ...]` for `time_dim` 1).
        state: the layer's state, of `parts` tensors and the last input of the chunk before.
        parts: tensors of the layer's own state.
        input_gradient: `"time"`, `"dense"`, or None for by time below spikes whose gradient is by time.
        time_dim: 0 or 1.
    """
    before = None
    if isinstance(state, tuple) and len(state) == parts + 1:
        before, state = state[-1], state[:-1]
    if before is not None and not x.shape[time_dim]:
        # A chunk without steps hands on what it got.
        return TimedInput(x, state, before)
    last = last_steps(x, 1, time_dim)
    if not is_by_time(x, input_gradient):
        return TimedInput(x, state, last)
    if before is not None and not before.requires_grad:
        # Nobody asks for its gradient, and it may be packed to bits.
        before = None
    timed: Tensor = _ByTime.apply(x, before, time_dim)  # type: ignore[no-untyped-call]
    return TimedInput(timed, state, last)


def is_by_time(x: Tensor, input_gradient: str | None) -> bool:
    """Returns whether the gradient of an input is by time: chosen so, or below spikes whose gradient is by time."""
    if not (x.requires_grad and torch.is_grad_enabled()) or input_gradient == "dense":
        return False
    # A compiler knows no graph: what asks for a gradient of spikes there is taken to be spikes.
    return input_gradient == "time" or torch.compiler.is_compiling() or gives_spike_times(x)


def gives_spike_times(x: Tensor) -> bool:
    """Returns whether the gradient of a tensor ends at spikes of neurons that read it as a gradient by time alone.

    Searches the autograd graph: pools, dropout, sums and views pass spikes on. A parameter on the way, as of a
    convolution between standalone neurons, needs the ordinary gradient, which is then no derivative for the
    spikes before it.

    Warns:
        UserWarning: spikes of such neurons, and a parameter between them and the tensor.
    """
    todo, seen = [x.grad_fn], set()
    spikes = parameters = False
    while todo:
        node = todo.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        kind = type(node).__name__
        # Functions say it for all of their calls, or of each.
        sources = (node, getattr(node, "_forward_cls", None))
        if any(getattr(source, "gives_spike_times", False) for source in sources):
            spikes = True
        elif kind == "AccumulateGrad":
            parameters = True
        else:
            # The many steps of a stacked sequence are all of one kind.
            todo += _few([before for before, _ in node.next_functions])
    if spikes and parameters:
        warn_caller(
            "x: expected spikes as the layer below gives them, got spikes that parameters have changed: these need the "
            "gradient by amplitude, so the spikes before them get no gradient by their time; put the weight into the "
            'layer of the neurons (SpikingLinear, SpikingConv2d), or choose input_gradient="dense" or "time"'
        )
    return spikes and not parameters


def _few(nodes: Sequence[Any]) -> list[Any]:
    """The first of each type among nodes, as far as they are not None."""
    return list({type(node): node for node in reversed(nodes) if node is not None}.values())
