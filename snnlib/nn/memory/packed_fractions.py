"""Multiples of 1, 1/2, 1/4 or 1/8 in two or four bits each, by shapes alone: nothing is read back from a GPU."""

from __future__ import annotations

import torch
from torch import Tensor


def width(denominator: int) -> int:
    """Bits of a number: k from 0 to `denominator`, and the largest code for NaN."""
    return 2 if denominator <= 2 else 4


def pack(flat: Tensor, denominator: int) -> Tensor:
    """Multiples of 1 / `denominator` from 0 to 1 `[count]`, and NaN, as bytes.

    A byte holds numbers that lie far apart, so that neighbours go to neighbours. `denominator` is 1, 2, 4 or 8.
    """
    bits = width(denominator)
    per_byte, top = 8 // bits, (1 << bits) - 1
    codes = (flat * denominator).nan_to_num_(nan=top).to(torch.uint8)
    codes = torch.nn.functional.pad(codes, (0, -len(flat) % per_byte)).view(per_byte, -1)
    packed: Tensor = (codes << _shifts(codes, bits)).sum(0, dtype=torch.uint8)
    return packed


def unpack(packed: Tensor, denominator: int, count: int, dtype: torch.dtype) -> Tensor:
    """The numbers `[count]` again."""
    bits = width(denominator)
    top = (1 << bits) - 1
    codes = ((packed >> _shifts(packed, bits)) & top).flatten().narrow(0, 0, count)
    # Exact: denominators are powers of two.
    values = codes.to(dtype).mul_(1 / denominator)
    return values.masked_fill_(codes == top, torch.nan)


def _shifts(like: Tensor, bits: int) -> Tensor:
    return torch.arange(0, 8, bits, dtype=torch.uint8, device=like.device).unsqueeze(1)
