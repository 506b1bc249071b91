"""The 16-bit float types, and all their values."""

import torch
from torch import Tensor

HALVES = [torch.bfloat16, torch.float16]


def every_value(dtype: torch.dtype) -> Tensor:
    """All 65536 bit patterns as a sequence [1, 1, 1, 256, 256]."""
    return torch.arange(-(2**15), 2**15).to(torch.int16).view(dtype).reshape(1, 1, 1, 256, 256)
