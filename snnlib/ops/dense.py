"""A convolution and its gradients by torch, for trains that are too dense to go by events.

Trains are `[T, N, C, H, W]`; the kernel of a fully connected layer is as large as the image. Trains and weights of half
precision are convolved in float32, as they are by events, whatever autocast says: currents rounded to 8 bits would move
spikes. So currents, signals and weight gradients are float32.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor


def _frames(train: Tensor) -> Tensor:
    return train.flatten(0, 1).contiguous(memory_format=torch.channels_last)


def _rows(images: Tensor) -> Tensor:
    """Images `[B, C, H, W]` as a matrix, in the order of channels-last memory."""
    return images.permute(0, 2, 3, 1).flatten(1)


def _images(rows: Tensor, like: Tensor) -> Tensor:
    """The inverse, for the images `[..., C, H, W]` that `like` has."""
    return rows.view(len(rows), *like.shape[-2:], like.shape[-3]).permute(0, 3, 1, 2)


def _product(a: Tensor, b: Tensor) -> Tensor:
    with torch.autocast("cpu", enabled=False):
        return a @ b


def _is_linear(x: Tensor, weight: Tensor, padding: Sequence[int]) -> bool:
    return x.shape[3:] == weight.shape[2:] and not any(padding)


def currents(x: Tensor, weight: Tensor, stride: Sequence[int], padding: Sequence[int]) -> Tensor:
    """Currents of all frames, channels-last, in the order of x's first two dimensions."""
    x, weight = x.to(torch.float32), weight.to(torch.float32)
    if _is_linear(x, weight, padding):
        return _product(_rows(x.flatten(0, 1)), _rows(weight).T)
    with torch.autocast("cpu", enabled=False):
        out = F.conv2d(_frames(x), weight, None, list(stride), list(padding))
    return out.contiguous(memory_format=torch.channels_last)


def _convolution_backward(
    signal: Tensor, x: Tensor, weight: Tensor, stride: Sequence[int], padding: Sequence[int], mask: list[bool]
) -> tuple[Tensor, ...]:
    weight = weight.contiguous(memory_format=torch.channels_last)
    options = (None, list(stride), list(padding), [1, 1], False, [0, 0], 1, mask)
    return torch.ops.aten.convolution_backward(_frames(signal), x, weight, *options)  # type: ignore[no-any-return]


def weight_gradient(
    signal: Tensor, x: Tensor, weight: Tensor, stride: Sequence[int], padding: Sequence[int]
) -> Tensor:
    """dL/dW of signal a."""
    x, weight = x.to(torch.float32), weight.to(torch.float32)
    if _is_linear(x, weight, padding):
        grad = _images(_product(_rows(signal.flatten(0, 1)).T, _rows(x.flatten(0, 1))), weight)
    else:
        grad = _convolution_backward(signal, _frames(x), weight, stride, padding, [False, True, False])[1]
    return grad.contiguous()


def input_gradient(
    out: Tensor,
    signal: Tensor,
    x: Tensor,
    weight: Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    scale: float,
) -> None:
    """Writes dL/dx of signal b, `scale` x times the field of the signal."""
    x, weight = x.to(torch.float32), weight.to(torch.float32)
    if _is_linear(x, weight, padding):
        field = _images(_product(_rows(signal.flatten(0, 1)), _rows(weight)), x)
    else:
        field = _convolution_backward(signal, _frames(x), weight, stride, padding, [True, False, False])[0]
    product = torch.mul(field.reshape(x.shape), x, out=out if out.dtype == torch.float32 else None)
    if scale != 1:
        product.mul_(scale)
    if product is not out:
        out.copy_(product)
