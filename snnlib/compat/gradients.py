"""Pooling, rounding and gradient decoupling under the published names."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from snnlib import functional
from snnlib.nn import RangeObserver


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


class UpdateRange(RangeObserver):
    """Running `fmin` and `fmax` of all inputs; `Update(fmin, fmax)` takes bounds directly.

    >>> import torch, snnlib
    >>> update = snnlib.compat.UpdateRange("cpu")
    >>> _ = update(torch.tensor([-1.0, 3.0]))
    >>> update.fmin.item(), update.fmax.item(), update.flag
    (-1.0, 3.0, 1)
    """

    def __init__(self, device: torch.device | str | None = None) -> None:
        super().__init__(device)

    @property
    def flag(self) -> int:
        """1 after the first update."""
        return int(self.initialised)

    def Update(self, fmin: Tensor, fmax: Tensor) -> None:
        """Extends the range by both bounds, in training and in eval mode."""
        self.observe(torch.stack([fmin.reshape(()), fmax.reshape(())]).to(self.fmin))


class Round:
    """`Round.apply(input)`: truncation toward zero with a straight-through gradient, `functional.quantize.round_ste`.

    >>> import torch, snnlib
    >>> snnlib.compat.Round.apply(torch.tensor([2.7, -2.7])).tolist()
    [2.0, -2.0]
    """

    @staticmethod
    def apply(input: Tensor) -> Tensor:
        """Truncated values in input's dtype."""
        return functional.quantize.round_ste(input, "trunc")


class GradientDecoupleLayer:
    """`GradientDecoupleLayer.apply(x, _lambda)`: `functional.grad_scale`.

    >>> import torch, snnlib
    >>> x = torch.tensor([1.0, -2.0, 3.0], requires_grad=True)
    >>> snnlib.compat.GradientDecoupleLayer.apply(x, 0.85).backward(torch.tensor([1.0, 2.0, -4.0]))
    >>> [round(g, 6) for g in x.grad.tolist()]
    [0.85, 1.7, -3.4]
    """

    @staticmethod
    def apply(x: Tensor, _lambda: float) -> Tensor:
        """x, with gradient `_lambda g`."""
        return functional.grad_scale(x, _lambda)


def decouple_layer(x: Tensor, _lambda: float) -> Tensor:
    """x, with gradient `_lambda g`: 1 passes it, 0 stops it, -1 reverses it.

    >>> import torch, snnlib
    >>> snnlib.compat.decouple_layer(torch.tensor([1.0, -2.0]), 0.01).tolist()
    [1.0, -2.0]
    """
    return functional.grad_scale(x, _lambda)


class AffineLayer(nn.Module):
    """`X * weight + bias` per channel of X `[N, C, H, W]` (or `[N, T, C, H, W]`), 1 and 0 at the start.

    snnlib's name: `ChannelAffine`, for any layout. This class keeps the published parameter shapes `[1, C, 1, 1]`, so
    that saved models load.

    >>> import torch, snnlib
    >>> snnlib.compat.AffineLayer(3, bias=True)(torch.ones(2, 3, 4, 4)).shape
    torch.Size([2, 3, 4, 4])
    """

    def __init__(self, num_channels: int, bias: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1, num_channels, 1, 1))
        self.bias = nn.Parameter(torch.zeros(1, num_channels, 1, 1)) if bias else None

    def forward(self, X: Tensor) -> Tensor:
        """Scaled and shifted channels."""
        channels = self.weight.shape[1]
        if X.dim() < 4 or X.shape[-3] != channels:
            raise ValueError(f"X: expected [..., {channels}, H, W], got shape {tuple(X.shape)}")
        out = X * self.weight
        return out if self.bias is None else out + self.bias
