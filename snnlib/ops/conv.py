"""The two adjoint maps of a 2-D convolution, `[B, C, H, W]`, through `aten::convolution_backward`.

Both are linear in each tensor, so their gradients are a convolution and each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


@contextmanager
def _cudnn_flags(
    benchmark: bool | None, deterministic: bool | None, allow_tf32: bool | None
) -> Iterator[None]:
    """Set torch's global flags for a block; None leaves one as it is.

    `torch.backends.cudnn.flags` would set all of them, the precision of other operators included.
    """
    wanted = {"benchmark": benchmark, "deterministic": deterministic, "allow_tf32": allow_tf32}
    cudnn = torch.backends.cudnn
    before = {name: getattr(cudnn, name) for name, value in wanted.items() if value is not None}
    try:
        for name in before:
            setattr(cudnn, name, wanted[name])
        yield
    finally:
        for name, value in before.items():
            setattr(cudnn, name, value)


def _memory_format(*tensors: Tensor) -> torch.memory_format:
    """Channels last if one of the tensors is, else contiguous: the layout of operands and result."""
    last = torch.channels_last
    is_last = any(x.is_contiguous(memory_format=last) and not x.is_contiguous() for x in tensors)
    return last if is_last else torch.contiguous_format


def _empty(like: Tensor, size: Sequence[int], layout: torch.memory_format) -> Tensor:
    return torch.empty(size, dtype=like.dtype, device=like.device, memory_format=layout)


def _aten_backward(
    grad_output: Tensor,
    x: Tensor,
    weight: Tensor,
    geometry: tuple[Sequence[int], Sequence[int], Sequence[int], int],
    flags: tuple[bool | None, bool | None, bool | None],
    mask: list[bool],
) -> tuple[Tensor, ...]:
    stride, padding, dilation, groups = geometry
    arguments = (grad_output, x, weight, None, stride, padding, dilation, False, [0, 0], groups, mask)
    if x.device.type != "cuda":
        return torch.ops.aten.convolution_backward(*arguments)  # type: ignore[no-any-return]
    with _cudnn_flags(*flags):
        return torch.ops.aten.convolution_backward(*arguments)  # type: ignore[no-any-return]


@torch.library.custom_op("snnlib::conv2d_input_backward", mutates_args=())
def conv2d_input_backward(
    input_size: Sequence[int],
    grad_output: Tensor,
    weight: Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    benchmark: bool | None,
    deterministic: bool | None,
    allow_tf32: bool | None,
) -> Tensor:
    """Adjoint of the convolution in its input."""
    layout = _memory_format(grad_output, weight)
    if grad_output.numel() == 0 or weight.numel() == 0:
        return _empty(weight, input_size, layout).zero_()
    # Only the shape of the input plays a part.
    x = weight.new_empty(1).expand(input_size)
    operands = (grad_output.contiguous(memory_format=layout), x, weight.contiguous(memory_format=layout))
    geometry = (stride, padding, dilation, groups)
    grad = _aten_backward(*operands, geometry, (benchmark, deterministic, allow_tf32), [True, False, False])[
        0
    ]
    return grad.contiguous(memory_format=layout)


@conv2d_input_backward.register_fake
def _(input_size: Sequence[int], grad_output: Tensor, weight: Tensor, *_: Any) -> Tensor:
    return _empty(weight, input_size, _memory_format(grad_output, weight))


@torch.library.custom_op("snnlib::conv2d_weight_backward", mutates_args=())
def conv2d_weight_backward(
    weight_size: Sequence[int],
    grad_output: Tensor,
    x: Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    benchmark: bool | None,
    deterministic: bool | None,
    allow_tf32: bool | None,
) -> Tensor:
    """Adjoint of the convolution in its weight, summed over frames."""
    layout = _memory_format(grad_output, x)
    if grad_output.numel() == 0 or x.numel() == 0:
        return _empty(x, weight_size, layout).zero_()
    weight = x.new_empty(1).expand(weight_size)
    operands = (grad_output.contiguous(memory_format=layout), x.contiguous(memory_format=layout), weight)
    geometry = (stride, padding, dilation, groups)
    grad = _aten_backward(*operands, geometry, (benchmark, deterministic, allow_tf32), [False, True, False])[
        1
    ]
    return grad.contiguous(memory_format=layout)


@conv2d_weight_backward.register_fake
def _(weight_size: Sequence[int], grad_output: Tensor, x: Tensor, *_: Any) -> Tensor:
    return _empty(x, weight_size, _memory_format(grad_output, x))


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    _, grad_output, operand, *ctx.options = inputs
    ctx.save_for_backward(grad_output, operand)


def _input_backward_gradients(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    grad_output, weight = ctx.saved_tensors
    stride, padding, dilation, groups = ctx.options[:4]
    needs = ctx.needs_input_grad
    to_grad_output = F.conv2d(grad, weight, None, stride, padding, dilation, groups) if needs[1] else None
    to_weight = conv2d_weight_backward(weight.shape, grad_output, grad, *ctx.options) if needs[2] else None
    return (None, to_grad_output, to_weight, *[None] * 7)


def _weight_backward_gradients(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    grad_output, x = ctx.saved_tensors
    stride, padding, dilation, groups = ctx.options[:4]
    needs = ctx.needs_input_grad
    to_grad_output = F.conv2d(x, grad, None, stride, padding, dilation, groups) if needs[1] else None
    to_x = conv2d_input_backward(x.shape, grad_output, grad, *ctx.options) if needs[2] else None
    return (None, to_grad_output, to_x, *[None] * 7)


conv2d_input_backward.register_autograd(_input_backward_gradients, setup_context=_setup_context)
conv2d_weight_backward.register_autograd(_weight_backward_gradients, setup_context=_setup_context)
