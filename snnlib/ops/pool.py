"""Spike average pooling over 1, 2 or 3 axes of `[N, C, *spatial]`.

Kernels: cpp/include/snnlib/kernels/pool.h; reference: snnlib/backends/reference/pool.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from snnlib import checks
from snnlib.backends import cpu_memory, native, reference
from snnlib.backends.reference.pool import output_size


def is_channels_last(x: Tensor) -> bool:
    """Whether channels are the last axis in memory."""
    if x.dim() == 4:
        return x.is_contiguous(memory_format=torch.channels_last) and not x.is_contiguous()
    if x.dim() == 5:
        return x.is_contiguous(memory_format=torch.channels_last_3d) and not x.is_contiguous()
    return False


def as_walkable(x: Tensor) -> Tensor:
    """The frames in one of the two layouts that the kernels walk."""
    return x if is_channels_last(x) else x.contiguous()


def empty_pooled(
    x: Tensor, kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int], ceil_mode: bool
) -> Tensor:
    """Room for the windows of `x`, in its layout."""
    spatial = [
        output_size(*axis, ceil_mode) for axis in zip(x.shape[2:], kernel, stride, padding, strict=True)
    ]
    return empty_frames([*x.shape[:2], *spatial], x, x.dtype)


def empty_frames(shape: Sequence[int], like: Tensor, dtype: torch.dtype) -> Tensor:
    """Room for frames of this shape in the layout of the frames `like`."""
    last = (0, *range(2, len(shape)), 1)
    return cpu_memory.empty_permuted(
        shape, last if is_channels_last(like) else range(len(shape)), like, dtype
    )


def check(
    x: Tensor, kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int], ceil_mode: bool
) -> None:
    """Raise an error that names the argument."""
    checks.check_pool_sizes(x, kernel, stride, padding)
    space = x.shape[2:]
    windows = [output_size(*axis, ceil_mode) for axis in zip(space, kernel, stride, padding, strict=True)]
    checks.check_windows(windows, space, kernel)


def native_geometry(
    x: Tensor, pooled: Tensor, kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int]
) -> tuple[object, ...]:
    """(dtype, outer, inner, three axes of (in, out, kernel, stride, padding)) for tensors `[outer, *axes, inner]`."""
    axes = list(zip(x.shape[2:], pooled.shape[2:], kernel, stride, padding, strict=True))
    axes = [(1, 1, 1, 1, 0)] * (3 - len(axes)) + axes
    outer, inner = (x.shape[0], x.shape[1]) if is_channels_last(x) else (x.shape[0] * x.shape[1], 1)
    return (native.DTYPE_CODES[x.dtype], outer, inner, axes)


def shares(grad: Tensor, shape: Sequence[int], window: tuple[int, int], planes: bool = False) -> Tensor:
    """The adjoint of means of windows without overlap and padding, of sequences `[T, N, C, H, W]` of this shape.

    Channels-last in memory, as event-driven layers want their gradient, or one plane per channel.
    """
    (high, wide), (rows, columns) = window, grad.shape[3:]
    share = (grad / (high * wide)).flatten(0, 1)
    if planes:
        lines = share.repeat_interleave(wide, 3)[..., None, :].expand(-1, -1, -1, high, -1)
        cells = lines.reshape(*share.shape[:2], rows * high, columns * wide)
    elif share.numel():
        last = share.contiguous(memory_format=torch.channels_last)
        # Every share is copied to the cells of its window; "nearest" alone may round into the next one.
        cells = F.interpolate(last, scale_factor=(float(high), float(wide)), mode="nearest-exact")
    else:
        cells = share.new_zeros(*share.shape[:2], rows * high, columns * wide)
    below, beside = shape[3] - rows * high, shape[4] - columns * wide
    if below or beside:
        cells = F.pad(cells, (0, beside, 0, below))
    return cells.view(*shape[:2], *cells.shape[1:])


@torch.library.custom_op("snnlib::spike_avg_pool", mutates_args=())
def spike_avg_pool(
    x: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Tensor:
    """Average pooling; backward shares the gradient of a window out to its events by amplitude."""
    check(x, kernel, stride, padding, ceil_mode)
    if divisor_override == 0:
        raise ValueError("divisor_override: expected an integer other than 0, got 0")
    x = as_walkable(x)
    out = empty_pooled(x, kernel, stride, padding, ceil_mode)
    run = native.kernel("pool_forward", x)
    if run is None:
        arguments = (
            list(kernel),
            list(stride),
            list(padding),
            ceil_mode,
            count_include_pad,
            divisor_override,
        )
        return out.copy_(reference.pool.avg_pool_forward(x, *arguments))
    run(
        *native_geometry(x, out, kernel, stride, padding),
        count_include_pad,
        divisor_override or 0,
        x.data_ptr(),
        out.data_ptr(),
    )
    return out


@spike_avg_pool.register_fake
def _(
    x: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Tensor:
    return empty_pooled(as_walkable(x), kernel, stride, padding, ceil_mode)


@torch.library.custom_op("snnlib::spike_avg_pool_backward", mutates_args=())
def spike_avg_pool_backward(
    grad_output: Tensor,
    x: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,
) -> Tensor:
    """`x * sum_pool^T(g / sum_pool(x))`, zero for silent windows."""
    check(x, kernel, stride, padding, ceil_mode)
    x = as_walkable(x)
    pooled = empty_pooled(x, kernel, stride, padding, ceil_mode)
    checks.check_gradient("grad_output", grad_output, pooled.shape, "the output's shape", x)
    grad_input = cpu_memory.empty_like(x)
    run = native.kernel("pool_backward", x, grad_output=grad_output)
    if run is None:
        arguments = (list(kernel), list(stride), list(padding), ceil_mode)
        return grad_input.copy_(reference.pool.avg_pool_backward(grad_output, x, *arguments))
    if grad_output.stride() != pooled.stride() or grad_output.dtype != x.dtype:
        grad_output = pooled.copy_(grad_output)
    run(
        *native_geometry(x, pooled, kernel, stride, padding),
        x.data_ptr(),
        grad_output.data_ptr(),
        grad_input.data_ptr(),
    )
    return grad_input


@spike_avg_pool_backward.register_fake
def _(
    grad_output: Tensor,
    x: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,
) -> Tensor:
    return torch.empty_like(as_walkable(x))


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, *ctx.geometry, _, _ = inputs
    ctx.save_for_backward(x)


def _backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
    (x,) = ctx.saved_tensors
    return (spike_avg_pool_backward(grad_output, x, *ctx.geometry), *[None] * 6)


spike_avg_pool.register_autograd(_backward, setup_context=_setup_context)
