"""Whole sequences of `CubaLIF` neurons with exact spike times: what `step` computes, in one node of the graph.

Forwards the bits of `step`. Backwards, with G = dL/d(v, i) after a step, c = 1 where no spike is and
`slope_after / slope` at a spike, and p = `min(1 / slope, bound)` at a spike and 0 elsewhere::

    m[t] = c[t] G_v + p[t] q[t]                  dL/dh
    g_i  = G_i + gain_m m[t]                     dL/di, without G_i at a spike that resets the current, too
    dL/dx[t] = gain_s g_i;   G_v = decay_m m[t],   G_i = decay_s g_i     of the step before

A loop with a few torch operations for each step, in place and while the step is in the cache, takes less than a seventh
of the time of autograd's graph of `step`.

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

    The third result counts spikes and those whose gradient is bounded, where `count` asks for it.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, start: Tensor, coefficients: Coefficients, reset: SpikeReset, count: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        c = coefficients
        fires = torch.gt if reset.strict else torch.ge
        leak = (1 - c.decay_m) * reset.rest
        # The membrane's rise in the step after a spike, without what the current adds.
        fall = (c.decay_m - 1) * (reset.value - reset.rest)
        spikes, passed, per_slope = torch.empty_like(x), torch.empty_like(x), torch.empty_like(x)
        fired = torch.empty_like(x, dtype=torch.bool)
        counts = torch.zeros(2, dtype=torch.long, device=x.device)
        v, i, *over = start.unbind(0)
        # What neurons do that have fired before is not looked at; their state stays as their spike left it.
        silent = over[0] != 0 if reset.last else None
        # All of one step before the next: a step stays in the cache, a sequence does not.
        for now, s, p, q, f in zip(
            *(part.unbind(0) for part in (x, spikes, passed, per_slope, fired)), strict=True
        ):
            charged = (c.decay_s * i).add_(now if c.gain_s is None else c.gain_s * now)
            charge = charged if c.gain_m is None else charged * c.gain_m
            h = (c.decay_m * v).add_(charge)
            if reset.rest:
                h.add_(leak)
            fires(h, c.threshold, out=f)
            # `h - h` is zero for every finite number: a NaN potential gives a NaN spike, not a silent 0.
            torch.sub(h, h, out=s).masked_fill_(f, 1.0)
            if silent is not None:
                s.masked_fill_(silent, 0.0)
                f.masked_fill_(silent, False)
            slope = h - v
            torch.reciprocal(slope, out=q).masked_fill_((slope > 0).logical_and_(f).logical_not_(), 0.0)
            if count:
                counts += torch.stack((f.sum(), (q > c.bound).sum()))
            torch.minimum(q, c.bound, out=q)
            torch.mul(fall if reset.current else charge + fall, q, out=p)
            p.masked_fill_(~f, 1.0)
            h.masked_fill_(f, reset.value)
            if reset.current:
                charged.masked_fill_(f, 0.0)
            if silent is not None:
                p.masked_fill_(silent, 0.0)
                h, charged = torch.where(silent, v, h), torch.where(silent, i, charged)
                silent = silent | f
            v, i = h, charged
        final = torch.stack((v, i, *over) if silent is None else (v, i, silent.to(v.dtype)))
        at = _last_step(start, fired) if reset.last else None
        ctx.save_for_backward(passed, per_slope, fired if reset.current else None, at)
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
        grad_x = torch.empty_like(passed)
        for t in reversed(range(steps)):
            if grad_spikes is None:
                m = g_v * passed[t]
            else:
                # A gradient away from spikes is not read, whatever it is.
                own = (grad_spikes[t] * per_slope[t]).masked_fill_(per_slope[t] == 0, 0.0)
                m = torch.addcmul(own, g_v, passed[t], out=own)
            kept = g_i if cleared is None else g_i.masked_fill(cleared[t], 0.0)
            g = torch.add(kept, m if c.gain_m is None else m * c.gain_m, out=grad_x[t])
            g_v, g_i = m * c.decay_m, g * c.decay_s
            if ends is not None:
                g_v, g_i = g_v + ends[0][t], g_i + ends[1][t]
        fired = [] if at is None else [torch.zeros_like(g_v)]
        grads = grad_x if c.gain_s is None else grad_x * c.gain_s, torch.stack((g_v, g_i, *fired))
        return (*grads, None, None, None)


def _last_step(start: Tensor, fired: Tensor) -> Tensor:
    """After how many steps the state of each neuron with a single spike is its last one, `[1, ...]`."""
    steps = fired.shape[0]
    numbers = torch.arange(1, steps + 1, device=start.device).view(-1, *[1] * (start.dim() - 1))
    first = (
        torch.where(fired, numbers, steps).amin(0, keepdim=True)
        if steps
        else torch.zeros_like(start[:1]).long()
    )
    return torch.where(start[2:] != 0, 0, first)
