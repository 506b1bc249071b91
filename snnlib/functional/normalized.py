"""Neurons on normalised currents, scaled and shifted per channel as by batch norm, without storing them.

    z = scale (current - mean) + offset;   spikes = neuron(z)

Neurons with linear dynamics take z into their coefficients: B becomes `scale B`, d becomes
`d + (offset - scale mean) B`. With g = dL/dz, sums over all but the channels::

    dL/dcurrent = scale g,    dL/dscale = sum(g (current - mean)),    dL/doffset = sum(g)

Where the mean and the variance in `scale = gamma / sqrt(variance + eps)` are those of the n currents of a channel, and
x = (current - mean) / sqrt(variance + eps)::

    dL/dcurrent = scale (g - mean(g) - x mean(g x))

Source: Ioffe and Szegedy, "Batch Normalization", 2015; over time: Zheng et al., "Going Deeper With Directly-Trained
Larger Spiking Neural Networks", AAAI 2021.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from snnlib import ops
from snnlib.backends.arguments import LinearKernel
from snnlib.checks import differentiable_once
from snnlib.functional.pool import pooled
from snnlib.neurons.base import Neuron, start_state
from snnlib.neurons.constants import kept_tables
from snnlib.neurons.dynamics import Coefficient, Dynamics
from snnlib.ops.scan_plan import ScanPlan

# Below it the division by the scale would lose digits.
_LEAST_SCALE = 1e-20


def after_affine(dynamics: Dynamics, scale: Tensor, shift: Tensor) -> Dynamics:
    """Returns neurons for currents `scale current + shift`, with scale and shift per channel."""
    constant: list[Coefficient] = [*dynamics.d, *[0.0] * (dynamics.states - len(dynamics.d))]
    return replace(
        dynamics,
        b=[gain * scale for gain in dynamics.b],
        d=[d + gain * shift for d, gain in zip(constant, dynamics.b, strict=True)],
    )


def affine_kernel(neuron: Neuron, like: Tensor, scale: Tensor, shift: Tensor) -> LinearKernel | None:
    """Returns the kernel of neurons for currents `scale current + shift` of the dtype of `like`, float64 `[C]` each.

    None without linear dynamics.
    """
    tables, key = kept_tables(neuron), ("affine", like.device)
    if tables is None:
        dynamics = neuron.dynamics(neuron.constants())
        return (
            None if dynamics is None else after_affine(dynamics, scale, shift).kernel(like.dtype, like.device)
        )
    if key not in tables:
        # Float64, as scale and shift are.
        with torch.inference_mode(False):
            dynamics = neuron.dynamics(neuron.constants())
            tables[key] = None if dynamics is None else dynamics.kernel(torch.float64, like.device)
    base: LinearKernel | None = tables[key]
    if base is None:
        return None
    states = base.variables
    gain = slice(states * states, states * states + states)
    constant = slice(gain.stop, gain.stop + states)
    channels = scale.shape[0]
    rows = base.constants.expand(-1, channels).clone()
    rows[constant] += shift * rows[gain]
    rows[gain] *= scale
    return replace(base, constants=rows.to(like.dtype), alike=base.alike and channels == 1)


class _Numbers(NamedTuple):
    """Constants of a call of neurons on scaled currents."""

    # Factor `[C]` of the scale in float64; None: 1.
    rate: Tensor | None
    # Numbers per channel, float64; `moments` where mean and scale depend on the currents.
    mean: Tensor
    moments: Tensor | None
    epsilon: float
    kernel: LinearKernel
    plan: ScanPlan | None
    window: tuple[int, int]


class _ScaledNeurons(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        current: Tensor,
        weight: Tensor | None,
        offset: Tensor,
        coefficients: Tensor,
        start: Tensor | None,
        scale: Tensor,
        numbers: _Numbers,
    ) -> Tensor:
        kernel, plan, window = numbers[4:]
        value: Tensor
        if plan is not None:
            value, _ = plan.forward(current, coefficients, start)
        else:
            neurons = coefficients, start, kernel.flags, (), window
            value, _ = ops.scan.scan_forward(current, *neurons, True)
        ctx.save_for_backward(current, coefficients, start)
        ctx.scale, ctx.numbers = scale, numbers
        return value

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, grad_value: Tensor) -> tuple[Tensor | None, ...]:
        current, coefficients, start = ctx.saved_tensors
        _, need_weight, need_offset, learn = ctx.needs_input_grad[:4]
        rate, mean, moments, epsilon, kernel, plan, window = ctx.numbers
        rows: Tensor | None = None
        if plan is not None:
            grad, _ = plan.backward(grad_value, current, coefficients, start)
        else:
            neurons = current, coefficients, start, kernel.flags, (), window
            grad, _, rows, _ = ops.scan.scan_backward(grad_value, None, *neurons, True, False, learn)
        of_scale: Tensor | None = None
        of_offset: Tensor | None = None
        if moments is not None:
            of_offset, of_scale = ops.batch_norm.backward_(grad, current, moments, epsilon) / ctx.scale
        else:
            over = tuple(dim for dim in range(grad.dim()) if dim != 2)
            if need_offset:
                of_offset = grad.sum(over) / ctx.scale
            if need_weight:
                of_scale = (grad * (current - along_channels(mean, current))).sum(over) / ctx.scale
        of_weight = of_scale if rate is None or of_scale is None else of_scale * rate
        needed = of_weight if need_weight else None, of_offset if need_offset else None
        return grad, *needed, rows if learn else None, None, None, None


def along_channels(values: Tensor, current: Tensor) -> Tensor:
    """Returns values per channel `[C]` in a shape that broadcasts with currents `[T, N, C, ...]`."""
    return values.to(current.dtype).reshape(-1, *[1] * (current.dim() - 3))


def scaled_neurons(
    current: Tensor,
    weight: Tensor | None,
    mean: Tensor,
    offset: Tensor,
    neuron: Neuron,
    window: tuple[int, int],
    rate: Tensor | None = None,
    batch: tuple[Tensor, float] | None = None,
) -> Tensor | None:
    """Returns values of neurons on `weight rate (current - mean) + offset`, pooled by `window`.

    Returns None if the neurons cannot take scaled currents: without linear dynamics, or with a scale of 0.

    Args:
        current: `[T, N, C, ...]`.
        weight: `[C]`; may learn; None: 1.
        mean: `[C]`, float64, a constant.
        offset: `[C]`; may learn.
        neuron: a model whose constants may learn.
        window: window of average pooling; (1, 1): no pooling.
        rate: `[C]`, float64; None: 1.
        batch: `ops.batch_norm.moments(current)`, and the constant that was added to the variance, if mean and rate
            depend on the current: gradients flow through them.
    """
    scale = weight.detach().double() if weight is not None else rate
    assert scale is not None
    if weight is not None and rate is not None:
        scale = scale * rate
    if scale.shape[0] and float(scale.abs().min()) < _LEAST_SCALE:
        return None
    kernel = affine_kernel(neuron, current, scale, offset.detach() - mean * scale)
    if kernel is None:
        return None
    start = start_state(neuron, current.shape[1:], current)
    one_pass = window != ops.scan.NO_POOLING and ops.scan_pool.can_fuse(current, kernel, window)
    over, plan = window if one_pass else ops.scan.NO_POOLING, None
    if ops.direct.is_direct(current, kernel.constants, start):
        # The plan takes a state where the kernel has one.
        plan = ops.scan_plan.plan_of(current, kernel.from_state(start), over)
    moments, epsilon = batch or (None, 0.0)
    numbers = _Numbers(rate, mean, moments, epsilon, kernel, plan, over)
    value: Tensor = _ScaledNeurons.apply(  # type: ignore[no-untyped-call]
        current, weight, offset, kernel.constants, start, scale, numbers
    )
    return value if one_pass else pooled(value, window, neuron)
