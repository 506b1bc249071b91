"""Average pooling of events and its sum-preserving gradient, for 1, 2 and 3 axes.

Equation and source: cpp/include/snnlib/kernels/pool.h.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

Sizes = list[int]


def _as_planes(x: Tensor) -> Tensor:
    """`[N, C, *spatial]` as `[N * C, 1, *spatial]` with at least two axes: torch pools no empty channel dimension,
    and its 1-D pooling has no divisor_override.
    """
    planes = x.flatten(0, 1).unsqueeze(1)
    return planes.unsqueeze(-2) if planes.dim() == 3 else planes


def _as_plane_sizes(kernel: Sizes, stride: Sizes, padding: Sizes) -> tuple[Sizes, Sizes, Sizes]:
    return ([1, *kernel], [1, *stride], [0, *padding]) if len(kernel) == 1 else (kernel, stride, padding)


def _average(
    x: Tensor,
    kernel: Sizes,
    stride: Sizes,
    padding: Sizes,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor: int | None,
) -> Tensor:
    sizes = _as_plane_sizes(kernel, stride, padding)
    planes = _as_planes(x)
    pool = F.avg_pool2d if planes.dim() == 4 else F.avg_pool3d
    out = pool(planes, *sizes, ceil_mode, count_include_pad, divisor)
    return out.reshape(*x.shape[:2], *out.shape[-len(kernel) :])


def _spread(
    share: Tensor, x: Tensor, kernel: Sizes, stride: Sizes, padding: Sizes, ceil_mode: bool
) -> Tensor:
    """Adjoint of the sum pool. Written with torch's backward op: below a custom op nothing is differentiated."""
    planes = _as_planes(x)
    aten = torch.ops.aten
    backward = aten.avg_pool2d_backward if planes.dim() == 4 else aten.avg_pool3d_backward
    sizes = _as_plane_sizes(kernel, stride, padding)
    out: Tensor = backward(_as_planes(share), planes, *sizes, ceil_mode, True, 1)
    return out.reshape(x.shape)


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
    spread = _spread(share, wide, kernel, stride, padding, ceil_mode)
    return torch.where(wide == 0, 0.0, wide * spread).to(x.dtype)
