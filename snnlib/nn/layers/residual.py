"""The residual block of spiking nets."""

from __future__ import annotations

from typing import Unpack

from torch import Tensor, nn

from snnlib.functional.residual import spike_add
from snnlib.nn.layers.srm import SRMConv2d, SRMOptions

__all__ = ["SpikingBlock"]


class SpikingBlock(nn.Module):
    """Two 3x3 SRM convolutions beside a shortcut: `[T, N, C_in, H, W]` to `[T, N, C_out, H', W']`.

    `y = spike_add(conv2(conv1(x)), shortcut(x))`; the shortcut is a 1x1 SRM convolution where stride or channels
    change, else the identity. For spikes as input y has amplitudes 0, 1 and 2; each further identity block adds one.
    The sum of gradients is the same at y and x.

    Args:
        in_channels: channels of the input.
        out_channels: channels of the output.
        stride: step of `conv1` and of the shortcut. Default 1.
        options: constants of all SRM layers of the block, as in `SRMConv2d`.

    Raises:
        ValueError, TypeError: as in `SRMConv2d`.

    Source: He et al., "Deep Residual Learning for Image Recognition", CVPR 2016; as a spiking block without batch
    normalisation: Zhu et al., NeurIPS 2022, the residual nets of their code.

    >>> import torch, snnlib
    >>> snnlib.SpikingBlock(4, 8, stride=2)(torch.zeros(3, 2, 4, 6, 6)).shape
    torch.Size([3, 2, 8, 3, 3])
    """

    def __init__(
        self, in_channels: int, out_channels: int, stride: int = 1, **options: Unpack[SRMOptions]
    ) -> None:
        super().__init__()
        self.conv1 = SRMConv2d(in_channels, out_channels, 3, stride, 1, **options)
        self.conv2 = SRMConv2d(out_channels, out_channels, 3, 1, 1, **options)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or in_channels != out_channels:
            self.shortcut = SRMConv2d(in_channels, out_channels, 1, stride, **options)

    def forward(self, x: Tensor) -> Tensor:
        """Sum of both branches' spikes."""
        return spike_add(self.conv2(self.conv1(x)), self.shortcut(x))
