"""How the kernels of convolutions under SRM neurons lay out trains and states: channels-last."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from snnlib import _native
from snnlib.ops.geometry import Geometry
from snnlib.reference.srm import state_dtype


def kernel(name: str, x: Tensor, **others: Tensor | None) -> Callable[..., Any] | None:
    """The compiled function, None where the reference has to do."""
    # Kernels compute in float32, gradient checks in float64.
    return None if x.dtype == torch.float64 else _native.kernel(name, x, **others)


def empty_train(x: Tensor, channels: int, space: Sequence[int], dtype: torch.dtype | None = None) -> Tensor:
    """A train `[T, N, C, ...]` with x's first two dimensions."""
    return x.new_empty(*x.shape[:2], *space, channels, dtype=dtype).movedim(-1, 2)


def empty_output(x: Tensor, g: Geometry, pool: Sequence[int]) -> Tensor:
    """What the forward pass gives: spikes after pooling."""
    height, width = (size // window for size, window in zip(g.space[-2:], pool, strict=True))
    return empty_train(x, g.channels, (*g.space[:-2], height, width))


def empty_state(x: Tensor, g: Geometry) -> Tensor:
    """u, s and g `[3, N, C, ...]`."""
    return x.new_empty(3, g.batch, *g.space, g.channels, dtype=state_dtype(x)).movedim(-1, 2)


def stored(tensor: Tensor | None) -> tuple[int, int]:
    """(address, dtype code)"""
    return (0, 0) if tensor is None else (tensor.data_ptr(), _native.DTYPE_CODES[tensor.dtype])


def strided_input(x: Tensor, time_dim: int) -> tuple[tuple[int, int], tuple[int, ...]]:
    """What is stored, and the strides (t, n, c, h, w)."""
    strides = x.stride()
    return stored(x), (strides[time_dim], strides[1 - time_dim], strides[2], *strides[-2:])


def frame_order(g: Geometry, time_dim: int) -> tuple[int, int]:
    """Distance in frames of neighbouring steps and samples in an output of the input's time layout."""
    return (g.batch, 1) if time_dim == 0 else (1, g.steps)
