"""Pooling over 1, 2 or 3 axes of `[N, C, *space]`: means with the event-time gradient, or the largest values.

`avg_pool.py` and `max_pool.py` call the kernels.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from snnlib import checks
from snnlib.backends import cpu_memory, native, reference
from snnlib.backends.arguments import Windows
from snnlib.ops import avg_pool, conv_layout, max_pool
from snnlib.ops.declare import custom_op, register_fake
from snnlib.ops.pool_layout import as_walkable, check, empty_pooled, geometry
from snnlib.ops.sequence_layout import frames_of, outer_dims


class Pooling(NamedTuple):
    """Pooling of one kind of sequence `[T, N, C, *space]` without torch's dispatcher.

    `forward` takes the sequence, the values, and for the largest their places in the windows; `backward` the gradient,
    the sequence or these places, and the gradient of the sequence. Allocations are of the latter three.
    """

    forward: Callable[..., None]
    backward: Callable[..., None]
    values: Callable[[], Tensor]
    places: Callable[[], Tensor]
    gradient: Callable[[], Tensor]


def prepare(x: Tensor, windows: Windows, largest: bool) -> Pooling | None:
    """Returns the pooling; None where the ops have to run, which also copy layouts."""
    name, outer = "max_pool" if largest else "pool", outer_dims(x)
    planes = x.permute(*outer, *range(2, x.dim())).is_contiguous()
    if native.cpu_kernels() is None or not (x.is_cpu and x.dtype in native.DTYPE_CODES and x.numel()):
        return None
    if largest and math.prod(windows.kernel) > max_pool.LARGEST_WINDOW:
        return None
    if not (planes or (x.dim() > 4 and conv_layout.lies_in_order(x, x))):
        return None
    frames, slot = frames_of(x, x), native.slot
    check(frames, windows)
    sizes = geometry(frames, empty_pooled(frames, windows), windows)
    there = {"input": slot(1), "output": slot(2)}
    back = {"grad_output": slot(1), "taps" if largest else "input": slot(2), "grad_input": slot(3)}
    if largest:
        there["taps"] = slot(3)
    else:
        there |= {"count_include_pad": windows.count_include_pad, "divisor_override": windows.divisor or 0}
    pooled = *x.shape[:3], *windows.counts(x.shape[3:])
    order = *outer, *(range(2, x.dim()) if planes else (*range(3, x.dim()), 2))
    return Pooling(
        native.prepare(f"{name}_forward", **sizes, **there),
        native.prepare(f"{name}_backward", **sizes, **back),
        cpu_memory.allocation(pooled, order, x, x.dtype),
        cpu_memory.allocation(pooled, order, x, torch.uint8),
        cpu_memory.allocation(x.shape, order, x, x.dtype),
    )


# Windows in the schemas of both ops.
_WINDOWS = "SymInt[] kernel, SymInt[] stride, SymInt[] padding, bool ceil_mode"


@custom_op(
    "snnlib::pool_forward",
    f"(Tensor x, {_WINDOWS}, bool count_include_pad, SymInt? divisor_override, bool largest) -> (Tensor, Tensor)",
)
def pool_forward(c: SimpleNamespace) -> tuple[Tensor, Tensor]:
    """Returns (mean of every window, None), or with `largest` (its largest value, its index in the window, uint8)."""
    checks.check_reverse_mode("pooling")
    windows = Windows(c.kernel, c.stride, c.padding, c.ceil_mode, c.count_include_pad, c.divisor_override)
    check(c.x, windows)
    if c.largest:
        return max_pool.forward(c.x, windows)
    return avg_pool.forward(c.x, windows), c.x.new_empty(0, dtype=torch.uint8)


@register_fake(pool_forward)
def _(c: SimpleNamespace) -> tuple[Tensor, Tensor]:
    out = empty_pooled(as_walkable(c.x), Windows(c.kernel, c.stride, c.padding, c.ceil_mode))
    return out, torch.empty_like(out, dtype=torch.uint8) if c.largest else c.x.new_empty(0, dtype=torch.uint8)


@custom_op(
    "snnlib::pool_backward",
    f"(Tensor grad_output, Tensor? x, Tensor? taps, SymInt[] space, {_WINDOWS}) -> Tensor",
)
def pool_backward(c: SimpleNamespace) -> Tensor:
    """Returns each window's gradient, divided among its events `x`, or at its largest pixel, whose index is in `taps`.

    `space` is the size of the frames.
    """
    windows = Windows(c.kernel, c.stride, c.padding, c.ceil_mode)
    if c.x is not None:
        check(c.x, windows)
        return avg_pool.backward(c.grad_output, c.x, windows)
    if c.taps is None:
        raise ValueError("taps: expected a tensor where there is no x, got None")
    return max_pool.backward(c.grad_output, c.taps, c.space, windows)


@register_fake(pool_backward)
def _(c: SimpleNamespace) -> Tensor:
    if c.x is not None:
        return torch.empty_like(as_walkable(c.x))
    checks.check_kernel_dtype("grad_output", c.grad_output)
    checks.check_device("taps", c.taps, c.grad_output)
    return max_pool.empty_input(c.grad_output, as_walkable(c.taps), c.space)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    x, kernel, stride, padding, ceil_mode, _, _, largest = inputs
    ctx.options = (list(x.shape[2:]), kernel, stride, padding, ceil_mode)
    ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(None if largest else x, output[1] if largest else None)


def _backward(ctx: Any, grad_output: Tensor, _: Any) -> tuple[Tensor | None, ...]:
    return (pool_backward(grad_output, *ctx.saved_tensors, *ctx.options), *[None] * 7)


pool_forward.register_autograd(_backward, setup_context=_setup_context)


def _setup_backward_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    _, _, taps, ctx.space, *windows = inputs
    ctx.windows = Windows(*windows)
    ctx.save_for_backward(taps)


def _double_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    """Double backward of max pooling: gathers the gradient at each window's argmax."""
    (taps,) = ctx.saved_tensors
    if taps is None:
        raise NotImplementedError(
            "pool_backward: expected one derivative of spike average pooling, got a second one; the event-time "
            "gradient is a rule without a derivative"
        )
    cells = reference.max_pool.largest_cells(taps, ctx.space, ctx.windows)
    read = F.pad(grad.flatten(2), (0, 1)).gather(2, cells)
    return (read.view(taps.shape), *[None] * 7)


pool_backward.register_autograd(_double_backward, setup_context=_setup_backward_context)
