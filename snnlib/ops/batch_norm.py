"""Batch normalisation over steps, samples and space of channels-last currents `[T, N, C, ...]`, float32 on a CPU.

Kernels: cpp/cpu/batch_norm.cpp; reference: snnlib/backends/reference/batch_norm.py. These are plain functions instead
of torch ops, since compilers do not trace `functional.normalized`.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from snnlib.backends import native, reference


def rows_of(x: Tensor) -> tuple[int, int] | None:
    """Returns (rows, channels) if the tensor is a matrix in memory, else None."""
    last = x.movedim(2, -1)
    return (math.prod(last.shape[:-1]), last.shape[-1]) if last.is_contiguous() and x.numel() else None


def moments(x: Tensor) -> Tensor:
    """Returns mean and biased variance per channel `[2, C]`, float64."""
    rows = rows_of(x)
    run = native.kernel("batch_norm_moments", x) if rows and x.dtype == torch.float32 else None
    if run is None or rows is None:
        return reference.batch_norm.moments(x)
    out = torch.empty(2, rows[1], dtype=torch.float64)
    run(rows=rows[0], channels=rows[1], values=x, mean=out[0], variance=out[1])
    return out


def backward_(grad: Tensor, x: Tensor, moments: Tensor, epsilon: float) -> Tensor:
    """Subtracts the gradient through the batch statistics from `grad`, the gradient for constant ones, in place.

    Returns sums over the given `grad`, `[2, C]` in float64: of `grad`, and of its products with `x - mean`.
    """
    rows = rows_of(x)
    fits = rows and x.dtype == grad.dtype == torch.float32 and grad.stride() == x.stride()
    run = native.kernel("batch_norm_backward", x, grad=grad) if fits else None
    if run is None or rows is None:
        return reference.batch_norm.backward_(grad, x, moments, epsilon)
    sums = torch.empty(2, rows[1], dtype=torch.float64)
    statistics = {"mean": moments[0], "variance": moments[1], "epsilon": epsilon}
    run(rows=rows[0], channels=rows[1], values=x, **statistics, grad=grad, sums=sums)
    return sums
