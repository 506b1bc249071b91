"""Whole sequences of `CubaLIF` neurons with exact spike times: what `step` computes, in one node of the graph.

Forwards the bits of `step`. Backwards, with G = dL/d(v, i) after a step, c = 1 where no spike is and
`slope_after / slope` at a spike, and p = `min(1 / slope, bound)` at a spike and 0 elsewhere::

    m[t] = c[t] G_v + p[t] q[t]                  dL/dh
    g_i  = G_i + gain_m m[t]                     dL/di, without G_i at a spike that resets the current, too
    dL/dx[t] = gain_s g_i;   G_v = decay_m m[t],   G_i = decay_s g_i     of the step before

A loop over the steps with a few torch operations each takes about a seventh of the time of autograd's graph of `step`.

Source: Wunderlich and Pehle, "Event-based backpropagation can compute exact gradients for spiking neural networks",
2021.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from snnlib.checks import differentiable_once


class Coefficients(NamedTuple):
    """Decays and gains of membrane and current, threshold and bound of the time per potential, as they broadcast.

    A gain of 1 is None.
    """

    decay_m: Tensor
    decay_s: Tensor
    gain_m: Tensor | None
    gain_s: Tensor | None
    threshold: Tensor
    bound: Tensor


class SpikeReset(NamedTuple):
    """The effect of a spike: the membrane's value, whether the current goes too, and whether it is the last."""

    value: float
    # The potential that the membrane leaks to.
    rest: float
    current: bool
    last: bool
    # Whether a potential at the threshold does not fire.
    strict: bool


class EventSequence(torch.autograd.Function):
    """Currents `[T, N, C, ...]` and a state (v, i and, with single spikes, fired) to spikes and the state after them.

    The third result counts spikes and those whose gradient is bounded.
    """

    # Its spikes read dL/ds as a gradient by their time.
    gives_spike_times = True

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, start: Tensor, coefficients: Coefficients, reset: SpikeReset
    ) -> tuple[Tensor, Tensor, Tensor]:
        c = coefficients
        h, i, fired = _run(x, start, c, reset)
        # `h - h` is zero for every finite number: a NaN potential gives a NaN spike, not a silent 0.
        spikes = torch.where(fired, torch.ones_like(h), h - h)
        silent = None
        if reset.last:
            # What neurons do that have fired before is not looked at.
            silent = torch.cat((start[2:] != 0, fired)).cumsum(0)[: len(x)] > 0
            fired = fired & ~silent
            spikes.masked_fill_(silent, 0.0)
        before = torch.cat((start[:1], h.masked_fill(fired, reset.value)))
        slope = h - before[: len(x)]
        per_slope = torch.where(fired & (slope > 0), 1 / slope, torch.zeros_like(slope))
        counts = torch.stack((fired.sum(), (per_slope > c.bound).sum()))
        per_slope = per_slope.clamp(max=c.bound)
        charge = i if c.gain_m is None else c.gain_m * i
        after = (c.decay_m - 1) * (reset.value - reset.rest) + (
            torch.zeros_like(i) if reset.current else charge
        )
        rest = torch.ones_like(h) if silent is None else (~silent).to(h.dtype)
        passed = torch.where(fired, after * per_slope, rest)
        current = torch.cat((start[1:2], i.masked_fill(fired, 0.0) if reset.current else i))
        at, over = _last_step(start, fired, reset)
        parts = before.gather(0, at), current.gather(0, at), *([over] if reset.last else [])
        final = torch.cat(parts)
        cleared = fired if reset.current else None
        ctx.save_for_backward(passed, per_slope, cleared, at if reset.last else None)
        ctx.coefficients = c
        ctx.mark_non_differentiable(counts)
        ctx.set_materialize_grads(False)
        return spikes, final, counts

    @staticmethod
    @differentiable_once
    def backward(
        ctx: Any, grad_spikes: Tensor | None, grad_final: Tensor | None, _counts: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        passed, per_slope, cleared, at = ctx.saved_tensors
        c: Coefficients = ctx.coefficients
        steps = len(passed)
        # What the state after each step gets from outside, `[T + 1, ...]`, where neurons end at different steps.
        ends: tuple[Tensor, Tensor] | None = None
        g_v = g_i = passed.new_zeros(passed.shape[1:])
        if grad_final is not None and at is None:
            g_v, g_i = grad_final[0], grad_final[1]
        elif grad_final is not None:
            none = passed.new_zeros((steps + 1, *passed.shape[1:]))
            ends = none.scatter(0, at, grad_final[:1]), none.scatter(0, at, grad_final[1:2])
            g_v, g_i = ends[0][steps], ends[1][steps]
        spikes = torch.zeros_like(passed) if grad_spikes is None else grad_spikes
        # A gradient away from spikes is not read, whatever it is.
        own = torch.where(per_slope > 0, spikes * per_slope, torch.zeros_like(passed))
        grad_x = torch.empty_like(passed)
        for t in reversed(range(steps)):
            m = torch.addcmul(own[t], g_v, passed[t])
            kept = g_i if cleared is None else g_i.masked_fill(cleared[t], 0.0)
            g = torch.add(kept, m if c.gain_m is None else m * c.gain_m, out=grad_x[t])
            g_v, g_i = m * c.decay_m, g * c.decay_s
            if ends is not None:
                g_v, g_i = g_v + ends[0][t], g_i + ends[1][t]
        fired = [] if at is None else [torch.zeros_like(g_v)]
        return grad_x if c.gain_s is None else grad_x * c.gain_s, torch.stack((g_v, g_i, *fired)), None, None


def _run(x: Tensor, start: Tensor, c: Coefficients, reset: SpikeReset) -> tuple[Tensor, Tensor, Tensor]:
    """Membranes before the reset, currents and spikes of all steps, as if no spike was the last."""
    h, i, fired = torch.empty_like(x), torch.empty_like(x), torch.empty_like(x, dtype=torch.bool)
    v, current = start[0], start[1]
    fires = torch.gt if reset.strict else torch.ge
    inputs = x if c.gain_s is None else c.gain_s * x
    leak = (1 - c.decay_m) * reset.rest
    for added, h_now, i_now, fired_now in zip(
        *(part.unbind(0) for part in (inputs, h, i, fired)), strict=True
    ):
        torch.mul(current, c.decay_s, out=i_now)
        i_now.add_(added)
        torch.mul(v, c.decay_m, out=h_now)
        h_now.add_(i_now if c.gain_m is None else i_now * c.gain_m)
        if reset.rest:
            h_now.add_(leak)
        fires(h_now, c.threshold, out=fired_now)
        v = h_now.masked_fill(fired_now, reset.value)
        current = i_now.masked_fill(fired_now, 0.0) if reset.current else i_now
    return h, i, fired


def _last_step(start: Tensor, fired: Tensor, reset: SpikeReset) -> tuple[Tensor, Tensor]:
    """After how many steps the state of each neuron is its last one, `[1, ...]`, and 1 where it has fired."""
    steps = fired.shape[0]
    at = torch.full_like(start[:1], steps, dtype=torch.long)
    if not reset.last:
        return at, at
    numbers = torch.arange(1, steps + 1, device=start.device).view(-1, *[1] * (start.dim() - 1))
    first = torch.where(fired, numbers, steps + 1).amin(0, keepdim=True) if steps else at + 1
    before = start[2:] != 0
    over = before | (first <= steps)
    return torch.where(before, 0, first.clamp(max=steps)), over.to(start.dtype)
