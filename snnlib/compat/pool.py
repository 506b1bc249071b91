"""Average pooling with the inverse-scaled gradient under the papers' names."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from snnlib import functional


class PoolFunc:
    """`PoolFunc.apply(inputs, kernel)`: `functional.spike_avg_pool2d` over folded frames `[B, C, H, W]`.

    Silent pixels get no gradient; sizes that the kernel does not divide and real amplitudes are exact.

    >>> import torch, snnlib
    >>> snnlib.compat.PoolFunc.apply(torch.ones(3, 1, 4, 4), (2, 2)).shape
    torch.Size([3, 1, 2, 2])
    """

    @staticmethod
    def apply(inputs: Tensor, kernel: int | Sequence[int]) -> Tensor:
        """Pooled frames."""
        return functional.spike_avg_pool2d(inputs.unsqueeze(0), kernel).squeeze(0)


class Pooling(nn.Module):
    """2 x 2 average pooling of spike tensors `[N, T, C, H, W]`; the library's own is `SpikeAvgPool2d(2)`.

    >>> import torch, snnlib
    >>> snnlib.compat.Pooling()(torch.ones(2, 6, 15, 24, 24)).shape
    torch.Size([2, 6, 15, 12, 12])
    """

    def __init__(self) -> None:
        super().__init__()
        self.kernel = (2, 2)

    def forward(self, inputs: Tensor) -> Tensor:
        """Pooled sequence."""
        return functional.spike_avg_pool2d(inputs, self.kernel)
