"""Average pooling of events and its sum-preserving gradient, for 1, 2 and 3 axes.

Equation and source: cpp/include/snnlib/pool/windows.h.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

Sizes = list[int]


def output_size(size: int, kernel: int, stride: int, padding: int, ceil_mode: bool) -> int:
    """Windows along one axis, by torch's rule: with `ceil_mode` the last one must start inside the padded input."""
    out = (size + 2 * padding - kernel + (stride - 1 if ceil_mode else 0)) // stride + 1
    if ceil_mode and (out - 1) * stride >= size + padding:
        out -= 1
    return out


class _Windows:
    """Windows over the axes of `[N, C, *spatial]`; all of them lie inside once zeros are added on both sides."""

    def __init__(
        self, space: Sequence[int], kernel: Sizes, stride: Sizes, padding: Sizes, ceil_mode: bool
    ) -> None:
        self.space, self.kernel, self.stride, self.before = list(space), kernel, stride, padding
        axes = list(zip(space, kernel, stride, padding, strict=True))
        self.out = [output_size(*axis, ceil_mode) for axis in axes]
        self.after = [
            max(0, (out - 1) * step + extent - size - zeros)
            for out, (size, extent, step, zeros) in zip(self.out, axes, strict=True)
        ]

    def _planes(self, x: Tensor) -> Tensor:
        """`[N * C, 1, *spatial]` with at least two axes: torch pools no empty channel dimension."""
        planes = x.flatten(0, 1).unsqueeze(1)
        return planes.unsqueeze(-2) if planes.dim() == 3 else planes

    def _plane_sizes(self) -> tuple[Sizes, Sizes]:
        one = [1] * (len(self.kernel) == 1)
        return [*one, *self.kernel], [*one, *self.stride]

    def _padded(self, x: Tensor) -> Tensor:
        # Zeros of our own: torch refuses 3-D windows that fit by padding or ceil_mode alone. F.pad counts axes from the
        # last one.
        margins = zip(reversed(self.before), reversed(self.after), strict=True)
        return self._planes(F.pad(x, [zeros for axis in margins for zeros in axis]))

    def sums(self, x: Tensor) -> Tensor:
        """The sum of every window."""
        padded = self._padded(x)
        pool = F.avg_pool2d if padded.dim() == 4 else F.avg_pool3d
        out = pool(padded, *self._plane_sizes(), divisor_override=1)
        return out.reshape(*x.shape[:2], *self.out)

    def cells(self, include_pad: bool, device: torch.device) -> Tensor:
        """Cells of every window that count: those inside the image, with `include_pad` those in its padding as well."""
        count = torch.ones((), device=device)
        for out, size, extent, step, zeros in zip(
            self.out, self.space, self.kernel, self.stride, self.before, strict=True
        ):
            start = torch.arange(out, device=device) * step - zeros
            end = (start + extent).clamp(max=size + zeros if include_pad else size)
            count = count.unsqueeze(-1) * (end - (start if include_pad else start.clamp(min=0)))
        return count

    def spread(self, share: Tensor, x: Tensor) -> Tensor:
        """Adjoint of `sums`. Written with torch's backward op: below a custom op nothing is differentiated."""
        padded = self._padded(x)
        aten = torch.ops.aten
        backward = aten.avg_pool2d_backward if padded.dim() == 4 else aten.avg_pool3d_backward
        none = [0] * (padded.dim() - 2)
        out: Tensor = backward(self._planes(share), padded, *self._plane_sizes(), none, False, True, 1)
        if len(self.kernel) == 1:
            out = out.squeeze(-2)
        for axis, (zeros, size) in enumerate(zip(self.before, self.space, strict=True), start=2):
            out = out.narrow(axis, zeros, size)
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
    windows = _Windows(x.shape[2:], kernel, stride, padding, ceil_mode)
    cells = windows.cells(count_include_pad, x.device) if divisor is None else divisor
    return (windows.sums(wide) / cells).to(x.dtype)


def avg_pool_backward(
    grad_output: Tensor, x: Tensor, kernel: Sizes, stride: Sizes, padding: Sizes, ceil_mode: bool
) -> Tensor:
    """`x * sum_pool^T(g / sum_pool(x))`, zero for silent windows."""
    wide = x.detach().to(torch.promote_types(x.dtype, torch.float32))

    windows = _Windows(x.shape[2:], kernel, stride, padding, ceil_mode)
    total, total_abs = windows.sums(wide), windows.sums(wide.abs())
    tolerance = math.prod(kernel) * torch.finfo(wide.dtype).eps
    silent = total.abs() <= tolerance * total_abs
    share = torch.where(silent, 0.0, grad_output.to(wide.dtype) / torch.where(silent, 1.0, total))
    return torch.where(wide == 0, 0.0, wide * windows.spread(share, wide)).to(x.dtype)
