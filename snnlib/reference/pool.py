"""Average pooling of events and its sum-preserving gradient, for 1, 2 and 3 axes.

Equation and source: cpp/include/snnlib/kernels/pool.h.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

Sizes = list[int]


def _average(
    x: Tensor,
    kernel: Sizes,
    stride: Sizes,
    padding: Sizes,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor: int | None,
) -> Tensor:
    if len(kernel) == 1:
        # torch's 1-D pooling has no divisor_override: pool over a plane of height 1.
        plane = _average(
            x.unsqueeze(-2), [1, *kernel], [1, *stride], [0, *padding], ceil_mode, count_include_pad, divisor
        )
        return plane.squeeze(-2)
    pool = F.avg_pool2d if len(kernel) == 2 else F.avg_pool3d
    return pool(x, kernel, stride, padding, ceil_mode, count_include_pad, divisor)


def avg_pool_forward(
    x: Tensor,
    kernel: Sizes,
    stride: Sizes,
    padding: Sizes,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor: int | None,
) -> Tensor:
    """Average over `[N, C, *spatial]`, summed in float32 or wider and rounded once."""
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    return _average(wide, kernel, stride, padding, ceil_mode, count_include_pad, divisor).to(x.dtype)


def avg_pool_backward(
    grad_output: Tensor, x: Tensor, kernel: Sizes, stride: Sizes, padding: Sizes, ceil_mode: bool
) -> Tensor:
    """`x * sum_pool^T(g / sum_pool(x))`, zero for silent windows."""
    wide = x.detach().to(torch.promote_types(x.dtype, torch.float32))

    def sum_pool(values: Tensor) -> Tensor:
        return _average(values, kernel, stride, padding, ceil_mode, True, 1)

    total, total_abs = sum_pool(wide), sum_pool(wide.abs())
    tolerance = torch.tensor(kernel).prod().item() * torch.finfo(wide.dtype).eps
    silent = total.abs() <= tolerance * total_abs
    share = torch.where(silent, 0.0, grad_output.to(wide.dtype) / torch.where(silent, 1.0, total))
    with torch.enable_grad():
        cells = torch.zeros_like(wide, requires_grad=True)
        (spread,) = torch.autograd.grad(sum_pool(cells), cells, share)
    return torch.where(wide == 0, 0.0, wide * spread).to(x.dtype)
