"""Spike pooling layers; equations and options in `snnlib.functional`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor, nn

from snnlib import functional

__all__ = ["SpikeAvgPool1d", "SpikeAvgPool2d", "SpikeAvgPool3d", "SpikeMaxPool2d"]

Sizes = int | Sequence[int]


class _SpikePool(nn.Module):
    kernel_size: Sizes
    stride: Sizes | None
    padding: Sizes

    def extra_repr(self) -> str:
        """Window."""
        stride = self.kernel_size if self.stride is None else self.stride
        return f"kernel_size={self.kernel_size}, stride={stride}, padding={self.padding}"


class _SpikeAvgPool(_SpikePool):
    pool: Callable[..., Tensor]

    def __init__(
        self,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> None:
        super().__init__()
        self.kernel_size, self.stride, self.padding = kernel_size, stride, padding
        self.ceil_mode, self.count_include_pad = ceil_mode, count_include_pad
        self.divisor_override = divisor_override

    def forward(self, x: Tensor) -> Tensor:
        """Pooled sequence."""
        options = self.ceil_mode, self.count_include_pad, self.divisor_override
        return type(self).pool(x, self.kernel_size, self.stride, self.padding, *options)


class SpikeAvgPool1d(_SpikeAvgPool):
    """Average pooling of spike tensors `[T, N, C, L]` with the event-time gradient; see `SpikeAvgPool2d`."""

    pool = staticmethod(functional.spike_avg_pool1d)


class SpikeAvgPool2d(_SpikeAvgPool):
    """Average pooling of spike tensors `[T, N, C, H, W]` with the event-time gradient.

    Forward as `torch.nn.AvgPool2d`, backward `dL/dx = x * avg_pool2d^T(g / y)`: see
    `snnlib.functional.spike_avg_pool2d`, which lists options, errors and source. Works on `[N, T, ...]` as well.

    >>> import torch, snnlib
    >>> snnlib.SpikeAvgPool2d(2)(torch.ones(3, 1, 4, 6, 6)).shape
    torch.Size([3, 1, 4, 3, 3])
    """

    pool = staticmethod(functional.spike_avg_pool2d)


class SpikeAvgPool3d(_SpikeAvgPool):
    """Average pooling of spike tensors `[T, N, C, D, H, W]` with the event-time gradient; see `SpikeAvgPool2d`."""

    pool = staticmethod(functional.spike_avg_pool3d)


class SpikeMaxPool2d(_SpikePool):
    """Max pooling of spike tensors `[T, N, C, H, W]`: see `snnlib.functional.spike_max_pool2d`.

    >>> import torch, snnlib
    >>> snnlib.SpikeMaxPool2d(2)(torch.ones(3, 1, 4, 6, 6)).shape
    torch.Size([3, 1, 4, 3, 3])
    """

    def __init__(
        self,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        dilation: Sizes = 1,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__()
        self.kernel_size, self.stride, self.padding = kernel_size, stride, padding
        self.dilation, self.ceil_mode = dilation, ceil_mode

    def forward(self, x: Tensor) -> Tensor:
        """Pooled sequence."""
        return functional.spike_max_pool2d(
            x, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode
        )
