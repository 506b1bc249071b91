"""Implicit derivative of spike times: the gradient of neurons with `gradient="event"`.

A membrane that rises by `slope` in the step that crosses the threshold reaches it `1 / slope` steps earlier per unit of
potential. With q = dL/ds, which means "more, or earlier, spikes here", and G = dL/dv after the reset::

    dL/dh = (q + slope_after G) min(1/slope, clamp)     at a spike; 0 where the membrane did not rise
    dL/dh = G                                           elsewhere

`slope_after` is the rise in the step after the reset: a spike that comes earlier lets the reset membrane rise longer.
It is 0 where all states are reset, and the gradient of earlier steps then ends at the spike.

Source: Wunderlich and Pehle, "Event-based backpropagation can compute exact gradients for spiking neural networks",
2021; Zhu et al., "Training Spiking Neural Networks with Event-driven Backpropagation", NeurIPS 2022, section 3.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class _EventSpike(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, h: Tensor, fired: Tensor, per_slope: Tensor, after: Tensor, reset_value: float
    ) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(fired, per_slope, after)
        # `h - h` is zero for every finite number: a NaN potential gives a NaN spike, not a silent 0.
        return torch.where(fired, torch.ones_like(h), h - h), torch.where(fired, reset_value, h)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None, None]:
        fired, per_slope, after = ctx.saved_tensors
        grad_spikes, grad_v = grads
        return torch.where(fired, (grad_spikes + after * grad_v) * per_slope, grad_v), None, None, None, None


def fire_by_event(
    h: Tensor,
    fired: Tensor,
    slope: Tensor,
    after: Tensor,
    reset_value: float = 0.0,
    clamp: float = torch.inf,
) -> tuple[Tensor, Tensor]:
    """Spikes where `fired`, and the membrane `h` after its reset there, with the event-driven gradient."""
    per_slope = torch.where(slope > 0, 1 / slope, torch.zeros_like(slope)).clamp(max=clamp)
    out = _EventSpike.apply(h, fired, per_slope, after.detach(), reset_value)  # type: ignore[no-untyped-call]
    return out[0], out[1]
