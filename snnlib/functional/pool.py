"""Pooling over sequences: with the event-time gradient, for neurons that learn from spike times, or torch's."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from snnlib import ops
from snnlib.backends import native
from snnlib.backends.arguments import Windows
from snnlib.backends.memo import once
from snnlib.backends.program_kernel import AnyKernel, ProgramKernel
from snnlib.checks import as_sizes, check_flag, check_floating, check_rank, in_forward_mode, one_by_one
from snnlib.neurons.base import Neuron, Output
from snnlib.ops.sequence_layout import frames_of, sequence_of

__all__ = ["spike_avg_pool1d", "spike_avg_pool2d", "spike_avg_pool3d", "spike_max_pool2d"]

Sizes = int | Sequence[int]
LAYOUTS = {1: "[T, N, C, L]", 2: "[T, N, C, H, W]", 3: "[T, N, C, D, H, W]"}


@once
def _windows(
    dims: int,
    x: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None,
    padding: Sizes,
    ceil_mode: bool,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Windows:
    """Checks all arguments and returns the windows over a sequence."""
    check_floating("x", x)
    check_rank("x", x, LAYOUTS[dims], exactly=dims + 3)
    kernel = as_sizes("kernel_size", kernel_size, dims, minimum=1)
    steps = kernel if stride is None else as_sizes("stride", stride, dims, minimum=1)
    margins = as_sizes("padding", padding, dims, minimum=0)
    check_flag("ceil_mode", ceil_mode)
    check_flag("count_include_pad", count_include_pad)
    windows = Windows(kernel, steps, margins, ceil_mode, count_include_pad, divisor_override)
    windows.check(x.shape[3:], "kernel_size")
    return windows


@once
def _dilated_windows(x: Tensor, dilation: Sizes, *options: Any) -> tuple[Windows, tuple[int, ...]]:
    """Checks all arguments of max pooling and returns the windows, without dilation, and the dilation."""
    windows = _windows(2, x, *options)
    gaps = as_sizes("dilation", dilation, 2, minimum=1)
    windows.dilated(gaps).check(x.shape[3:], "dilated kernel_size")
    return windows, gaps


class _SpikePool(torch.autograd.Function):
    """Pooling of a sequence without torch's dispatcher, also in the backward pass unless its gradient learns."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, windows: Windows, largest: bool, pooling: ops.pool.Pooling) -> Tensor:
        out = pooling.values()
        tensors = (out, pooling.places()) if largest else (out,)
        pooling.forward(x, *tensors)
        ctx.save_for_backward(*tensors) if largest else ctx.save_for_backward(x)
        ctx.windows, ctx.pooling, ctx.shape, ctx.stride = windows, pooling, x.shape, out.stride()
        return out

    @staticmethod
    @one_by_one
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        *values, cells = ctx.saved_tensors
        if values:
            # Silent windows pass no gradient.
            grad = grad * (values[0] != 0)
        if torch.is_grad_enabled() or not ops.direct.is_direct(grad, cells):
            seen, none = frames_of(cells, cells), None
            tensors = (frames_of(grad, cells), *((none, seen) if values else (seen, none)))
            frames = ops.pool.pool_backward(*tensors, ctx.shape[3:], *ctx.windows[:4])
            return sequence_of(frames, cells), None, None, None
        if grad.stride() != ctx.stride:
            grad = ctx.pooling.values().copy_(grad)
        grad_x = ctx.pooling.gradient()
        ctx.pooling.backward(grad, cells, grad_x)
        return grad_x, None, None, None


@once
def _averages(
    _kernels: object, dims: int, x: Tensor, *options: Any
) -> tuple[Windows, ops.pool.Pooling | None]:
    """Returns the windows, and their means without torch's dispatcher where kernels can read the sequence."""
    windows = _windows(dims, x, *options)
    return windows, ops.pool.prepare(x, windows, False)


@once
def _maxima(_kernels: object, x: Tensor, *options: Any) -> tuple[Windows, ops.pool.Pooling | None]:
    """Returns the windows, and their maxima as `_averages` does the means."""
    windows, gaps = _dilated_windows(x, *options)
    return windows, ops.pool.prepare(x, windows, True) if gaps == (1, 1) else None


def _is_direct(x: Tensor) -> bool:
    return ops.direct.is_direct(x) and not in_forward_mode()


def _spike_avg_pool(dims: int, x: Tensor, *options: Any) -> Tensor:
    if _is_direct(x):
        windows, pooling = _averages(native.cpu_kernels(), dims, x, *options)
        if pooling is not None:
            return _SpikePool.apply(x, windows, False, pooling)  # type: ignore[no-untyped-call, no-any-return]
    windows = _windows(dims, x, *options)
    frames: Tensor
    frames, _ = ops.pool.pool_forward(frames_of(x, x), *windows, False)
    return sequence_of(frames, x)


