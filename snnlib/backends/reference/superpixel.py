"""Sums over superpixels."""

from __future__ import annotations

import torch
from torch import Tensor

from snnlib.checks import require


def superpixel_sum(image: Tensor, segments: Tensor, count: int) -> Tensor:
    """Sums `[..., C, K]` of image `[..., C, H, W]` over segments `[..., H * W]`, added in float64 and rounded once."""
    pixels = image.flatten(-2).double()
    # As the kernel says it, and before anything is added.
    if image.numel():
        require(
            (segments >= 0) & (segments < count),
            lambda: ValueError(f"segments: expected integers in [0, {count})"),
        )
    index = segments.unsqueeze(-2).expand(pixels.shape)
    sums = pixels.new_zeros(*pixels.shape[:-1], count).scatter_add_(-1, index, pixels)
    return sums.to(torch.promote_types(image.dtype, torch.float32))
