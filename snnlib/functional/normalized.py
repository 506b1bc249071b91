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
from typing import Any

import torch
from torch import Tensor

from snnlib import ops
from snnlib.backends.arguments import LinearKernel
from snnlib.checks import differentiable_once, step_shape
from snnlib.functional.pool import pooled
from snnlib.neurons.base import Neuron, start_state
from snnlib.neurons.constants import kept_tables
from snnlib.neurons.dynamics import Coefficient, Dynamics

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
    rows = base.constants.expand(-1, len(scale)).clone()
    rows[constant] += shift * rows[gain]
    rows[gain] *= scale
    return replace(base, constants=rows.to(like.dtype), alike=base.alike and len(scale) == 1)


class _ScaledNeurons(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        current: Tensor,
        scale: Tensor,
        offset: Tensor,
        coefficients: Tensor,
        moments: Tensor | None,
        epsilon: float,
        mean: Tensor,
        start: Tensor | None,
        kernel: LinearKernel,
        time_dim: int,
        window: tuple[int, int],
    ) -> Tensor:
        value: Tensor
        if not ops.direct.is_direct(current, coefficients, start):
            flags = kernel.flags
            value, _ = ops.scan.scan_forward(current, coefficients, start, flags, (), time_dim, window, True)
        elif window == ops.scan.NO_POOLING:
            value, _ = ops.scan_linear.forward(current, kernel.from_state(start), time_dim)
        else:
            value, _ = ops.scan_pool.forward(current, kernel, time_dim, window)
        ctx.save_for_backward(current, scale, coefficients, moments, mean, start)
        ctx.epsilon, ctx.kernel, ctx.time_dim, ctx.window = epsilon, kernel, time_dim, window
        return value

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, grad_value: Tensor) -> tuple[Tensor | None, ...]:
        current, scale, coefficients, moments, mean, start = ctx.saved_tensors
        _, need_scale, need_offset, learn = ctx.needs_input_grad[:4]
        kernel, time_dim, window = ctx.kernel, ctx.time_dim, ctx.window
        if not ops.direct.is_direct(grad_value, current, coefficients, start):
            neurons = current, coefficients, start, kernel.flags, (), time_dim, window
            grad, _, rows, _ = ops.scan.scan_backward(grad_value, None, *neurons, True, False, learn)
        elif window == ops.scan.NO_POOLING:
            given = current, kernel.from_state(start), time_dim, learn
            grad, _, rows, _ = ops.scan_linear.backward(grad_value, None, *given)
        else:
            pools = current, kernel, time_dim, window, learn
            grad, _, rows, _ = ops.scan_pool.backward(grad_value, None, *pools, (True, False))
        grad_scale: Tensor | None = None
        grad_offset: Tensor | None = None
        if moments is not None:
            sums = ops.batch_norm.backward_(grad, current, moments, ctx.epsilon) / scale
            grad_offset, grad_scale = sums
        else:
            over = tuple(dim for dim in range(grad.dim()) if dim != 2)
            if need_offset:
                grad_offset = grad.sum(over) / scale
            if need_scale:
                grad_scale = (grad * (current - along_channels(mean, current))).sum(over) / scale
        return grad, grad_scale, grad_offset, rows if learn else None, *[None] * 7


def along_channels(values: Tensor, current: Tensor) -> Tensor:
    """Returns values per channel `[C]` in a shape that broadcasts with currents `[T, N, C, ...]`."""
    return values.to(current.dtype).reshape(-1, *[1] * (current.dim() - 3))


def scaled_neurons(
    current: Tensor,
    scale: Tensor,
    mean: Tensor,
    offset: Tensor,
    neuron: Neuron,
    window: tuple[int, int],
    moments: Tensor | None = None,
    epsilon: float = 0.0,
) -> Tensor | None:
    """Returns values of neurons on `scale (current - mean) + offset`, pooled by `window`.

    Returns None if the neurons cannot take scaled currents: without linear dynamics, or with a scale of 0.

    Args:
        current: `[T, N, C, ...]`.
        scale: `[C]`, float64; may learn.
        mean: `[C]`, float64, a constant.
        offset: `[C]`, float64; may learn.
        neuron: a model whose constants may learn.
        window: window of average pooling; (1, 1): no pooling.
        moments: `ops.batch_norm.moments(current)` if mean and scale depend on the current: gradients flow through
            them.
        epsilon: constant that was added to the variance.
    """
    fixed = scale.detach()
    if len(scale) and float(fixed.abs().min()) < _LEAST_SCALE:
        return None
    kernel = affine_kernel(neuron, current, fixed, offset.detach() - mean * fixed)
    if kernel is None:
        return None
    time_dim = int(neuron.batch_first)
    shape = step_shape(current.shape, time_dim)
    start = start_state(neuron, shape, current)
    one_pass = ops.scan_pool.can_fuse(current, kernel, window)
    numbers = scale, offset, kernel.constants, moments, epsilon, mean
    value: Tensor = _ScaledNeurons.apply(  # type: ignore[no-untyped-call]
        current, *numbers, start, kernel, time_dim, window if one_pass else (1, 1)
    )
    return value if one_pass else pooled(value, window, neuron)
