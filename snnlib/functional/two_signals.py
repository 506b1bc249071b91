"""SRM neurons behind a linear map as one autograd function, with different signals for weights and inputs.

With the signals a and b of `srm_backward`::

    dL/dweight = adjoint of the map in the weight (a),    dL/dx = input_grad_scale x * adjoint in x (b)
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from snnlib import ops
from snnlib.backends.spike_time import SpikeCredit
from snnlib.checks import differentiable_once
from snnlib.functional.currents import SequenceMap


class TwoSignals(torch.autograd.Function):
    """Linear map and SRM neurons; `delay` holds the delays of the map's inputs, or None.

    An input that arrives a fraction r of a step later changes the potential at a spike dt steps afterwards by
    `-r eps'(dt)`, so delays get the signal of the kernel `eps'`, `eps_slope`.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        delay: Tensor | None,
        state: Tensor | None,
        constants: Tensor,
        linear: SequenceMap,
        credit: SpikeCredit,
        input_grad_scale: float,
        window: tuple[int, int],
        return_state: bool,
    ) -> tuple[Tensor, Tensor]:
        current = linear.currents(x, weight)
        spikes, final = ops.scan.scan_forward(current, constants, state, (), credit, window, return_state)
        saved = None if delay is None else spikes
        ctx.save_for_backward(x, weight, delay, current, constants, state, saved)
        ctx.linear, ctx.credit, ctx.window = linear, credit, window
        ctx.input_grad_scale, ctx.shape = input_grad_scale, spikes.shape
        # A state that nobody uses has no gradient, not one of zeros.
        ctx.set_materialize_grads(False)
        ctx.gives_state = return_state
        if not return_state:
            ctx.mark_non_differentiable(final)
        # `to` gives the spikes themselves where it has nothing to convert. torch.compile of torch 2.11, to which every
        # value in here is an output, would then have two of one tensor, and a gradient of zero for the first.
        return spikes if spikes.dtype == x.dtype else spikes.to(x.dtype), final

    @staticmethod
    @differentiable_once
    def backward(
        ctx: Any, grad_spikes: Tensor | None, grad_state: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        x, weight, delay, current, constants, state, spikes = ctx.saved_tensors
        need_x, need_weight, need_delay, need_state = ctx.needs_input_grad[:4]
        if not ctx.gives_state:
            # A compiler's is one without elements.
            grad_state = None
        if grad_spikes is None:
            grad_spikes = current.new_zeros(ctx.shape)
        neurons = current, constants, state, (), ctx.credit, ctx.window
        needs = need_weight or need_delay, need_x
        a, b, _, grad_start = ops.scan.scan_backward(grad_spikes, grad_state, *neurons, *needs, False)
        grad_x = grad_weight = grad_delay = None
        if need_x:
            grad_x = ctx.linear.input_backward(b, x, weight).mul_(x)
            if ctx.input_grad_scale != 1:
                grad_x = grad_x.mul_(ctx.input_grad_scale)
        if need_weight:
            grad_weight = ctx.linear.weight_backward(a, x, weight)
        if need_delay:
            # dL/ds after the last step goes on as the signal does.
            beyond = None if grad_state is None else grad_state[1]
            slope = eps_slope(a, spikes, ctx.credit[:2], beyond)
            # For a channel the products with its inputs and with its weights have one sum.
            products = -weight * ctx.linear.weight_backward(slope, x, weight)
            grad_delay = _sum_of_channels(products, len(delay)) if delay.dim() == 1 else products
            grad_delay = grad_delay.to(delay.dtype)
        return grad_x, grad_weight, grad_delay, grad_start if need_state else None, *[None] * 6


def _sum_of_channels(products: Tensor, channels: int) -> Tensor:
    """Sums a tensor of the weight's shape per input channel, over pixels, kernel elements, outputs and groups."""
    if products.dim() == 2:
        return products.sum(0)
    inputs = products.shape[1]
    return products.view(channels // inputs, -1, inputs, products.shape[2:].numel()).sum((1, 3)).flatten()


def eps_slope(a: Tensor, spikes: Tensor, taus: tuple[float, float], beyond: Tensor | None = None) -> Tensor:
    """Returns the signal a with `eps'`, the derivative of eps by the time since the input, in place of eps.

    With `eps(t) = K (e_s^(t+1) - e_m^(t+1))` and its derivative by t,

        eps'[dt] = p eps[dt] + o eps[dt - 1],   p = (e_s ln e_s - e_m ln e_m) / (e_s - e_m),   o = e_s (ln e_s - p)

    so the signal is `p a[t] + o a[t+1]`, without the second term at a spike, after which a belongs to the next spike.
    `beyond` is a[T], with the gradient of the state after the last step; None: zero.
    """
    tau_m, tau_s = taus
    # A time constant of one step has forgotten all after it.
    e_s, e_m = (max(1 - 1 / tau, 1e-12) for tau in (tau_s, tau_m))
    alike = abs(e_s - e_m) < 1e-6
    # The limit d(e ln e)/de.
    slope = math.log(e_s) + 1
    p = slope if alike else (e_s * math.log(e_s) - e_m * math.log(e_m)) / (e_s - e_m)
    o = e_s * (math.log(e_s) - p)
    later = torch.zeros_like(a)
    if len(a):
        later[:-1] = a[1:]
        if beyond is not None:
            later[-1] = beyond
    return p * a + o * torch.where(spikes != 0, torch.zeros_like(later), later)
