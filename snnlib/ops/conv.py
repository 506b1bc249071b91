"""The two adjoint maps of a 2-D convolution, `[B, C, H, W]`.

CUDA tensors use cuDNN directly (snnlib/backends/cudnn.py), other tensors and cases that cuDNN rejects
`aten::convolution_backward`. Both maps are linear in each tensor; the gradients of each are a convolution and the
other map.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from snnlib.backends import cudnn, cudnn_flags, native
from snnlib.backends.geometry import ConvOptions
from snnlib.checks import check_conv2d_sizes, check_conv2d_tensors, check_reverse_mode
from snnlib.ops.declare import CONVOLUTION, custom_op, register_fake

# benchmark, deterministic, allow_tf32; None is torch's.
Flags = tuple[bool | None, bool | None, bool | None]

# Options of both ops in their schemas.
_OPTIONS = f"{CONVOLUTION}, bool? benchmark, bool? deterministic, bool? allow_tf32"

_warned = False


def _memory_format(*tensors: Tensor) -> torch.memory_format:
    """Channels last if one of the tensors is, else contiguous: the layout of operands and result."""
    last = torch.channels_last
    is_last = any(x.is_contiguous(memory_format=last) and not x.is_contiguous() for x in tensors)
    return last if is_last else torch.contiguous_format


def _empty(like: Tensor, size: Sequence[int], layout: torch.memory_format) -> Tensor:
    return torch.empty(size, dtype=like.dtype, device=like.device, memory_format=layout)


def _cudnn_backward(
    to_input: bool,
    tensors: tuple[Tensor, Tensor, Tensor],
    options: ConvOptions,
    flags: Flags,
) -> bool:
    """Lets cuDNN write the gradient into its place in (x, weight, grad_output); returns False if it cannot."""
    global _warned  # noqa: PLW0603
    path = native.asked_path()
    if path == "reference" or not torch.backends.cudnn.enabled:
        return False
    # cuDNN's engines for float64 are slow and few: aten is the documented way.
    if tensors[2].dtype == torch.float64 and path == "auto":
        return False
    try:
        cudnn.convolution_backward(to_input, *tensors, *options[:3], cudnn_flags.resolve(*flags))
    except cudnn.UnavailableError as error:
        if path == "native":
            raise RuntimeError(f"path 'native' was asked for, but {error}") from error
        if not _warned:
            _warned = True
            warnings.warn(
                f"convolution backward goes through aten::convolution_backward: {error}. "
                "Set SNNLIB_PATH=reference to choose this path.",
                RuntimeWarning,
                stacklevel=2,
            )
        return False
    return True


def _backward(
    to_input: bool,
    size: Sequence[int],
    grad_output: Tensor,
    operand: Tensor,
    options: ConvOptions,
    flags: Flags,
) -> Tensor:
    """Returns a gradient of size `size` from the output's gradient and the convolution's other operand."""
    check_reverse_mode("convolution backward")
    layout = _memory_format(grad_output, operand)
    if grad_output.numel() == 0 or operand.numel() == 0:
        return _empty(operand, size, layout).zero_()
    grad_output, operand = (x.contiguous(memory_format=layout) for x in (grad_output, operand))
    on_gpu = operand.device.type == "cuda"
    if on_gpu:
        grad = _empty(operand, size, layout)
        tensors = (grad, operand, grad_output) if to_input else (operand, grad, grad_output)
        if _cudnn_backward(to_input, tensors, options, flags):
            return grad
    # Only the shape of the tensor whose gradient is wanted plays a part.
    shape = operand.new_empty(1).expand(size)
    pair = (shape, operand) if to_input else (operand, shape)
    *steps, groups = options
    with cudnn_flags.torch_flags(*flags) if on_gpu else nullcontext():
        gradients = torch.ops.aten.convolution_backward(
            grad_output, *pair, None, *steps, False, [0, 0], groups, [to_input, not to_input, False]
        )
    out: Tensor = gradients[0 if to_input else 1]
    return out.contiguous(memory_format=layout)


@custom_op(
    "snnlib::conv2d_input_backward",
    f"(SymInt[] input_size, Tensor grad_output, Tensor weight, {_OPTIONS}) -> Tensor",
)
def conv2d_input_backward(c: SimpleNamespace) -> Tensor:
    """Returns the adjoint of the convolution in its input."""
    check_conv2d_tensors(c.grad_output, "weight", c.weight, "[C_out, C / groups, kh, kw]")
    options = ConvOptions.of(c)
    check_conv2d_sizes("input_size", c.input_size, "weight", c.weight.shape, c.grad_output, options)
    flags = (c.benchmark, c.deterministic, c.allow_tf32)
    return _backward(True, c.input_size, c.grad_output, c.weight, options, flags)


@register_fake(conv2d_input_backward)
def _(c: SimpleNamespace) -> Tensor:
    return _empty(c.weight, c.input_size, _memory_format(c.grad_output, c.weight))


@custom_op(
    "snnlib::conv2d_weight_backward",
    f"(SymInt[] weight_size, Tensor grad_output, Tensor input, {_OPTIONS}) -> Tensor",
)
def conv2d_weight_backward(c: SimpleNamespace) -> Tensor:
    """Returns the adjoint of the convolution in its weight, summed over frames."""
    check_conv2d_tensors(c.grad_output, "input", c.input, "[B, C, H, W]")
    options = ConvOptions.of(c)
    check_conv2d_sizes("input", c.input.shape, "weight_size", c.weight_size, c.grad_output, options)
    flags = (c.benchmark, c.deterministic, c.allow_tf32)
    return _backward(False, c.weight_size, c.grad_output, c.input, options, flags)


@register_fake(conv2d_weight_backward)
def _(c: SimpleNamespace) -> Tensor:
    return _empty(c.input, c.weight_size, _memory_format(c.grad_output, c.input))


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    _, grad_output, operand, *ctx.options = inputs
    ctx.save_for_backward(grad_output, operand)


def _gradients(to_input: bool, ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    """Double backward of the gradient of input (`to_input`) or weight: a convolution, and the other backward op."""
    grad_output, operand = ctx.saved_tensors
    needs, (stride, padding, dilation, groups) = ctx.needs_input_grad, ctx.options[:4]
    x, weight = (grad, operand) if to_input else (operand, grad)
    other = conv2d_weight_backward if to_input else conv2d_input_backward
    to_grad_output = F.conv2d(x, weight, None, stride, padding, dilation, groups) if needs[1] else None
    to_operand = other(operand.shape, grad_output, grad, *ctx.options) if needs[2] else None
    return (None, to_grad_output, to_operand, *[None] * 7)


conv2d_input_backward.register_autograd(partial(_gradients, True), setup_context=_setup_context)
conv2d_weight_backward.register_autograd(partial(_gradients, False), setup_context=_setup_context)
