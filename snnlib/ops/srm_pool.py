"""SRM neurons and the means of their spikes over 2 x 2 windows as one op, for which a GPU reads currents once.

Kernels: cuda/srm_pool.cu. Where there are none the op is srm.py and pool.py one after the other: the same bits.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from snnlib import checks
from snnlib.backends import native
from snnlib.backends.native import state_dtype
from snnlib.backends.reference.srm import decay_factors
from snnlib.ops import pool, srm
from snnlib.ops.scan_pool import (
    MOST_NEURONS,
    aligned,
    as_planes,
    as_windows,
    empty_value,
    is_whole,
    planes_of,
    view_of,
)

_WINDOW = (2, 2)
_POOLING = (_WINDOW, _WINDOW, (0, 0), False)


def _check(
    current: Tensor, threshold: Tensor, taus: tuple[float, float, float], grad_clamp: float, time_dim: int
) -> None:
    checks.check_kernel_dtype("current", current)
    checks.check_rank("current", current, "[T, N, C, H, W]", exactly=5)
    srm.check(current, threshold, None, taus, grad_clamp, time_dim)
    if min(current.shape[3:]) < 2:
        raise ValueError(f"current: expected at least two rows and columns, got {tuple(current.shape[3:])}")


def has_kernels(x: Tensor) -> bool:
    """Whether the device of a tensor has kernels for the op."""
    return native.has_kernel("srm_pool_forward", x)


def _by_kernel(name: str, current: Tensor) -> bool:
    return native.has_kernel(name, current) and is_whole(current, _WINDOW) and current.numel() < MOST_NEURONS


def _arguments(
    current: Tensor, limit: Tensor, taus: tuple[float, float, float], clamp: float, time_dim: int
) -> tuple[object, ...]:
    return (
        view_of(current, time_dim),
        native.DTYPE_CODES[current.dtype],
        (*decay_factors(*taus), clamp),
        current.data_ptr(),
        limit.data_ptr(),
        limit.numel(),
        planes_of(current),
    )


def _limit(threshold: Tensor, current: Tensor) -> Tensor:
    return threshold.to(state_dtype(current)).reshape(-1).contiguous()


@torch.library.custom_op("snnlib::srm_pool_forward", mutates_args=())
def srm_pool_forward(
    current: Tensor, threshold: Tensor, tau_m: float, tau_s: float, tau_grad: float, time_dim: int
) -> Tensor:
    """Means of the spikes of every window and step, from a state of zero; cells in no window are left out."""
    taus = (tau_m, tau_s, tau_grad)
    _check(current, threshold, taus, math.inf, time_dim)
    current = as_planes(current)
    means = empty_value(current, _WINDOW)
    if not _by_kernel("srm_pool_forward", current):
        spikes, _ = srm.srm_forward(current, threshold, None, *taus, math.inf, time_dim, False)
        return means.copy_(pool.spike_avg_pool(spikes.flatten(0, 1), *_POOLING, True, None).view(means.shape))
    kernel = native.kernel("srm_pool_forward", current, threshold=threshold)
    assert kernel is not None
    current, limit = aligned(current), _limit(threshold, current)
    kernel(*_arguments(current, limit, taus, math.inf, time_dim), means.data_ptr())
    return means


@srm_pool_forward.register_fake
def _(
    current: Tensor, threshold: Tensor, tau_m: float, tau_s: float, tau_grad: float, time_dim: int
) -> Tensor:
    return empty_value(as_planes(current), _WINDOW)


@torch.library.custom_op("snnlib::srm_pool_backward", mutates_args=())
def srm_pool_backward(
    grad_means: Tensor,
    current: Tensor,
    threshold: Tensor,
    tau_m: float,
    tau_s: float,
    tau_grad: float,
    grad_clamp: float,
    time_dim: int,
    need_weight: bool,
    need_input: bool,
) -> tuple[Tensor, Tensor]:
    """Signals `a` and `b` as of `srm_backward`, for the event-time gradient of the pool; spikes are found again."""
    taus = (tau_m, tau_s, tau_grad)
    _check(current, threshold, taus, grad_clamp, time_dim)
    current = as_planes(current)
    means = empty_value(current, _WINDOW)
    checks.check_gradient("grad_means", grad_means, means.shape, "the output's shape", current)
    if not _by_kernel("srm_pool_backward", current):
        spikes, _ = srm.srm_forward(current, threshold, None, *taus, grad_clamp, time_dim, False)
        shared = pool.spike_avg_pool_backward(grad_means.flatten(0, 1), spikes.flatten(0, 1), *_POOLING)
        q = shared.view(current.shape)
        a, b = srm.srm_backward(
            q, current, threshold, None, *taus, grad_clamp, time_dim, need_weight, need_input
        )
        return a, b
    kernel = native.kernel("srm_pool_backward", current, grad_means=grad_means, threshold=threshold)
    assert kernel is not None
    current, limit = aligned(current), _limit(threshold, current)
    grad_means = as_windows(grad_means, means)
    a = torch.empty_like(current) if need_weight else current.new_empty(0)
    b = torch.empty_like(current) if need_input else current.new_empty(0)
    kernel(
        *_arguments(current, limit, taus, grad_clamp, time_dim),
        grad_means.data_ptr(),
        a.data_ptr() if need_weight else 0,
        b.data_ptr() if need_input else 0,
    )
    return a, b


@srm_pool_backward.register_fake
def _(
    grad_means: Tensor,
    current: Tensor,
    threshold: Tensor,
    tau_m: float,
    tau_s: float,
    tau_grad: float,
    grad_clamp: float,
    time_dim: int,
    need_weight: bool,
    need_input: bool,
) -> tuple[Tensor, Tensor]:
    current = as_planes(current)
    a = torch.empty_like(current) if need_weight else current.new_empty(0)
    b = torch.empty_like(current) if need_input else current.new_empty(0)
    return a, b
