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

from snnlib.functional._once import differentiable_once


class Coefficients(NamedTuple):
    """Decays and gains of membrane and current, threshold and bound of the time per potential, as they broadcast."""

    decay_m: Tensor
    decay_s: Tensor
    gain_m: Tensor | float
    gain_s: Tensor | float
    threshold: Tensor
    bound: Tensor


class SpikeReset(NamedTuple):
    """What a spike does: the membrane's value, whether the current goes, too, and whether it is the neuron's last."""

    value: float
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
        inputs = (c.gain_s * x).unbind(0)
        h, current = torch.empty_like(x), torch.empty_like(x)
        fired = torch.empty(x.shape, dtype=torch.bool, device=x.device)
        v, i = start[0], start[1]
        over = start[2] != 0 if reset.last else None
        for added, h_now, i_now, fired_now in zip(
            inputs, h.unbind(0), current.unbind(0), fired.unbind(0), strict=True
        ):
            torch.mul(i, c.decay_s, out=i_now)
            i_now.add_(added)
            torch.mul(v, c.decay_m, out=h_now)
            h_now.add_(i_now * c.gain_m)
            (torch.gt if reset.strict else torch.ge)(h_now, c.threshold, out=fired_now)
            if over is not None:
                fired_now.logical_and_(~over)
            after = h_now.masked_fill(fired_now, reset.value)
            i_after = i_now.masked_fill(fired_now, 0.0) if reset.current else i_now
            if over is not None:
                # Neurons that have fired stay as they are.
                after, i_after = torch.where(over, v, after), torch.where(over, i, i_after)
                over = over | fired_now
            v, i = after, i_after
        done = [] if over is None else [over.to(x.dtype)]
        final = torch.stack((v, i, *done))
        # `h - h` is zero for every finite number: a NaN potential gives a NaN spike, not a silent 0.
        spikes = torch.where(fired, torch.ones_like(h), h - h)
        counts = EventSequence._keep(ctx, start, h, current, fired, spikes, coefficients, reset)
        ctx.mark_non_differentiable(counts)
        ctx.set_materialize_grads(False)
        return spikes, final, counts

    @staticmethod
    def _keep(
        ctx: Any,
        start: Tensor,
        h: Tensor,
        current: Tensor,
        fired: Tensor,
        spikes: Tensor,
        c: Coefficients,
        reset: SpikeReset,
    ) -> Tensor:
        """Keeps c and p for the backward pass; returns the numbers of spikes and of bounded ones."""
        silent = None
        if reset.last:
            silent = torch.cat((start[2:] != 0, fired)).cumsum(0)[: len(h)] > 0
            spikes.masked_fill_(silent, 0.0)
        # Where neurons have fired for good it is not looked at.
        v = torch.cat((start[:1], h.masked_fill(fired, reset.value)))[: len(h)]
        slope = h - v
        per_slope = torch.where(fired & (slope > 0), 1 / slope, torch.zeros_like(slope))
        counts = torch.stack((fired.sum(), (per_slope > c.bound).sum()))
        per_slope = per_slope.clamp(max=c.bound)
        after = (c.decay_m - 1) * reset.value + (0.0 if reset.current else c.gain_m * current)
        passed = torch.where(fired, after * per_slope, torch.ones_like(h))
        ctx.save_for_backward(passed, per_slope, fired if reset.current else None, silent)
        ctx.coefficients = c
        return counts

    @staticmethod
    @differentiable_once
    def backward(
        ctx: Any, grad_spikes: Tensor | None, grad_final: Tensor | None, _counts: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        passed, per_slope, cleared, silent = ctx.saved_tensors
        c: Coefficients = ctx.coefficients
        grad_x = torch.empty_like(passed)
        if grad_final is None:
            g_v, g_i = torch.zeros_like(passed[0]), torch.zeros_like(passed[0])
        else:
            g_v, g_i = grad_final[0], grad_final[1]
        own = (
            torch.zeros_like(passed)
            if grad_spikes is None
            else torch.where(per_slope > 0, grad_spikes * per_slope, 0)
        )
        for t in reversed(range(len(passed))):
            m = torch.addcmul(own[t], g_v, passed[t])
            kept = g_i if cleared is None else g_i.masked_fill(cleared[t], 0.0)
            g = torch.add(kept, m * c.gain_m, out=grad_x[t])
            before = m * c.decay_m, g * c.decay_s
            if silent is not None:
                # What stays as it is hands its gradient on, and no input changes it.
                before = torch.where(silent[t], g_v, before[0]), torch.where(silent[t], g_i, before[1])
                g.masked_fill_(silent[t], 0.0)
            g_v, g_i = before
        states = 2 if silent is None else 3
        grad_start = torch.stack((g_v, g_i, *[torch.zeros_like(g_v)] * (states - 2)))
        return grad_x * c.gain_s, grad_start, None, None
