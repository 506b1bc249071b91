"""Batch normalisation over steps, samples and space of channels-last currents `[T, N, C, ...]`, float32 on a CPU.

Kernels: cpp/cpu/batch_norm.cpp; reference: snnlib/backends/reference/batch_norm.py. For `functional.normalized`, which
no compiler traces, so these are functions and no ops of torch.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from snnlib.backends import native, reference


def _rows(x: Tensor) -> tuple[int, int] | None:
    """(rows, channels) of the matrix that the tensor is in memory; None if it is none."""
    last = x.movedim(2, -1)
    return (math.prod(last.shape[:-1]), last.shape[-1]) if last.is_contiguous() and x.numel() else None


def moments(x: Tensor) -> Tensor:
    """Mean and variance per channel `[2, C]`, float64; the variance is divided by the number of values."""
    rows = _rows(x)
    run = native.kernel("batch_norm_moments", x) if rows and x.dtype == torch.float32 else None
    if run is None or rows is None:
        return reference.batch_norm.moments(x)
    out = torch.empty(2, rows[1], dtype=torch.float64)
    run(rows=rows[0], channels=rows[1], values=x, mean=out[0], variance=out[1])
    return out


def backward_(grad: Tensor, x: Tensor, moments: Tensor, epsilon: float) -> Tensor:
    """Take what the statistics of the batch pass back off `grad`, in place, the gradient as if they were constant.

    Returns the sums over `grad` as it came, `[2, C]` in float64: of itself and of its products with `x - mean`.
    """
    rows = _rows(x)
    fits = rows and x.dtype == grad.dtype == torch.float32 and grad.stride() == x.stride()
    run = native.kernel("batch_norm_backward", x, grad=grad) if fits else None
    if run is None or rows is None:
        return reference.batch_norm.backward_(grad, x, moments, epsilon)
    sums = torch.empty(2, rows[1], dtype=torch.float64)
    statistics = {"mean": moments[0], "variance": moments[1], "epsilon": epsilon}
    run(rows=rows[0], channels=rows[1], values=x, **statistics, grad=grad, sums=sums)
    return sums
