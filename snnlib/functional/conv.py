"""The two adjoint maps of a 2-D convolution, with cuDNN's flags per call."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from snnlib import ops
from snnlib.backends.geometry import ConvOptions
from snnlib.checks import as_sizes, check_conv2d_tensors, check_count

__all__ = ["conv2d_input_backward", "conv2d_weight_backward"]

Sizes = int | Sequence[int]


def _four_sizes(name: str, size: Sequence[int], layout: str) -> tuple[int, ...]:
    if isinstance(size, int) or len(size) != 4:
        raise ValueError(f"{name}: expected {layout}, got {size!r}")
    return as_sizes(name, tuple(size), 4, minimum=0)


def _check_options(stride: Sizes, padding: Sizes, dilation: Sizes, groups: int) -> ConvOptions:
    if isinstance(padding, str):
        raise ValueError(f"padding: expected an integer >= 0 or 2 of them, got {padding!r}")
    check_count("groups", groups)
    return ConvOptions(
        as_sizes("stride", stride, 2, minimum=1),
        as_sizes("padding", padding, 2, minimum=0),
        as_sizes("dilation", dilation, 2, minimum=1),
        groups,
    )


def conv2d_input_backward(
    input_size: Sequence[int],
    grad_output: Tensor,
    weight: Tensor,
    *,
    stride: Sizes = 1,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    groups: int = 1,
    benchmark: bool | None = None,
    deterministic: bool | None = None,
    allow_tf32: bool | None = None,
) -> Tensor:
    """Adjoint of `conv2d` in its input: the transposed convolution from output gradients to input gradients.

    For every x of `input_size`, with `g = grad_output` and the dot product over all elements::

        <conv2d(x, weight), g> = <x, conv2d_input_backward(input_size, g, weight)>

    It is linear in `grad_output` and in `weight`, and differentiable in both any number of times.

    Args:
        input_size: `(B, C, H, W)`; frames are folded, `B = T * N`.
        grad_output: `[B, C_out, H_out, W_out]`, the shape of the convolution's output.
        weight: `[C_out, C / groups, kh, kw]`.
        stride, padding, dilation, groups: as in `torch.nn.functional.conv2d`; padding in numbers, the same on both
            sides.
        benchmark: whether cuDNN times several algorithms at the first call of a shape and keeps the fastest.
        deterministic: whether cuDNN uses only algorithms that give the same bits in every run.
        allow_tf32: whether cuDNN may multiply float32 with a mantissa of 10 bits. The three flags have no effect on a
            CPU. Default: torch's global flags `torch.backends.cudnn.benchmark`, `.deterministic` and `.allow_tf32`.

    CUDA tensors of float32, bfloat16 and float16 use cuDNN directly if the module was built with CUDA and finds the
    library; all other tensors use `aten::convolution_backward`, with the flags set globally during the call. Before
    capturing a CUDA graph, call the function once with the same shapes, so that cuDNN chooses its engine.

    Returns:
        Tensor of size `input_size`; channels last if one of the arguments is, else contiguous.

    Raises:
        TypeError: an argument is not a floating-point tensor, or dtypes differ.
        ValueError: sizes that do not belong together, options out of range, different devices; the message names
            the argument.

    >>> import torch, snnlib
    >>> grad_output = torch.ones(1, 1, 2, 2)
    >>> weight = torch.tensor([1.0, 2, 3, 4]).reshape(1, 1, 2, 2)
    >>> snnlib.functional.conv2d_input_backward((1, 1, 3, 3), grad_output, weight)[0, 0].tolist()
    [[1.0, 3.0, 2.0], [4.0, 10.0, 6.0], [3.0, 7.0, 4.0]]
    """
    size = _four_sizes("input_size", input_size, "four sizes (B, C, H, W)")
    check_conv2d_tensors(grad_output, "weight", weight, "[C_out, C / groups, kh, kw]")
    geometry = _check_options(stride, padding, dilation, groups)
    out: Tensor = ops.conv.conv2d_input_backward(
        size, grad_output, weight, *geometry, benchmark, deterministic, allow_tf32
    )
    return out


def conv2d_weight_backward(
    weight_size: Sequence[int],
    grad_output: Tensor,
    input: Tensor,
    *,
    stride: Sizes = 1,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    groups: int = 1,
    benchmark: bool | None = None,
    deterministic: bool | None = None,
    allow_tf32: bool | None = None,
) -> Tensor:
    """Adjoint of `conv2d` in its weight: the correlation of output gradients and input, summed over frames.

    For every w of `weight_size`, with `g = grad_output` and the dot product over all elements::

        <conv2d(input, w), g> = <w, conv2d_weight_backward(weight_size, g, input)>

    It is linear in `grad_output` and in `input`, and differentiable in both any number of times.

    Args:
        weight_size: `(C_out, C / groups, kh, kw)`.
        grad_output: `[B, C_out, H_out, W_out]`, the shape of the convolution's output; frames are folded, `B = T * N`.
        input: `[B, C, H, W]`.
        stride, padding, dilation, groups, benchmark, deterministic, allow_tf32: as in `conv2d_input_backward`.

    Returns:
        Tensor of size `weight_size`; channels last if one of the arguments is, else contiguous.

    Raises:
        TypeError: an argument is not a floating-point tensor, or dtypes differ.
        ValueError: sizes that do not belong together, options out of range, different devices; the message names
            the argument.

    >>> import torch, snnlib
    >>> events = torch.tensor([0.0, 1, 0, 0, 0, 1, 0, 0, 0]).reshape(1, 1, 3, 3)
    >>> credit = torch.tensor([1.0, 2, 4, 8]).reshape(1, 1, 2, 2)
    >>> snnlib.functional.conv2d_weight_backward((1, 1, 2, 2), credit, events)[0, 0].tolist()
    [[2.0, 9.0], [0.0, 2.0]]
    """
    size = _four_sizes("weight_size", weight_size, "four sizes (C_out, C / groups, kh, kw)")
    check_conv2d_tensors(grad_output, "input", input, "[B, C, H, W]")
    geometry = _check_options(stride, padding, dilation, groups)
    out: Tensor = ops.conv.conv2d_weight_backward(
        size, grad_output, input, *geometry, benchmark, deterministic, allow_tf32
    )
    return out
