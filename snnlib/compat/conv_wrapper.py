"""Gradients of a convolution under the names of the published extension; padding comes before stride."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from snnlib import functional

Sizes = int | Sequence[int]


def cudnn_convolution_backward_input(
    input_size: Sequence[int],
    grad_output: Tensor,
    weight: Tensor,
    padding: Sizes,
    stride: Sizes,
    dilation: Sizes,
    groups: int,
    benchmark: bool,
    deterministic: bool,
    allow_tf32: bool,
) -> Tensor:
    """Gradient of a 2-D convolution's input: `functional.conv2d_input_backward`, on CPU and GPU.

    >>> import torch, snnlib
    >>> backward_input = snnlib.compat.conv_wrapper.cudnn_convolution_backward_input
    >>> grad, weight = torch.ones(1, 1, 2, 2), torch.ones(1, 1, 2, 2)
    >>> backward_input((1, 1, 3, 3), grad, weight, (0, 0), (1, 1), (1, 1), 1, False, True, False)[0, 0].tolist()
    [[1.0, 2.0, 1.0], [2.0, 4.0, 2.0], [1.0, 2.0, 1.0]]
    """
    return functional.conv2d_input_backward(
        input_size,
        grad_output,
        weight,
        stride=stride,
        padding=padding,
        dilation=dilation,
        groups=groups,
        benchmark=benchmark,
        deterministic=deterministic,
        allow_tf32=allow_tf32,
    )


def cudnn_convolution_backward_weight(
    weight_size: Sequence[int],
    grad_output: Tensor,
    input: Tensor,
    padding: Sizes,
    stride: Sizes,
    dilation: Sizes,
    groups: int,
    benchmark: bool,
    deterministic: bool,
    allow_tf32: bool,
) -> Tensor:
    """Gradient of a 2-D convolution's weight: `functional.conv2d_weight_backward`, on CPU and GPU.

    >>> import torch, snnlib
    >>> backward_weight = snnlib.compat.conv_wrapper.cudnn_convolution_backward_weight
    >>> grad, x = torch.ones(1, 1, 2, 2), torch.arange(9.0).reshape(1, 1, 3, 3)
    >>> backward_weight((1, 1, 2, 2), grad, x, (0, 0), (1, 1), (1, 1), 1, False, True, False)[0, 0].tolist()
    [[8.0, 12.0], [20.0, 24.0]]
    """
    return functional.conv2d_weight_backward(
        weight_size,
        grad_output,
        input,
        stride=stride,
        padding=padding,
        dilation=dilation,
        groups=groups,
        benchmark=benchmark,
        deterministic=deterministic,
        allow_tf32=allow_tf32,
    )