def spike_avg_pool1d(
    x: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """`spike_avg_pool2d` over one axis: x `[T, N, C, L]`."""
    return _spike_avg_pool(1, x, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


def spike_avg_pool2d(
    x: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """Average pooling of a spike train, with the event-time gradient.

    Forward: `y = avg_pool2d(x)` frame by frame, all options and borders as in `torch.nn.functional.avg_pool2d`.
    Backward, with the sums over the windows w that hold pixel i::

        dL/dx_i = x_i * sum_w g_w / (sum of x over w)        = x * avg_pool2d^T(g / y)

    The events of a window share its whole gradient in proportion to their amplitudes, so the sum of dL/dx equals the
    sum of g over windows that are not silent. This is the exact derivative by event times: a window's mean scales its
    events by 1/k^2, but their times decide as before when the next layer fires. For binary spikes and non-overlapping
    windows it equals the papers' inverse-output scaling. A window counts as silent, and passes no gradient, if its
    signed sum is within the rounding error of its magnitudes.

    Args:
        x: events `[T, N, C, H, W]` or `[N, T, ...]`, any real amplitudes.
        kernel_size: window size, an integer or `(kh, kw)`.
        stride: window step; default `kernel_size`.
        padding: zeros on both sides, at most half the window.
        ceil_mode: whether windows may extend beyond the end.
        count_include_pad: whether padding counts in the divisor.
        divisor_override: divisor in place of the window's size.

    Raises:
        TypeError: x is not a floating-point tensor.
        ValueError: wrong rank or option; the message names it.

    Source: Zhu et al., NeurIPS 2022, section 3.3; general form: `docs/gradients.md`.

    >>> import torch, snnlib
    >>> x = torch.tensor([[1.0, 0, 1, 1], [0, 0, 1, 1]]).reshape(1, 1, 1, 2, 4).requires_grad_()
    >>> y = snnlib.functional.spike_avg_pool2d(x, 2)
    >>> y.flatten().tolist()
    [0.25, 1.0]
    >>> (y * torch.tensor([1.0, 2.0])).sum().backward()
    >>> x.grad.flatten().tolist()
    [1.0, 0.0, 0.5, 0.5, 0.0, 0.0, 0.5, 0.5]
    """
    return _spike_avg_pool(2, x, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


def spike_avg_pool3d(
    x: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """`spike_avg_pool2d` over three space axes: x `[T, N, C, D, H, W]`."""
    return _spike_avg_pool(3, x, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


def spike_max_pool2d(
    x: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
) -> Tensor:
    """Max pooling of a spike train: a window fires when one of its inputs does.

    The gradient of a window goes to its largest event, the first of equal ones as in torch; a window whose maximum is
    0 has no event and passes no gradient. The sum of gradients is preserved.

    Args:
        x: events `[T, N, C, H, W]` (`[N, T, ...]` works as well).
        kernel_size, stride, padding, dilation, ceil_mode: as in `torch.nn.functional.max_pool2d`.

    Raises:
        TypeError: x is not a floating-point tensor.
        ValueError: wrong rank or option; the message names it.

    >>> import torch, snnlib
    >>> x = torch.tensor([[0.0, 1, 0, 0], [1, 0, 0, 0]]).reshape(1, 1, 1, 2, 4)
    >>> snnlib.functional.spike_max_pool2d(x, 2).flatten().tolist()
    [1.0, 0.0]
    """
    options = dilation, kernel_size, stride, padding, ceil_mode
    if _is_direct(x):
        windows, pooling = _maxima(native.cpu_kernels(), x, *options)
        if pooling is not None:
            return _SpikePool.apply(x, windows, True, pooling)  # type: ignore[no-untyped-call, no-any-return]
    windows, gaps = _dilated_windows(x, *options)
    frames = max_pool2d(frames_of(x, x), windows, gaps)
    # Multiplying by 1 or 0 leaves the values as they are and stops the gradient of silent windows.
    frames = frames * (frames.detach() != 0)
    return sequence_of(frames, x)


class _NonoverlappingAvgPool(torch.autograd.Function):
    """Average pooling that saves nothing for backward, where torch saves the input."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, window: tuple[int, int]) -> Tensor:
        frames = frames_of(x, x)
        ctx.shape, ctx.window, ctx.planes = x.shape, window, frames.is_contiguous()
        means: Tensor
        means, _ = ops.pool.pool_forward(frames, window, window, (0, 0), False, True, None, False)
        return sequence_of(means, x)

    @staticmethod
    @one_by_one
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return ops.avg_pool.shares(grad, ctx.shape, ctx.window, ctx.planes), None


def nonoverlapping_avg_pool2d(x: Tensor, window: tuple[int, int]) -> Tensor:
    """Averages a sequence `[T, N, C, H, W]` over windows without overlap; ignores pixels outside of windows.

    `y[i, j] = mean of x over the window`, `dL/dx = (dL/dy) / (cells of a window)`: torch's `avg_pool2d`.

    >>> import torch
    >>> nonoverlapping_avg_pool2d(torch.arange(6.0).reshape(1, 1, 1, 2, 3), (2, 2)).tolist()
    [[[[[2.0]]]]]
    """
    out: Tensor = _NonoverlappingAvgPool.apply(x, window)  # type: ignore[no-untyped-call]
    return out


def max_pool2d(frames: Tensor, windows: Windows, dilation: tuple[int, ...] = (1, 1)) -> Tensor:
    """Max pooling of frames `[B, C, H, W]`, with the bits of torch's `max_pool2d` in value and gradient.

    The kernels save one byte per window for the backward pass; torch saves the frames and 8 bytes per window. Torch's
    pooling runs on a GPU, with dilation, for windows above 256 pixels, and for dtypes without kernels.

    >>> import torch
    >>> x = torch.tensor([[0.0, 2, 1], [2, 1, 3]])[None, None].requires_grad_()
    >>> y = max_pool2d(x, Windows((2, 2), (1, 1), (0, 0)))
    >>> y.flatten().tolist()
    [2.0, 3.0]
    >>> y.sum().backward()
    >>> x.grad.flatten().tolist()                       # the first of equals
    [0.0, 1.0, 0.0, 0.0, 0.0, 1.0]
    """
    if not frames.shape[1]:
        # torch takes an empty batch, but no frames without channels.
        none = max_pool2d(frames.reshape(0, 1, *frames.shape[2:]), windows, dilation)
        return none.reshape(*frames.shape[:2], *none.shape[2:])
    if (
        native.has_kernel("max_pool_forward", frames)
        and not in_forward_mode()
        and _in_kernel(frames, windows, dilation)
    ):
        out: Tensor = ops.pool.pool_forward(frames, *windows, True)[0]
        return out
    if max(dilation) > 1:
        _check_dilated(frames.shape[2:], windows, dilation)
    kernel, stride, padding = (tuple(sizes) for sizes in windows[:3])
    return F.max_pool2d(frames, kernel, stride, padding, dilation, windows.ceil_mode)


@once
def _in_kernel(frames: Tensor, windows: Windows, dilation: Sequence[int]) -> bool:
    """Returns whether the kernel of max pooling takes these windows; torch says what does not fit."""
    return (
        0 not in frames.shape
        and set(dilation) == {1}
        and math.prod(windows.kernel) <= ops.max_pool.LARGEST_WINDOW
        and all(2 * zeros <= size for zeros, size in zip(windows.padding, windows.kernel, strict=True))
        and min(windows.counts(frames.shape[2:])) >= 1
    )


def _check_dilated(space: Sequence[int], windows: Windows, dilation: Sequence[int]) -> None:
    """Raises ValueError for a window entirely within the padding, where torch's gradient corrupts memory."""
    dilated = windows.dilated(dilation)
    for size, count, extent, step, zeros, gap in zip(
        space, dilated.counts(space), *dilated[:3], dilation, strict=True
    ):
        for first in range(-zeros, count * step - zeros, step):
            if not any(0 <= cell < size for cell in range(first, first + extent, gap)):
                raise ValueError(
                    f"padding: expected a cell of the input in every window of {tuple(windows.kernel)} with dilation "
                    f"{tuple(dilation)}, got padding {tuple(windows.padding)} around {tuple(space)}"
                )


def neurons_and_pool(
    neuron: Neuron,
    kernel: AnyKernel | None,
    current: Tensor,
    state: tuple[Tensor, ...] | None,
    pool: tuple[int, int],
    dtype: torch.dtype,
) -> Output:
    """Returns pooled values of neurons in this dtype, and the state: in one pass if a kernel can."""
    one_pass = False
    if pool != (1, 1) and kernel is not None and not isinstance(kernel, ProgramKernel):
        one_pass = ops.scan_pool.can_fuse(current, kernel, pool)
    value, after = neuron.scan(current, state, kernel, pool if one_pass else (1, 1))
    value = value.to(dtype)
    return Output(value if one_pass else pooled(value, pool, neuron), after)


def pooled(value: Tensor, pool: tuple[int, int], neuron: Neuron) -> Tensor:
    """Averages spikes `[T, N, C, H, W]` over windows without overlap, with the neurons' kind of gradient."""
    if pool == (1, 1):
        return value
    by_time = neuron.gradient == "event"
    return spike_avg_pool2d(value, pool) if by_time else nonoverlapping_avg_pool2d(value, pool)
