"""Max pooling over 1, 2 or 3 axes of `[N, C, *space]`, which keeps a byte per window for its backward pass.

Kernels: cpp/cpu/max_pool.cpp; reference: snnlib/backends/reference/max_pool.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from snnlib import checks
from snnlib.backends import cpu_memory, native, reference
from snnlib.backends.reference.pool import output_size
from snnlib.ops.pool import as_walkable, check, empty_frames, empty_pooled, native_geometry

# Taps are numbers of a byte.
LARGEST_WINDOW = 256


def _check(
    x: Tensor, kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int], ceil_mode: bool
) -> None:
    check(x, kernel, stride, padding, ceil_mode)
    if math.prod(kernel) > LARGEST_WINDOW:
        raise ValueError(f"kernel: expected at most {LARGEST_WINDOW} cells, got {list(kernel)}")


@torch.library.custom_op("snnlib::max_pool", mutates_args=())
def max_pool(
    x: Tensor, kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int], ceil_mode: bool
) -> tuple[Tensor, Tensor]:
    """The largest value of every window, and which of its cells it is (uint8), counted row by row.

    Of equal cells it is the first, of several NaN the last, as in torch.
    """
    _check(x, kernel, stride, padding, ceil_mode)
    x = as_walkable(x)
    out = empty_pooled(x, kernel, stride, padding, ceil_mode)
    taps = cpu_memory.empty_like(out, torch.uint8)
    run = native.kernel("max_pool_forward", x)
    if run is None:
        values, numbers = reference.max_pool.max_pool_forward(
            x, list(kernel), list(stride), list(padding), ceil_mode
        )
        return out.copy_(values), taps.copy_(numbers)
    geometry = native_geometry(x, out, kernel, stride, padding)
    run(*geometry, x.data_ptr(), out.data_ptr(), taps.data_ptr())
    return out, taps


@max_pool.register_fake
def _(
    x: Tensor, kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int], ceil_mode: bool
) -> tuple[Tensor, Tensor]:
    out = empty_pooled(as_walkable(x), kernel, stride, padding, ceil_mode)
    return out, torch.empty_like(out, dtype=torch.uint8)


@torch.library.custom_op("snnlib::max_pool_backward", mutates_args=())
def max_pool_backward(
    grad_output: Tensor,
    taps: Tensor,
    space: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
) -> Tensor:
    """The gradient of every window at its largest cell, in the layout of `taps`."""
    checks.check_kernel_dtype("grad_output", grad_output)
    checks.check_tensor("taps", taps)
    checks.check_axes("space", space, len(kernel), 1)
    if taps.dtype != torch.uint8 or taps.shape != grad_output.shape or taps.dim() != len(kernel) + 2:
        raise ValueError(
            f"taps: expected the uint8 numbers of windows {tuple(grad_output.shape)}, got {taps.dtype} of shape "
            f"{tuple(taps.shape)}"
        )
    taps = as_walkable(taps)
    grad_input = _empty_input(grad_output, taps, space)
    _check(grad_input, kernel, stride, padding, ceil_mode=True)
    for axis, sizes in enumerate(zip(space, kernel, stride, padding, strict=True)):
        windows = taps.shape[2 + axis]
        if windows not in {output_size(*sizes, ceil_mode) for ceil_mode in (False, True)}:
            raise ValueError(f"taps: expected the windows of {tuple(space)}, got {windows} on axis {axis}")
    run = native.kernel("max_pool_backward", grad_output, taps=taps)
    if run is None:
        arguments = (list(space), list(kernel), list(stride), list(padding))
        return grad_input.copy_(reference.max_pool.max_pool_backward(grad_output, taps, *arguments))
    if grad_output.stride() != taps.stride():
        grad_output = torch.empty_like(taps, dtype=grad_output.dtype).copy_(grad_output)
    geometry = native_geometry(grad_input, grad_output, kernel, stride, padding)
    run(*geometry, grad_output.data_ptr(), taps.data_ptr(), grad_input.data_ptr())
    return grad_input


def _empty_input(grad_output: Tensor, taps: Tensor, space: Sequence[int]) -> Tensor:
    """Room for the gradient of the input, laid out as the windows are."""
    return empty_frames([*taps.shape[:2], *space], taps, grad_output.dtype)


@max_pool_backward.register_fake
def _(
    grad_output: Tensor,
    taps: Tensor,
    space: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
) -> Tensor:
    checks.check_kernel_dtype("grad_output", grad_output)
    checks.check_device("taps", taps, grad_output)
    return _empty_input(grad_output, as_walkable(taps), space)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    x, *ctx.geometry, _ = inputs
    ctx.space = list(x.shape[2:])
    ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(output[1])


def _backward(ctx: Any, grad_output: Tensor, _: Any) -> tuple[Tensor | None, ...]:
    (taps,) = ctx.saved_tensors
    return (max_pool_backward(grad_output, taps, ctx.space, *ctx.geometry), *[None] * 4)


max_pool.register_autograd(_backward, setup_context=_setup_context)


def _setup_backward_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    _, taps, ctx.space, *ctx.geometry = inputs
    ctx.save_for_backward(taps)


def _double_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    """The adjoint of adding to cells is to read them."""
    (taps,) = ctx.saved_tensors
    cells = reference.max_pool.cells_of(taps, ctx.space, *ctx.geometry)
    read = F.pad(grad.flatten(2), (0, 1)).gather(2, cells)
    return (read.view(taps.shape), *[None] * 5)


max_pool_backward.register_autograd(_double_backward, setup_context=_setup_backward_context)
