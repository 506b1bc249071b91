"""Unfolds a convolution into a fully connected map: the inputs of every output pixel."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from snnlib.functional.operators import Convolution, FullyConnected, LinearOperator


def unfolded_rows(
    x: Tensor, weight: Tensor, operator: LinearOperator, time_dim: int
) -> tuple[Tensor, tuple[int, ...]]:
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
    frames, size = conv.x.flatten(0, 1), tuple(conv.weight.shape[2:])
    windows = _Windows.apply(  # type: ignore[no-untyped-call]
        frames, size, tuple(dilation), tuple(padding), tuple(stride)
    )
    rows = windows.flatten(1, 2).unflatten(0, x.shape[:2])  # [T, N, cells, I] or [N, T, cells, I]
    rows = rows.movedim(2, 1).flatten(0, 1) if time_dim else rows.flatten(1, 2)
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
