"""Spiking residual nets of the event-driven learning papers; what was said in `published.py` holds here too."""

from __future__ import annotations

from collections import OrderedDict
from typing import Unpack

from torch import nn

from snnlib.nn.dropout import SpikeDropout
from snnlib.nn.pool import SpikeAvgPool2d
from snnlib.nn.residual import SpikingBlock
from snnlib.nn.srm import SRMConv2d, SRMLinear, SRMOptions


def _resnet(classes: int, dropout: float, constants: SRMOptions) -> nn.Sequential:
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    layers["conv1"] = SRMConv2d(3, 128, 5, padding=2, **constants)
    before = 128
    for stage, channels in enumerate((128, 256, 512), start=1):
        layers[f"block{2 * stage - 1}"] = SpikingBlock(before, channels, stride=2, **constants)
        layers[f"block{2 * stage}"] = SpikingBlock(channels, channels, **constants)
        layers[f"dropout{stage}"] = SpikeDropout(dropout, constants.get("batch_first", False))
        before = channels
    layers["pool1"] = SpikeAvgPool2d(2)
    layers["fc1"] = SRMLinear(512 * 2 * 2, classes, **constants)
    return nn.Sequential(layers)


def cifar10_resnet(classes: int = 10, dropout: float = 0.1, **options: Unpack[SRMOptions]) -> nn.Sequential:
    """The CIFAR-10 residual net for spike tensors `[12, N, 3, 32, 32]`, `tau_m, tau_s = 7, 4`; 11 million weights.

    A 5x5 convolution to 128 channels, three stages of two `SpikingBlock`s with 128, 256 and 512 channels, the first
    of each with stride 2, a `SpikeDropout` of 0.1 after every stage, `P2`, and a fully connected layer. There is no
    batch normalisation. The sequence is the normalised image at each of the T = 12 steps. The paper's tau_grad is 3.5.
    Calibrate it on a batch before training (`snnlib.prepare_`).

    Source: Zhu et al., NeurIPS 2023, residual net and CIFAR-10 configuration of their code.

    >>> import snnlib, torch
    >>> net = snnlib.models.cifar10_resnet()
    >>> net(torch.zeros(12, 1, 3, 32, 32)).shape
    torch.Size([12, 1, 10])
    >>> [name for name, _ in net.named_children()][:4]
    ['conv1', 'block1', 'block2', 'dropout1']
    """
    return _resnet(classes, dropout, {"tau_m": 7.0, "tau_s": 4.0, **options})


def cifar100_resnet(classes: int = 100, dropout: float = 0.1, **options: Unpack[SRMOptions]) -> nn.Sequential:
    """The CIFAR-100 residual net for spike tensors `[16, N, 3, 32, 32]`, `tau_m, tau_s = 10, 6`.

    Layers of `cifar10_resnet`. The paper's tau_grad is 5.5; T = 16.

    Source: Zhu et al., NeurIPS 2023, residual net and CIFAR-100 configuration of their code.

    >>> import snnlib, torch
    >>> snnlib.models.cifar100_resnet()(torch.zeros(16, 1, 3, 32, 32)).shape
    torch.Size([16, 1, 100])
    """
    return _resnet(classes, dropout, {"tau_m": 10.0, "tau_s": 6.0, **options})
