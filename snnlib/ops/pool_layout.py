"""Layouts of frames `[N, C, *space]` of 1 to 3 axes, and of the windows over them, as kernels of pooling take them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from snnlib import checks
from snnlib.backends import cpu_memory, native
from snnlib.backends.reference.pool import output_size


@dataclass(frozen=True)
class Windows:
    """Windows of a pooling, with the meaning of torch's options."""

    kernel: Sequence[int]
    stride: Sequence[int]
    padding: Sequence[int]
    ceil_mode: bool = False
    count_include_pad: bool = True
    divisor: int | None = None

    @classmethod
    def apart(cls, window: Sequence[int]) -> Windows:
        """Returns windows without overlap and padding; cells in none are left out."""
        return cls(window, window, [0] * len(window))

    def lists(self) -> tuple[list[int], list[int], list[int], bool]:
        """Returns what the reference takes first."""
        return list(self.kernel), list(self.stride), list(self.padding), self.ceil_mode

    def sizes(self, space: Sequence[int]) -> list[int]:
        """Returns the number of windows along each axis."""
        axes = zip(space, self.kernel, self.stride, self.padding, strict=True)
        return [output_size(*axis, self.ceil_mode) for axis in axes]

    def check(self, x: Tensor) -> None:
        """Raises an error that names the argument."""
        checks.check_pool_sizes(x, self.kernel, self.stride, self.padding)
        checks.check_windows(self.sizes(x.shape[2:]), x.shape[2:], self.kernel)
        if self.divisor == 0:
            raise ValueError("divisor_override: expected an integer other than 0, got 0")

    def empty_pooled(self, x: Tensor) -> Tensor:
        """Returns room for the windows of `x`, in its layout."""
        return empty_frames([*x.shape[:2], *self.sizes(x.shape[2:])], x, x.dtype)

    def geometry(self, x: Tensor, pooled: Tensor) -> tuple[object, ...]:
        """(dtype, outer, inner, three axes of (in, out, kernel, stride, padding)), of `[outer, *axes, inner]`."""
        axes = list(zip(x.shape[2:], pooled.shape[2:], self.kernel, self.stride, self.padding, strict=True))
        axes = [(1, 1, 1, 1, 0)] * (3 - len(axes)) + axes
        outer, inner = (x.shape[0], x.shape[1]) if is_channels_last(x) else (x.shape[0] * x.shape[1], 1)
        return (native.DTYPE_CODES[x.dtype], outer, inner, axes)


def is_channels_last(x: Tensor) -> bool:
    """Returns whether channels are the last axis in memory."""
    if x.dim() == 4:
        return x.is_contiguous(memory_format=torch.channels_last) and not x.is_contiguous()
    if x.dim() == 5:
        return x.is_contiguous(memory_format=torch.channels_last_3d) and not x.is_contiguous()
    return False


def as_walkable(x: Tensor) -> Tensor:
    """The frames in one of the two layouts that the kernels walk."""
    return x if is_channels_last(x) else x.contiguous()


def empty_frames(shape: Sequence[int], like: Tensor, dtype: torch.dtype) -> Tensor:
    """Room for frames of this shape in the layout of the frames `like`."""
    last = (0, *range(2, len(shape)), 1)
    return cpu_memory.empty_permuted(
        shape, last if is_channels_last(like) else range(len(shape)), like, dtype
    )
