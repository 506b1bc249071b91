"""Linear maps from events `[T, N, ...]` to currents `[T, N, C, ...]`: per step, event-driven, and with delays."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from snnlib import ops
from snnlib.backends.geometry import geometry
from snnlib.checks import as_autocast, autocast_dtype
from snnlib.functional.operators import Convolution, FullyConnected, LinearOperator, SequenceConvolution
from snnlib.ops.sequence_layout import frames_of, outer_dims, sequence_of


@dataclass(frozen=True, eq=False)
class Delayed:
    """A linear operator with delayed input events: an operator for `spiking_layer`.

    Args:
        operator: a convolution, a fully connected map or sparse connections.
        delay: time steps >= 0, one per input channel `[C_in]` or of the weight's shape.
        before: number of first steps of an input that belong to the past: their events arrive, but they have no
            output.
        rounded: whether delays are rounded to whole steps; else delays between steps are interpolated.
    """

    operator: LinearOperator
    delay: Tensor
    before: int = 0
    rounded: bool = False

    def check(self, x: Tensor, weight: Tensor) -> None:
        """Raise an error that names the argument."""
        self.operator.check(x, weight)

    def shifts(self, x: Tensor) -> bool:
        """Returns whether a delayed sequence is computed before the operator.

        Fully connected maps on a CPU, and delays per connection, apply delays to the events themselves.
        """
        return self.delay.dim() == 1 and (not isinstance(self.operator, FullyConnected) or x.is_cuda)

    def shifted(self, x: Tensor) -> Tensor:
        """Returns the delayed sequence, without the steps of the past."""
        x, delay = self._as_features(x)
        delayed: Tensor = ops.delay.delay_forward(x, delay, self.rounded)
        return self._after(delayed)

    def arriving(self, x: Tensor, weight: Tensor) -> Tensor:
        """Returns currents of events that are delayed per connection or in front of a full matrix."""
        x, delay = self._as_features(x)
        dtype = autocast_dtype(x)
        if dtype is not None:
            x = x.to(dtype)
        rows, space = unfolded_rows(x, weight, self.operator)
        flat = (len(weight), weight.shape[1:].numel())
        own = delay if delay.dim() == 1 else delay.reshape(flat)
        no_convolution = (), (), (), 1
        currents: Tensor = ops.currents.currents_forward(
            rows, weight.reshape(flat).to(rows.dtype), own, *(None, None, 0), *no_convolution, self.rounded
        )
        currents = self._after(currents)
        if not space:
            return currents
        # [T, N, cells, C]
        apart: Tensor = currents.unflatten(1, (x.shape[1], math.prod(space)))  # type: ignore[no-untyped-call]
        return apart.movedim(3, 2).reshape(*apart.shape[:2], len(weight), *space)

    def _as_features(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Returns frames of a fully connected map as `[T, N, features]` with a delay per feature; else both unchanged.

        A delay per channel applies to all pixels of the channel.
        """
        delay = self.delay
        if not isinstance(self.operator, FullyConnected) or delay.dim() != 1 or x.dim() == 3:
            return x, delay
        channels, features = x.shape[2], x.shape[2:].numel()
        if len(delay) == channels != features:
            delay = delay.repeat_interleave(features // channels)
        return x.flatten(2), delay

    def _after(self, x: Tensor) -> Tensor:
        return x[self.before :] if self.before else x


@dataclass(frozen=True)
class SequenceMap:
    """A map from events `[T, N, ...]` to currents `[T, N, C, ...]`, linear in the events and in the weight.

    Args:
        operator: the operator, with its delays.
        by_events: whether the currents of a convolution are sums over events; else they are dense products.
    """

    operator: LinearOperator | Delayed
    by_events: bool

    def currents(self, x: Tensor, weight: Tensor) -> Tensor:
        """Returns currents for events."""
        operator = self.operator
        if isinstance(operator, Delayed):
            if not operator.shifts(x):
                return operator.arriving(x, weight)
            x, operator = operator.shifted(x), operator.operator
            x, weight = as_autocast(x, weight)
        if isinstance(operator, (Convolution, FullyConnected)):
            conv = operator.unfolded(x, weight).reached()
            # A GPU adds in the CPU's order where that is asked for, of half precision in float32 as well.
            if self.by_events or ops.currents.in_order(conv.x, geometry(conv.x, conv.weight, conv.options)):
                return event_driven_currents(conv)
        return sequence_of(operator.forward(frames_of(x, x), weight), x)

    def input_backward(self, signal: Tensor, x: Tensor, weight: Tensor) -> Tensor:
        """Returns the adjoint in x: a new tensor of x's shape."""
        if isinstance(self.operator, Delayed):
            return self._backward(signal, x.detach().requires_grad_(), weight.detach())[0]
        signal = frames_of(signal.to(x.dtype), x)
        return sequence_of(self.operator.input_backward(signal, frames_of(x, x), weight), x)

    def weight_backward(self, signal: Tensor, x: Tensor, weight: Tensor) -> Tensor:
        """Returns the adjoint in the weight."""
        if isinstance(self.operator, Delayed):
            return self._backward(signal, x.detach(), weight.detach().requires_grad_())[0]
        return self.operator.weight_backward(frames_of(signal.to(x.dtype), x), frames_of(x, x), weight)

    def _backward(self, signal: Tensor, x: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
        """Returns the gradient of x or weight, the one that requires it."""
        with torch.enable_grad():
            currents = self.currents(x, weight)
        of = x if x.requires_grad else weight
        return torch.autograd.grad(currents, of, signal.to(currents.dtype))


def event_driven_currents(conv: SequenceConvolution) -> Tensor:
    """Returns the currents `[T, N, C, ...]` of a layer's map as sums over events."""
    no_rows = None, None, 0
    current: Tensor = ops.currents.currents_forward(conv.x, conv.weight, None, *no_rows, *conv.options, True)
    return current.squeeze(tuple(range(3, 5 - conv.axes)))


def unfolded_rows(x: Tensor, weight: Tensor, operator: LinearOperator) -> tuple[Tensor, tuple[int, ...]]:
    """Returns the inputs `[T, N, I]` of every output pixel, as for a fully connected map, and the space axes."""
    if isinstance(operator, FullyConnected):
        return x.flatten(2), ()
    if not isinstance(operator, Convolution) or operator.dims > 2 or operator.groups > 1:
        raise ValueError(
            "delays: expected a fully connected map or a convolution over one or two axes without groups for delays "
            f"per connection, got {operator!r}; take per='channel'"
        )
    conv = operator.unfolded(x, weight)
    stride, padding, dilation, _ = conv.options
    frames, size = frames_of(conv.x, x), tuple(conv.weight.shape[2:])
    windows = _Windows.apply(  # type: ignore[no-untyped-call]
        frames, size, tuple(dilation), tuple(padding), tuple(stride)
    )
    rows = sequence_of(windows.flatten(1, 2), x)  # [T, N, cells, I]
    # Rows lie in the memory order of x.
    rows = rows.permute(1, 2, 0, 3).flatten(0, 1).transpose(0, 1) if outer_dims(x)[0] else rows.flatten(1, 2)
    return rows, windows.shape[3 - operator.dims : 3]


class _Windows(torch.autograd.Function):
    """Inputs of every output pixel, `[B, H_out, W_out, I]`, of frames `[B, C, H, W]`.

    The values are those of torch's `unfold` with inputs last. A copy of views takes half the time of `unfold` and a
    transposition, and needs no second tensor of this size.
    """

    @staticmethod
    def forward(
        ctx: Any,
        frames: Tensor,
        size: tuple[int, int],
        dilation: tuple[int, int],
        padding: tuple[int, int],
        stride: tuple[int, int],
    ) -> Tensor:
        ctx.options = tuple(frames.shape[2:]), size, dilation, padding, stride
        high, wide = (d * (s - 1) + 1 for s, d in zip(size, dilation, strict=True))
        padded = torch.nn.functional.pad(frames, (padding[1], padding[1], padding[0], padding[0]))
        windows = padded.unfold(2, high, stride[0]).unfold(3, wide, stride[1])
        windows = windows[..., :: dilation[0], :: dilation[1]]  # [B, C, H_out, W_out, k_h, k_w]
        return windows.permute(0, 2, 3, 1, 4, 5).flatten(3)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        rows = grads[0].flatten(1, 2).movedim(2, 1)
        return torch.nn.functional.fold(rows, *ctx.options), *[None] * 4
