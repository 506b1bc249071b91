"""Dense convolution and gradients, for dense sequences and cases without an event-driven kernel.

Sequences are `[T, N, C, (D), H, W]`; the kernel of a fully connected layer is as large as the image, and one product of
torch. Other kernels run by torch's convolution, by a product per kernel element or by Winograd's algorithm, as
`backends.dense` expects them to be fastest. Sequences and
weights of half precision are convolved in float32, as in the event-driven kernels, even under autocast: currents
rounded to 8 bits would move spikes. So currents, signals and gradients are float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from snnlib.backends import dense
from snnlib.backends.geometry import ConvOptions, geometry
from snnlib.backends.memo import once
from snnlib.ops import element_products, winograd
from snnlib.ops.conv_layout import in_layout_of
from snnlib.ops.sequence_layout import frames_of, sequence_of


def _channels_last(frames: Tensor) -> Tensor:
    """Returns channels-last frames, which oneDNN convolves twice as fast and the neurons' kernels read."""
    return frames.contiguous(
        memory_format=torch.channels_last if frames.ndim == 4 else torch.channels_last_3d
    )


def _last(frames: Tensor) -> torch.memory_format:
    return torch.channels_last if frames.dim() == 4 else torch.channels_last_3d


def _usual_strides(tensor: Tensor) -> Tensor:
    """Returns a view of the tensor with the usual strides of its layout.

    The stride of an axis of size 1 is meaningless, but torch 2.13 convolves groups of channels with wrong weights if
    it is unusual.
    """
    if 1 not in tensor.shape:
        return tensor
    layouts = (torch.contiguous_format, *([_last(tensor)] if tensor.dim() > 3 else []))
    for layout in layouts:
        if tensor.is_contiguous(memory_format=layout):
            usual = torch.empty(tensor.shape, memory_format=layout, device="meta").stride()
            return tensor if tensor.stride() == usual else tensor.as_strided(tensor.shape, usual)
    return tensor


def _frames(sequence: Tensor, like: Tensor) -> Tensor:
    return _channels_last(frames_of(sequence, like))


def _rows(images: Tensor) -> Tensor:
    """Returns images `[B, C, ...]` as a matrix, in the order of channels-last memory."""
    return images.movedim(1, -1).flatten(1)


def _images(rows: Tensor, shape: Sequence[int]) -> Tensor:
    """Inverse of `_rows`, for images of shape `[C, ...]`."""
    return rows.view(len(rows), *shape[1:], shape[0]).movedim(-1, 1)


def _in_full_precision() -> AbstractContextManager[object]:
    """Returns a context in which autocast rounds nothing; entering autocast takes longer than a small product."""
    return torch.autocast("cpu", enabled=False) if torch.is_autocast_enabled("cpu") else nullcontext()


def _product(a: Tensor, b: Tensor) -> Tensor:
    with _in_full_precision():
        return a @ b


class DensePass(NamedTuple):
    """Runs of a pass: the algorithm, or "product" of a fully connected layer, and the size of the currents' images."""

    algorithm: dense.Algorithm | Literal["product"]
    size: tuple[int, ...]


@once
def plan_pass(x: Tensor, weight: Tensor, options: ConvOptions, of: dense.Pass) -> DensePass:
    """Returns how a pass runs: by torch but on a CPU, and without Winograd's algorithm where the processor lacks it."""
    g = geometry(x, weight, options)
    if x.shape[3:] == weight.shape[2:] and not any(options.padding) and options.groups == 1:
        return DensePass("product", g.space)
    if x.device.type != "cpu":
        return DensePass("torch", g.space)
    found = dense.costs(g, of)
    able = [name for name in found if name != "winograd" or winograd.has_kernel(x)]
    cheapest = min(able, key=found.__getitem__)
    return DensePass(cheapest, g.space)


def convolve(frames: Tensor, weight: Tensor, options: ConvOptions) -> Tensor:
    """Convolves frames `[B, C, ...]` by torch, also without input or output channels.

    Torch drops the output channels if the input has none, and rejects an output without channels: zero channels
    replace them.
    """
    axes = [0, 0] * (weight.dim() - 2)
    outputs, inputs = weight.shape[:2]
    if not inputs:
        frames, weight = F.pad(frames, [*axes, 0, options.groups]), F.pad(weight, [*axes, 0, 1])
    if not outputs:
        weight = F.pad(weight, [*axes, 0, 0, 0, options.groups])
    if options.groups > 1:
        frames, weight = _usual_strides(frames), _usual_strides(weight)
    function = (F.conv1d, F.conv2d, F.conv3d)[weight.dim() - 3]
    out = function(frames, weight, None, *options)
    return out if outputs else out[:, :0]


