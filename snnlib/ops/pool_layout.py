"""Layouts of frames `[N, C, *space]` of 1 to 3 axes, and of windows over them, for the kernels of pooling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from snnlib import checks
from snnlib.backends import cpu_memory, native
from snnlib.backends.arguments import Windows
from snnlib.backends.memo import once


@once
def check(x: Tensor, windows: Windows) -> None:
    """Checks frames and windows; errors name the argument."""
    checks.check_kernel_dtype("x", x)
    checks.check_rank("x", x, "[N, C, *space] with 1 to 3 axes", at_least=3, at_most=5)
    axes = x.dim() - 2
    if 0 in x.shape[2:]:
        raise ValueError(f"x: expected at least one cell on each axis, got shape {tuple(x.shape)}")
    checks.check_axes("kernel", windows.kernel, axes, 1)
    checks.check_axes("stride", windows.stride, axes, 1)
    checks.check_axes("padding", windows.padding, axes, 0)
    windows.check(x.shape[2:])


def is_channels_last(x: Tensor) -> bool:
    """Returns whether channels are the last axis in memory."""
    last = {4: torch.channels_last, 5: torch.channels_last_3d}.get(x.dim())
    return last is not None and x.is_contiguous(memory_format=last) and not x.is_contiguous()


def as_walkable(x: Tensor) -> Tensor:
    """Returns the frames in one of the two layouts that kernels read."""
    return x if is_channels_last(x) else x.contiguous()


def empty_frames(shape: Sequence[int], like: Tensor, dtype: torch.dtype) -> Tensor:
    """Allocates frames of this shape in the layout of the frames `like`."""
    last = (0, *range(2, len(shape)), 1)
    return cpu_memory.empty_permuted(
        shape, last if is_channels_last(like) else range(len(shape)), like, dtype
    )


def empty_pooled(x: Tensor, windows: Windows) -> Tensor:
    """Allocates the windows of the frames `x`, in their layout."""
    return empty_frames([*x.shape[:2], *windows.counts(x.shape[2:])], x, x.dtype)


def geometry(x: Tensor, pooled: Tensor, windows: Windows) -> dict[str, Any]:
    """Returns `PoolArgs` of cpp/include/snnlib/pool/pool.h for frames and windows `[outer, *axes, inner]`."""
    missing = 3 - len(windows.kernel)
    outer, inner = (x.shape[0], x.shape[1]) if is_channels_last(x) else (x.shape[0] * x.shape[1], 1)
    return {
        "dtype": native.DTYPE_CODES[x.dtype],
        "outer": outer,
        "inner": inner,
        "in": [1] * missing + list(x.shape[2:]),
        "out": [1] * missing + list(pooled.shape[2:]),
        "kernel": [1] * missing + list(windows.kernel),
        "stride": [1] * missing + list(windows.stride),
        "padding": [0] * missing + list(windows.padding),
    }
