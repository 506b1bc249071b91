"""Linear operators of layers: forward, and the two adjoint maps of the event-driven backward pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from snnlib.backends.geometry import ConvOptions
from snnlib.backends.memo import once
from snnlib.checks import (
    as_sizes,
    autocast_dtype,
    check_conv_channels,
    check_count,
    check_device,
    check_floating,
    check_rank,
    check_sequence_rank,
    conv_outputs,
)
from snnlib.ops.torch_conv import convolve

__all__ = ["Convolution", "FullyConnected", "LinearOperator"]


class SequenceConvolution(NamedTuple):
    """A convolution over two or three axes: x `[T, N, C, (D), H, W]`, weight `[O, C / groups, (kd), kh, kw]`."""

    x: Tensor
    weight: Tensor
    options: ConvOptions
    # Space axes of the layer's spikes; those missing in two have size 1.
    axes: int

    def reached(self) -> SequenceConvolution:
        """Returns the convolution without kernel elements that see nothing but padding, as most do on one pixel.

        On an image of 1x1 pixels a 3x3 kernel with padding 1 is its middle element: a fully connected map. Currents and
        gradients are the same; the gradient of the other elements is zero.

        >>> import torch, snnlib
        >>> operator = snnlib.functional.Convolution(2, padding=1)
        >>> operator.unfolded(torch.ones(4, 2, 8, 1, 1), torch.ones(16, 8, 3, 3)).reached().weight.shape
        torch.Size([16, 8, 1, 1])
        """
        # Only padding hides elements; sizes that a compiler does not know yet are not to be fixed by a comparison.
        if not any(self.options.padding) or torch.compiler.is_compiling():
            return self
        part = reached_part(self.x, self.weight, self.options)
        if part is None:
            return self
        pixels, elements, options = part
        # Kernels read the elements several times, which lie far apart in the whole weight.
        weight = self.weight[elements].contiguous()
        return self._replace(x=self.x[pixels], weight=weight, options=options)


Part = tuple[tuple[slice, ...], tuple[slice, ...], ConvOptions]


@once
def reached_part(x: Tensor, weight: Tensor, options: ConvOptions) -> Part | None:
    """Returns pixels, kernel elements and options of a convolution that leaves out what sees padding alone, or None."""
    every = slice(None)
    pixels, elements, paddings = [every] * 3, [every] * 2, []
    axes = zip(x.shape[3:], weight.shape[2:], *options[:3], strict=True)
    for size, kernel, stride, padding, dilation in axes:
        outputs = (size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1
        # First input of each element.
        starts = [dilation * element - padding for element in range(kernel)]
        seen = [
            element
            for element, start in enumerate(starts)
            if any(0 <= start + stride * output < size for output in range(outputs))
        ]
        if not seen:
            return None
        low, high = seen[0], seen[-1]
        if outputs == 1:
            # The only output sees a window of the image, without padding.
            pixels.append(slice(starts[low], starts[high] + 1))
            elements.append(slice(low, high + 1))
            paddings.append(0)
        else:
            cut = min(low, kernel - 1 - high, padding // dilation)
            pixels.append(every)
            elements.append(slice(cut, kernel - cut))
            paddings.append(padding - cut * dilation)
    whole = all(part == slice(0, size) for part, size in zip(elements[2:], weight.shape[2:], strict=True))
    if whole:
        return None
    return tuple(pixels), tuple(elements), options._replace(padding=tuple(paddings))


class LinearOperator(Protocol):
    """Interface of operators for layers, linear in the events and in the weight.

    Frames are folded: `x` is `[B, ...]` with `B = T * N`, and so are the signals of the neurons.
    """

    def check(self, x: Tensor, weight: Tensor) -> None:
        """Raises an error that names the argument if the unfolded `x` and `weight` do not fit."""

    def forward(self, x: Tensor, weight: Tensor) -> Tensor:
        """Returns currents `[B, C, ...]` for events."""

    def input_backward(self, signal: Tensor, x: Tensor, weight: Tensor) -> Tensor:
        """Returns the adjoint in x: a new tensor of x's shape."""

    def weight_backward(self, signal: Tensor, x: Tensor, weight: Tensor) -> Tensor:
        """Returns the adjoint in the weight, summed over frames."""


def check_pair(x: Tensor, weight: Tensor, weight_layout: str) -> None:
    check_floating("x", x)
    check_floating("weight", weight)
    check_rank("weight", weight, weight_layout, exactly=weight_layout.count(",") + 1)
    check_device("weight", weight, x)


def check_dtypes(x: Tensor, weight: Tensor) -> None:
    if weight.dtype != x.dtype and autocast_dtype(x) is None:
        raise TypeError(
            f"x, weight: expected one dtype, got {x.dtype} and {weight.dtype}; "
            "convert the input or the layer with .to(...)"
        )


