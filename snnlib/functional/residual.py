"""Addition of two spike trains that divides each event's gradient between them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from snnlib.checks import check_device, check_dtype, check_floating, check_reverse_mode, differentiable_once

__all__ = ["spike_add"]


class _SpikeAdd(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
        ctx.save_for_backward(a, b)
        return a + b

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        a, b = ctx.saved_tensors
        total = a + b
        silent = total.abs() <= torch.finfo(total.dtype).eps * (a.abs() + b.abs())
        gradient, total = gradient.masked_fill(silent, 0), total.masked_fill(silent, 1)
        return gradient * (a / total), gradient * (b / total)


def spike_add(a: Tensor, b: Tensor) -> Tensor:
    """Sum of two spike trains, the join of a residual block, with the event-time gradient.

    Forward `y = a + b`; backward, with `g = dL/dy`::

        dL/da = g a / (a + b),    dL/db = g b / (a + b)        0 where a + b is silent

    Every layer's dL/dx is proportional to the amplitude x, so an event of amplitude 2, made of two spikes, has twice
    the gradient; each spike gets its half. Plain `a + b` would give both halves to both spikes, and count the gradient
    twice at every block; here `dL/da + dL/db = g` at every event. An event counts as silent if its signed sum is
    within the rounding error of its magnitudes.

    Args:
        a: events `[T, N, ...]`, any real amplitudes.
        b: events of the same shape, dtype and device.

    Raises:
        TypeError: a is not a floating-point tensor, or b not of its dtype.
        ValueError: b has another shape or device.

    Source: Zhu et al., NeurIPS 2022, the residual nets of their code.

    >>> import torch, snnlib
    >>> a = torch.tensor([1.0, 1.0, 0.0, 0.0], requires_grad=True)
    >>> b = torch.tensor([1.0, 0.0, 2.0, 0.0], requires_grad=True)
    >>> y = snnlib.functional.spike_add(a, b)
    >>> y.tolist()
    [2.0, 1.0, 2.0, 0.0]
    >>> y.backward(torch.tensor([6.0, 3.0, 2.0, 1.0]))
    >>> a.grad.tolist(), b.grad.tolist()
    ([3.0, 3.0, 0.0, 0.0], [3.0, 0.0, 2.0, 0.0])
    """
    check_reverse_mode("spike_add")
    check_floating("a", a)
    check_dtype("b", b, a.dtype)
    check_device("b", b, a)
    if a.shape != b.shape:
        raise ValueError(f"b: expected the shape of a, {tuple(a.shape)}, got {tuple(b.shape)}")
    return _SpikeAdd.apply(a, b)  # type: ignore[no-any-return, no-untyped-call]
