"""Numbers of few levels in two or four bits each, by shapes alone: nothing is read back from a GPU."""

from __future__ import annotations

import torch
from torch import Tensor


def width(levels: int) -> int:
    """Bits of a number: k from 0 to `levels`, and the largest code for NaN."""
    return 2 if levels <= 2 else 4


def pack(flat: Tensor, levels: int) -> Tensor:
    """Multiples of 1 / `levels` from 0 to 1 `[count]`, and NaN, as bytes.

    A byte holds numbers that lie far apart, so that neighbours go to neighbours. `levels` is 1, 2, 4 or 8.
    """
    bits = width(levels)
    per_byte, top = 8 // bits, (1 << bits) - 1
    codes = (flat * levels).nan_to_num_(nan=top).to(torch.uint8)
    codes = torch.nn.functional.pad(codes, (0, -len(flat) % per_byte)).view(per_byte, -1)
    packed: Tensor = (codes << _shifts(codes, bits)).sum(0, dtype=torch.uint8)
    return packed


def unpack(packed: Tensor, levels: int, count: int, dtype: torch.dtype) -> Tensor:
    """The numbers `[count]` again."""
    bits = width(levels)
    top = (1 << bits) - 1
    codes = ((packed >> _shifts(packed, bits)) & top).flatten().narrow(0, 0, count)
    # Exact: levels are powers of two.
    values = codes.to(dtype).mul_(1 / levels)
    return values.masked_fill_(codes == top, torch.nan)


def _shifts(like: Tensor, bits: int) -> Tensor:
    return torch.arange(0, 8, bits, dtype=torch.uint8, device=like.device).unsqueeze(1)