def channels_of(operator: LinearOperator, weight: Tensor) -> int:
    """Returns the number of output channels: `operator.outputs` if it has one, else dimension 0 of the weight."""
    return int(getattr(operator, "outputs", weight.shape[0]))


def _with_zeros(x: Tensor, after: list[int]) -> Tensor:
    """Appends these numbers of zeros to the last axes."""
    if not any(after):
        return x
    # F.pad counts axes from the last one.
    return F.pad(x, [margin for end in reversed(after) for margin in (0, end)])


def convolved_channels_last(x: Tensor) -> bool:
    """Returns whether channels-last convolutions are faster than contiguous ones on x's device.

    oneDNN takes about half the time. Tensor cores need channels-last tensors, so cuDNN would transpose contiguous ones
    at each call; they have no float64.
    """
    return x.device.type == "cpu" or (x.device.type == "cuda" and x.dtype != torch.float64)


class FullyConnected:
    """`I = x W^T` for frames x `[B, inputs]` and W `[outputs, inputs]`.

    Frames may have axes, `[B, C, H, W]` with `C H W = inputs`, in the order of `torch.nn.Flatten`. Channels-last
    frames, as convolutional layers return them, are not copied.

    >>> import torch, snnlib
    >>> operator = snnlib.functional.FullyConnected()
    >>> operator.forward(torch.ones(2, 3), torch.tensor([[1.0, 2.0, 3.0]])).tolist()
    [[6.0], [6.0]]
    """

    # Options, for the key in a memo.
    key = ()

    def check(self, x: Tensor, weight: Tensor) -> None:
        """Raise an error that names the argument."""
        self._check_kinds(x, weight)
        if weight.dtype != x.dtype:
            check_dtypes(x, weight)

    @staticmethod
    @once
    def _check_kinds(x: Tensor, weight: Tensor) -> None:
        check_pair(x, weight, "[outputs, inputs]")
        check_sequence_rank(x, "[T, N, inputs] or [T, N, C, ...]")
        if x.shape[2:].numel() != weight.shape[1]:
            where = "in dimension 2" if x.dim() == 3 else "in a frame"
            raise ValueError(f"x: expected {weight.shape[1]} inputs {where}, got shape {tuple(x.shape)}")

    def forward(self, x: Tensor, weight: Tensor) -> Tensor:
        """Currents `[B, outputs]`."""
        last = x.movedim(1, -1)
        if x.dim() == 2 or not last.is_contiguous():
            return F.linear(x.flatten(1), weight)
        return F.linear(last.flatten(1), weight.view(len(weight), *x.shape[1:]).movedim(1, -1).flatten(1))

    def input_backward(self, signal: Tensor, x: Tensor, weight: Tensor) -> Tensor:
        """`b W`."""
        return (signal @ weight).reshape(x.shape)

    def weight_backward(self, signal: Tensor, x: Tensor, weight: Tensor) -> Tensor:
        """`a^T x`."""
        return signal.t() @ x.flatten(1)

    def unfolded(self, x: Tensor, weight: Tensor) -> SequenceConvolution:
        """Returns the convolution for an unfolded sequence, with a kernel as large as the image."""
        if x.dim() != 5:
            x = x.flatten(2)[..., None, None]
        options = ConvOptions((1, 1), (0, 0), (1, 1), 1)
        return SequenceConvolution(x, weight.view(len(weight), *x.shape[2:]), options, axes=0)


