"""Batch normalisation and neurons from the currents of a convolution: normalised currents are never stored.

    z = gamma (current - mean) / sqrt(variance + eps) + beta;   spikes = neuron(z)

Neurons with linear dynamics take z as `scale current + shift` into their coefficients: B becomes `scale B`, d becomes
`d + shift B`. With the statistics of the batch and g = dL/dcurrent as if they were constant, n values per channel and
x = (current - mean) / sqrt(variance + eps)::

    dL/dcurrent = g - mean(g) - x mean(g x),    dL/dgamma = sum(g x) / scale,    dL/dbeta = sum(g) / scale

Source: Ioffe and Szegedy, "Batch Normalization", 2015; over time: Zheng et al., "Going Deeper With Directly-Trained
Larger Spiking Neural Networks", AAAI 2021.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from snnlib import ops
from snnlib.functional.spiking import pooled
from snnlib.neurons.base import Neuron
from snnlib.neurons.dynamics import Coefficient, Dynamics

# Below it the division by the scale would lose digits.
_LEAST_SCALE = 1e-20


def after_affine(dynamics: Dynamics, scale: Tensor, shift: Tensor) -> Dynamics:
    """The neurons for currents that come as `scale current + shift`, one of each per channel."""
    constant: list[Coefficient] = [*dynamics.d, *[0.0] * (dynamics.states - len(dynamics.d))]
    return replace(
        dynamics,
        b=[gain * scale for gain in dynamics.b],
        d=[d + gain * shift for d, gain in zip(constant, dynamics.b, strict=True)],
    )


class _BatchNormalized(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        current: Tensor,
        gamma: Tensor,
        beta: Tensor,
        moments: Tensor,
        epsilon: float,
        scale: Tensor,
        coefficients: Tensor,
        start: Tensor | None,
        flags: list[int],
        time_dim: int,
        pool: bool,
    ) -> Tensor:
        run = ops.scan_pool.scan_pool_forward if pool else ops.scan.scan_forward
        value: Tensor = run(current, coefficients, start, flags, time_dim)[0]
        ctx.save_for_backward(current, moments, scale, coefficients, start)
        ctx.epsilon, ctx.flags, ctx.time_dim, ctx.pool = epsilon, flags, time_dim, pool
        ctx.dtypes = gamma.dtype, beta.dtype
        return value

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_value: Tensor) -> tuple[Tensor | None, ...]:
        current, moments, scale, coefficients, start = ctx.saved_tensors
        neurons = current, coefficients, start, ctx.flags, ctx.time_dim
        if ctx.pool:
            grad: Tensor = ops.scan_pool.scan_pool_backward(grad_value, None, *neurons)[0]
        else:
            grad = ops.scan.scan_backward(grad_value, None, *neurons, False)[0]
        sums = ops.batch_norm.backward_(grad, current, moments, ctx.epsilon)
        per_scale = (sums / scale).to(torch.float64)
        grad_gamma = (per_scale[1] * (moments[1] + ctx.epsilon).rsqrt()).to(ctx.dtypes[0])
        return grad, grad_gamma, per_scale[0].to(ctx.dtypes[1]), *[None] * 8


def batch_normalized_neurons(
    current: Tensor,
    moments: Tensor,
    gamma: Tensor,
    beta: Tensor,
    epsilon: float,
    neuron: Neuron,
    window: tuple[int, int],
) -> Tensor | None:
    """Value of neurons on currents `[T, N, C, ...]` that are normalised by their own statistics, pooled by `window`.

    `moments` are those of `ops.batch_norm.moments`. None where the neurons take no scaled currents: without linear
    dynamics, with learnable constants, or with a channel whose scale is 0.
    """
    dynamics = neuron.dynamics(neuron.constants())
    if dynamics is None:
        return None
    with torch.no_grad():
        scale = gamma.double() * (moments[1] + epsilon).rsqrt()
        shift = beta.double() - moments[0] * scale
    coefficients = after_affine(dynamics, scale, shift).pack(current.new_empty(()))
    if coefficients.requires_grad or bool((scale.abs() < _LEAST_SCALE).any()):
        return None
    time_dim = int(neuron.batch_first)
    if neuron.wants_share and torch.is_grad_enabled():
        sample = current.detach().narrow(1 - time_dim, 0, 1)
        along = (-1, *[1] * (current.dim() - 3))
        neuron.measure_share(sample * scale.view(along).float() + shift.view(along).float())
    shape = [size for dim, size in enumerate(current.shape) if dim != time_dim]
    start = neuron.start(shape, current, None)
    pool = window == (2, 2) and ops.scan_pool.fits(current, dynamics)
    value: Tensor = _BatchNormalized.apply(  # type: ignore[no-untyped-call]
        current, gamma, beta, moments, epsilon, scale, coefficients, start, dynamics.flags, time_dim, pool
    )
    return value if pool else pooled(value, window)
