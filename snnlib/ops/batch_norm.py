"""Batch normalisation over steps, samples and space of channels-last currents `[T, N, C, ...]`, float32 on a CPU.

Kernels: cpp/cpu/batch_norm.cpp; reference: snnlib/backends/reference/batch_norm.py. These are plain functions instead
of torch ops, since compilers do not trace `functional.normalized`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from snnlib.backends import native, reference
from snnlib.backends.memo import kept
from snnlib.ops.sequence_layout import outer_dims


def rows_of(x: Tensor) -> tuple[int, int] | None:
    """Returns (rows, channels) if the tensor is a matrix in memory, else None."""
    last = x.permute(*outer_dims(x), *range(3, x.dim()), 2)
    return (math.prod(last.shape[:-1]), last.shape[-1]) if last.is_contiguous() and x.numel() else None


class _Kernels(NamedTuple):
    moments: Callable[..., Any]
    backward: Callable[..., Any]


_kept_kernels: dict[Any, _Kernels | bool] = {}


def _kernels_of(x: Tensor) -> _Kernels | bool:
    """Returns the kernels for float32 currents of this kind on a CPU, which lack tensors alone; False without any."""
    key = x.shape, x.stride(), x.dtype, x.device, native.cpu_kernels()
    found: _Kernels | bool = kept(_kept_kernels, key, lambda: _prepared(x))
    return found


def _prepared(x: Tensor) -> _Kernels | bool:
    size, slot = rows_of(x), native.slot
    if size is None or x.dtype != torch.float32 or not native.kernel("batch_norm_moments", x):
        return False
    rows = {"rows": size[0], "channels": size[1], "values": slot(1), "mean": slot(2), "variance": slot(3)}
    backward = native.prepare("batch_norm_backward", **rows, epsilon=slot(4), grad=slot(5), sums=slot(6))
    return _Kernels(native.prepare("batch_norm_moments", **rows), backward)


def moments(x: Tensor) -> Tensor:
    """Returns mean and biased variance per channel `[2, C]`, float64."""
    kernels = _kernels_of(x)
    if isinstance(kernels, bool):
        return reference.batch_norm.moments(x)
    out = torch.empty(2, x.shape[2], dtype=torch.float64)
    kernels.moments(x, out[0], out[1])
    return out


def backward_(grad: Tensor, x: Tensor, moments: Tensor, epsilon: float) -> Tensor:
    """Subtracts the gradient through the batch statistics from `grad`, the gradient for constant ones, in place.

    Returns sums over the given `grad`, `[2, C]` in float64: of `grad`, and of its products with `x - mean`.
    """
    kernels = _kernels_of(x)
    if isinstance(kernels, bool) or grad.dtype != torch.float32 or grad.stride() != x.stride():
        return reference.batch_norm.backward_(grad, x, moments, epsilon)
    sums = torch.empty(2, x.shape[2], dtype=torch.float64)
    kernels.backward(x, moments[0], moments[1], epsilon, grad, sums)
    return sums
