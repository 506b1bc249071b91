"""Other layouts of a tensor in memory."""

import torch
from torch import Tensor


def sliced(x: Tensor) -> Tensor:
    """Every second element of a larger tensor."""
    wide = torch.full((*x.shape[:-1], 2 * x.shape[-1] + 1), torch.nan, dtype=x.dtype)
    view = wide[..., 1::2]
    return view.copy_(x)


def transposed(x: Tensor) -> Tensor:
    return x.transpose(0, -1).contiguous().transpose(0, -1)


def leading_swapped(x: Tensor) -> Tensor:
    return x.transpose(0, 1).contiguous().transpose(0, 1)


def channels_last(x: Tensor) -> Tensor:
    """Frames [N, C, ...]; for sequences [T, N, C, ...] the same order comes from `train_channels_last`."""
    return x.movedim(1, -1).contiguous().movedim(-1, 1)


def train_channels_last(x: Tensor) -> Tensor:
    return x if x.dim() < 3 else x.movedim(2, -1).contiguous().movedim(-1, 2)


def expanded(x: Tensor) -> Tensor:
    """Stride 0 along the first dimension; the values change, the comparison is with the same values."""
    return x[:1].expand(x.shape)


def misaligned(x: Tensor) -> Tensor:
    """Storage offset of one element: no address is a multiple of a SIMD vector."""
    room = torch.full((x.numel() + 1,), torch.nan, dtype=x.dtype)
    return room[1:].view(x.shape).copy_(x)


LAYOUTS = [sliced, transposed, leading_swapped, channels_last, train_channels_last, expanded, misaligned]