def currents(x: Tensor, weight: Tensor, options: ConvOptions, plan: DensePass | None = None) -> Tensor:
    """Returns the currents of all frames, channels-last, in the order of `frames_of(x, x)`."""
    algorithm, size = plan or plan_pass(x, weight, options, "currents")
    x, weight = x.to(torch.float32), weight.to(torch.float32)
    if algorithm == "product":
        return _product(_rows(frames_of(x, x)), _rows(weight).T)
    if algorithm == "torch":
        return _convolve(_frames(x, x), weight, options)
    frames = _frames(x, x)
    if algorithm == "winograd":
        return winograd.convolve(frames, weight, size, options.padding[0])
    with _in_full_precision():
        return element_products.currents(frames, weight, size, options)


def _convolve(frames: Tensor, weight: Tensor, options: ConvOptions) -> Tensor:
    with _in_full_precision():
        return _channels_last(convolve(frames, weight, options))


def _convolution_backward(
    signal: Tensor, x: Tensor, weight: Tensor, options: ConvOptions, mask: list[bool]
) -> tuple[Tensor, ...]:
    stride, padding, dilation, groups = options
    if not len(weight):
        return torch.zeros_like(frames_of(x, x)), torch.zeros_like(weight)
    rest = (None, stride, padding, dilation, False, [0] * len(stride), groups, mask)
    operands = _frames(signal, x), _frames(x, x), _channels_last(weight)
    if groups > 1:
        operands = _usual_strides(operands[0]), _usual_strides(operands[1]), _usual_strides(operands[2])
    return torch.ops.aten.convolution_backward(*operands, *rest)  # type: ignore[no-any-return]


def weight_gradient(
    signal: Tensor, x: Tensor, weight: Tensor, options: ConvOptions, plan: DensePass | None = None
) -> Tensor:
    """Returns dL/dW of signal a."""
    algorithm, _ = plan or plan_pass(x, weight, options, "weight")
    x, weight = x.to(torch.float32), weight.to(torch.float32)
    if algorithm == "product":
        rows = _product(_rows(frames_of(signal, x)).T, _rows(frames_of(x, x)))
        return in_layout_of(weight, _images(rows, weight.shape[1:]))
    if algorithm == "elements":
        with _in_full_precision():
            return element_products.weight_gradient(_frames(signal, x), _frames(x, x), weight, options)
    grad = _convolution_backward(signal, x, weight, options, [False, True, False])[1]
    return in_layout_of(weight, grad)


def input_gradient(signal: Tensor, x: Tensor, weight: Tensor, options: ConvOptions, scale: float) -> Tensor:
    """Returns dL/dx of signal b: `scale` x times the field of the signal, channels-last."""
    grad = field(signal, x, weight, options).mul_(x)
    return grad if scale == 1 else grad.mul_(scale)


def field(
    signal: Tensor, x: Tensor, weight: Tensor, options: ConvOptions, plan: DensePass | None = None
) -> Tensor:
    """Returns the adjoint of the convolution applied to a signal: a number per input, float32 and channels-last."""
    algorithm, _ = plan or plan_pass(x, weight, options, "input")
    x, weight = x.to(torch.float32), weight.to(torch.float32)
    if algorithm == "product":
        images = _images(_product(_rows(frames_of(signal, x)), _rows(weight)), x.shape[2:])
    else:
        images = _transposed(signal, x, weight, options, algorithm)
    return sequence_of(images, x)


def _transposed(
    signal: Tensor, x: Tensor, weight: Tensor, options: ConvOptions, algorithm: dense.Algorithm
) -> Tensor:
    """Transposed convolution; a depthwise one is a convolution with the flipped kernel, which is faster."""
    stride, padding, dilation, groups = options
    axes = range(2, weight.dim())
    reach = [
        gap * (weight.shape[axis] - 1) - zeros
        for axis, gap, zeros in zip(axes, dilation, padding, strict=True)
    ]
    if groups == x.shape[2] == weight.shape[0] and max(stride) == 1 and min(reach) >= 0:
        return _convolve(_frames(signal, x), weight.flip(*axes), ConvOptions(stride, reach, dilation, groups))
    if algorithm == "winograd":
        return winograd.adjoint(_frames(signal, x), weight, x.shape[-2:], padding[0])
    if algorithm == "elements":
        with _in_full_precision():
            return element_products.input_gradient(_frames(signal, x), weight, x.shape[-2:], options)
    return _channels_last(_convolution_backward(signal, x, weight, options, [True, False, False])[0])