class Convolution:
    """Convolution over 1 to 3 space axes with the options of `torch.nn.functional.conv*d`.

    Args:
        dims: number of space axes.
        stride: step of the kernel, an integer or one per axis.
        padding: zeros on both sides, an integer or one per axis; `"same"` keeps the size (stride 1 only, the odd
            zero of an even extent goes to the end, as in torch); `"valid"` is 0.
        dilation: spacing between kernel elements.
        groups: number of independent channel groups.

    Raises:
        ValueError: an option out of its range.

    >>> import torch, snnlib
    >>> operator = snnlib.functional.Convolution(2, padding=1)
    >>> operator.forward(torch.ones(1, 1, 3, 3), torch.ones(1, 1, 3, 3))[0, 0, 1].tolist()
    [6.0, 9.0, 6.0]
    """

    def __init__(
        self,
        dims: int,
        stride: int | Sequence[int] = 1,
        padding: int | str | Sequence[int] = 0,
        dilation: int | Sequence[int] = 1,
        groups: int = 1,
    ) -> None:
        self.dims = dims
        self.stride = as_sizes("stride", stride, dims, minimum=1)
        self.dilation = as_sizes("dilation", dilation, dims, minimum=1)
        check_count("groups", groups)
        self.groups = groups
        self.same = padding == "same"
        if isinstance(padding, str):
            if padding not in ("same", "valid"):
                raise ValueError(f"padding: expected integers, 'same' or 'valid', got {padding!r}")
            if self.same and any(step != 1 for step in self.stride):
                raise ValueError(f"padding: 'same' needs stride 1, got stride {stride}")
            padding = 0
        self.padding = as_sizes("padding", padding, dims, minimum=0)

    def __repr__(self) -> str:
        padding = "'same'" if self.same else self.padding
        text = f"stride={self.stride}, padding={padding}"
        if any(step != 1 for step in self.dilation):
            text += f", dilation={self.dilation}"
        return text + (f", groups={self.groups}" if self.groups != 1 else "")

    @property
    def key(self) -> tuple[Any, ...]:
        """Key in a memo."""
        return self.stride, self.padding, self.dilation, self.groups, self.same

    def check(self, x: Tensor, weight: Tensor) -> None:
        """Raise an error that names the argument."""
        self._check_kinds(x, weight)
        if weight.dtype != x.dtype:
            check_dtypes(x, weight)

    @once
    def _check_kinds(self, x: Tensor, weight: Tensor) -> None:
        space = ["L"] if self.dims == 1 else ["D", "H", "W"][-self.dims :]
        kernel = ["k"] if self.dims == 1 else ["kd", "kh", "kw"][-self.dims :]
        x_layout = f"[{', '.join(['T', 'N', 'C', *space])}]"
        check_pair(x, weight, f"[{', '.join(['C_out', 'C / groups', *kernel])}]")
        check_sequence_rank(x, x_layout, self.dims + 3, self.dims + 3)
        check_conv_channels(x, weight, self.groups)
        if not self.same:
            conv_outputs("x", x.shape[3:], weight.shape[2:], self.stride, self.padding, self.dilation)

    def _margins(self, weight: Tensor) -> tuple[tuple[int, ...], list[int]]:
        """Returns (symmetric padding, extra zeros at the end of each axis) for this kernel."""
        if not self.same:
            return self.padding, [0] * self.dims
        totals = [step * (size - 1) for step, size in zip(self.dilation, weight.shape[2:], strict=True)]
        return tuple(total // 2 for total in totals), [total % 2 for total in totals]

    def _frames(self, x: Tensor, extra: list[int]) -> Tensor:
        frames = _with_zeros(x, extra)
        if self.dims > 1 and convolved_channels_last(x):
            # Layers after this one keep the layout.
            layout = torch.channels_last if self.dims == 2 else torch.channels_last_3d
            frames = frames.contiguous(memory_format=layout)
        return frames

    def forward(self, x: Tensor, weight: Tensor) -> Tensor:
        """Currents `[B, C_out, ...]`."""
        padding, extra = self._margins(weight)
        options = ConvOptions(self.stride, padding, self.dilation, self.groups)
        return convolve(self._frames(x, extra), weight, options)

    def _backward(self, signal: Tensor, x: Tensor, weight: Tensor, mask: list[bool]) -> tuple[Tensor, ...]:
        padding, extra = self._margins(weight)
        if not len(weight):
            return torch.zeros_like(x), torch.zeros_like(weight)
        return torch.ops.aten.convolution_backward(  # type: ignore[no-any-return]
            signal,
            self._frames(x, extra),
            weight,
            None,
            self.stride,
            padding,
            self.dilation,
            False,
            [0] * self.dims,
            self.groups,
            mask,
        )

    def input_backward(self, signal: Tensor, x: Tensor, weight: Tensor) -> Tensor:
        """Returns the transposed convolution of the signal."""
        grad = self._backward(signal, x, weight, [True, False, False])[0]
        if grad.shape == x.shape:
            return grad
        return grad[(slice(None), slice(None), *(slice(size) for size in x.shape[2:]))].contiguous()

    def weight_backward(self, signal: Tensor, x: Tensor, weight: Tensor) -> Tensor:
        """Returns the correlation of the signal with the events."""
        return self._backward(signal, x, weight, [False, True, False])[1]

    def unfolded(self, x: Tensor, weight: Tensor) -> SequenceConvolution:
        """Returns the convolution for an unfolded sequence; x already has the extra zeros of "same"."""
        padding = self.padding
        if self.same:
            padding, extra = self._margins(weight)
            x = _with_zeros(x, extra)
        options = ConvOptions(self.stride, padding, self.dilation, self.groups)
        if self.dims == 1:
            x, weight = x.unsqueeze(3), weight.unsqueeze(2)
            options = ConvOptions((1, *self.stride), (0, *padding), (1, *self.dilation), self.groups)
        return SequenceConvolution(x, weight, options, self.dims)
