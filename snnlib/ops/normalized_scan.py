"""Neurons that normalise their currents on reading, as batch norm in front of them does: kernels of CUDA alone.

    z = factor weight (current - mean) / sqrt(variance + epsilon) + bias

A backward pass runs the neurons twice, for the sums of dL/dz per channel and then for the gradient, and stores nothing
in between. Kernels: cuda/scan.cu and cuda/scan_pool.cu; their arguments are in cpp/include/snnlib/loop/normalized.h.
These are plain functions instead of torch ops, since compilers do not trace blocks with batch norm.
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from snnlib.backends import cpu_memory, native
from snnlib.backends.arguments import LinearKernel, NeuronKernel, neuron_kernel
from snnlib.checks import differentiable_once
from snnlib.ops import scan_pool
from snnlib.ops.batch_norm import rows_of
from snnlib.ops.sequence_layout import empty_state, scan_arguments

Window = tuple[int, int]


class Normalization(NamedTuple):
    """Batch norm of C channels; tensors are `[C]`, and a missing weight or bias is one of ones or zeros."""

    mean: Tensor
    variance: Tensor
    weight: Tensor | None
    bias: Tensor | None
    epsilon: float
    factor: float


def has_kernels(x: Tensor) -> bool:
    """Returns whether the device of a tensor has these kernels."""
    return native.has_kernel("normalized_forward", x)


def takes(current: Tensor, neuron: NeuronKernel) -> bool:
    """Returns whether kernels take these neurons and currents: one state, constants that do not learn."""
    if not isinstance(neuron, LinearKernel) or neuron.constants.requires_grad:
        return False
    known = neuron.pools and not neuron.options.refractory and current.dtype == torch.float32
    return known and rows_of(current) is not None and has_kernels(current)


def run(current: Tensor, neuron: NeuronKernel, window: Window, norm: Normalization, by_batch: bool) -> Tensor:
    """Returns values of neurons on normalised currents, or their means over windows of 2 x 2 cells.

    Args:
        current: channels-last currents `[T, N, C, ...]`, float32.
        neuron: neurons that `takes` knows.
        window: `(2, 2)`, or `(1, 1)` without pooling.
        norm: batch norm in front of the neurons; weight and bias may learn.
        by_batch: whether gradients flow through mean and variance, which are those of the currents.
    """
    neuron.check_sequence(current)
    inputs = current, norm.weight, norm.bias, norm, by_batch, neuron, window
    return _Neurons.apply(*inputs)  # type: ignore[no-any-return, no-untyped-call]


def _call(
    way: str,
    current: Tensor,
    neuron: LinearKernel,
    window: Window,
    input: dict[str, Any],
    signals: dict[str, Any],
) -> None:
    arguments = {**scan_arguments(current, neuron, neuron.constants.contiguous()), **signals}
    arguments["input"] = {"channels": current.shape[2], "sums": None, "means": None, **input}
    arguments["planes"] = None if window == (1, 1) else scan_pool.planes_of(current, window)
    kernel = native.kernel(f"normalized_{way}", current, **neuron.tensors())
    assert kernel is not None
    kernel(**arguments)


class _Neurons(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        current: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        norm: Normalization,
        by_batch: bool,
        neuron: LinearKernel,
        window: Window,
    ) -> Tensor:
        ctx.save_for_backward(current, neuron.constants, neuron.state, norm.mean, norm.variance, weight, bias)
        ctx.flags, ctx.options = neuron.flags, (norm.epsilon, norm.factor)
        ctx.by_batch, ctx.window = by_batch, window
        value, state = scan_pool.empty_value(current, window), empty_state(current, neuron.states)
        _call("forward", current, neuron, window, norm._asdict(), {"value": value, "state_out": state})
        return value

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, grad_value: Tensor) -> tuple[Tensor | None, ...]:
        current, constants, state, *numbers = ctx.saved_tensors
        neuron = cast(LinearKernel, neuron_kernel(constants, state, ctx.flags))
        norm, window = Normalization(*numbers, *ctx.options), ctx.window
        channels, grad, value = (
            current.shape[2],
            torch.empty_like(current),
            scan_pool.empty_value(current, window),
        )
        signals = {
            **dict.fromkeys(("grad_state_out", "grad_coefficients")),
            "grad_value": cpu_memory.laid_out_like(grad_value, value),
            "grad_current": grad,
            "grad_state_in": empty_state(current, neuron.states),
        }
        # A thread has a neuron, or a window.
        sums = current.new_empty(2, value.numel() // max(len(value) * channels, 1), channels)
        input = norm._asdict()
        _call("backward", current, neuron, window, {**input, "sums": sums}, signals)
        totals = sums.sum(1, dtype=torch.float64).float()
        means = totals * (channels / current.numel()) if ctx.by_batch else None
        _call("backward", current, neuron, window, {**input, "means": means}, signals)
        needs_weight, needs_bias = ctx.needs_input_grad[1:3]
        of_weight = totals[1] * norm.factor if needs_weight else None
        return grad, of_weight, totals[0] if needs_bias else None, *[None] * 4
