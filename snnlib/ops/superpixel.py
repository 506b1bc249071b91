"""Sums over superpixels of `[..., C, H, W]`.

Kernel: cpp/cpu/superpixel.cpp; reference: snnlib/backends/reference/superpixel.py.
"""

from __future__ import annotations

import torch
from torch import Tensor

from snnlib import checks
from snnlib.backends import native, reference


def _empty_sums(image: Tensor, count: int) -> Tensor:
    dtype = torch.promote_types(image.dtype, torch.float32)
    return image.new_empty(*image.shape[:-2], count, dtype=dtype)


@torch.library.custom_op("snnlib::superpixel_sum", mutates_args=())
def superpixel_sum(image: Tensor, segments: Tensor, count: int) -> Tensor:
    """Sums `[..., C, K]`, float32 for half images, over segments `[..., H * W]` of int64.

    The dimensions of `segments` before the last are the last ones of `image` before C.
    """
    checks.check_kernel_dtype("image", image)
    checks.check_rank("image", image, "[..., C, H, W]", at_least=3)
    checks.check_tensor("segments", segments)
    checks.check_rank("segments", segments, "[..., H * W]", at_least=1)
    if not 0 <= count <= checks.MOST_PLACES:
        raise ValueError(f"count: expected an integer from 0 to {checks.MOST_PLACES}, got {count}")
    lead = image.shape[:-3]
    own = lead[len(lead) - segments.dim() + 1 :]
    expected = (*own, image.shape[-2] * image.shape[-1])
    if segments.shape != expected or segments.dtype != torch.int64:
        raise ValueError(
            f"segments: expected shape {expected} and torch.int64, got {tuple(segments.shape)} and {segments.dtype}"
        )
    out = _empty_sums(image, count)
    run = native.kernel("superpixel_sum", image, segments=segments)
    if run is None:
        return out.copy_(reference.superpixel.superpixel_sum(image, segments, count))
    # torch widens half types faster than the kernel would.
    image, segments = image.to(out.dtype).contiguous(), segments.contiguous()
    run(
        native.DTYPE_CODES[image.dtype],
        lead.numel(),
        image.shape[-3],
        segments.shape[-1],
        own.numel(),
        count,
        image.data_ptr(),
        segments.data_ptr(),
        out.data_ptr(),
    )
    return out


@superpixel_sum.register_fake
def _(image: Tensor, segments: Tensor, count: int) -> Tensor:
    return _empty_sums(image, count)
