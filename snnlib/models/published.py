"""Nets of the event-driven learning papers with their time constants.

Layers, time constants and dropout are those of the authors' code. Three defaults differ, and are options:

- tau_grad is tau_s, which preserves the sum of gradients exactly; each docstring has the papers' smaller value;
- input gradients are not damped; the code of 2022 has `input_grad_scale=0.85`;
- weights are plain; the papers standardise them, which `snnlib.nn.standardize_weights_` adds after calibration.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Unpack

from torch import nn

from snnlib.models.notation import from_notation
from snnlib.nn.layers.dropout import SpikeDropout
from snnlib.nn.layers.residual import SpikingBlock
from snnlib.nn.layers.spike_pool import SpikeAvgPool2d
from snnlib.nn.layers.srm import SRMConv2d, SRMLinear, SRMOptions


def mnist_net(classes: int = 10, **options: Unpack[SRMOptions]) -> nn.Sequential:
    """The MNIST net `15C5-P2-40C5-P2-300-10` for spike tensors `[5, N, 1, 28, 28]`, `tau_m, tau_s = 5, 3`.

    The sequence is the image at each of the T = 5 steps, pixels as amplitudes. The paper's tau_grad is 2.5. Calibrate
    it on a batch before training (`snnlib.prepare_`).

    Source: Zhu et al., NeurIPS 2022, MNIST configuration of their code.

    >>> import snnlib, torch
    >>> images = torch.rand(2, 1, 28, 28)
    >>> snnlib.models.mnist_net()(images.expand(5, *images.shape)).shape
    torch.Size([5, 2, 10])
    """
    constants: SRMOptions = {"tau_m": 5.0, "tau_s": 3.0, **options}
    return from_notation(f"15C5-P2-40C5-P2-300-{classes}", (1, 28, 28), **constants)


def fashion_mnist_net(classes: int = 10, **options: Unpack[SRMOptions]) -> nn.Sequential:
    """The Fashion-MNIST net `32C5p2-P2-64C5p2-P2-1024-10` for spike tensors `[5, N, 1, 28, 28]`, `tau_m, tau_s = 5, 3`.

    Input, the paper's tau_grad and calibration as in `mnist_net`.

    Source: Zhu et al., NeurIPS 2022, Fashion-MNIST configuration of their code.

    >>> import snnlib, torch
    >>> snnlib.models.fashion_mnist_net()(torch.zeros(5, 2, 1, 28, 28)).shape
    torch.Size([5, 2, 10])
    """
    constants: SRMOptions = {"tau_m": 5.0, "tau_s": 3.0, **options}
    return from_notation(f"32C5p2-P2-64C5p2-P2-1024-{classes}", (1, 28, 28), **constants)


def nmnist_net(classes: int = 10, **options: Unpack[SRMOptions]) -> nn.Sequential:
    """The N-MNIST net `12C5p1-P2-64C5-P2-10` for spike tensors `[30, N, 2, 34, 34]`, `tau_m, tau_s, tau_grad = 8, 4,
    4`.

    The paper trains with tau_grad 3; the default preserves the sum of gradients exactly. Pass `tau_grad=3.0` for the
    paper's value. Calibrate it on a batch before training (`snnlib.prepare_`).

    Source: Zhu et al., NeurIPS 2022, section 4 and its N-MNIST configuration (T = 30).

    >>> import snnlib, torch
    >>> snnlib.models.nmnist_net()(torch.zeros(30, 2, 2, 34, 34)).shape
    torch.Size([30, 2, 10])
    """
    constants: SRMOptions = {"tau_m": 8.0, "tau_s": 4.0, **options}
    return from_notation(f"12C5p1-P2-64C5-P2-{classes}", (2, 34, 34), **constants)


def _with_dropout(net: nn.Sequential, p: float, constants: SRMOptions) -> nn.Sequential:
    """Returns the layers with a dropout after every pool and every hidden fully connected layer."""
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    drops = 0
    for name, layer in net.named_children():
        layers[name] = layer
        if isinstance(layer, SpikeAvgPool2d | SRMLinear) and layer is not net[-1]:
            drops += 1
            layers[f"dropout{drops}"] = SpikeDropout(p, constants.get("batch_first", False))
    return nn.Sequential(layers)


def _cifar_vgg(classes: int, dropout: float, constants: SRMOptions) -> nn.Sequential:
    convolutions = "128C3p1-128C3p1-P2-256C3p1-256C3p1-256C3p1-P2-512C3p1-512C3p1-512C3p1-P2"
    net = from_notation(f"{convolutions}-2048-2048-{classes}", (3, 32, 32), **constants)
    return _with_dropout(net, dropout, constants)


def cifar10_vgg(classes: int = 10, dropout: float = 0.1, **options: Unpack[SRMOptions]) -> nn.Sequential:
    """The CIFAR-10 VGG-11 for spike tensors `[12, N, 3, 32, 32]`, `tau_m, tau_s = 7, 4`; 28 million weights.

    `128C3-128C3-P2-256C3-256C3-256C3-P2-512C3-512C3-512C3-P2-2048-2048-10`, padding 1, with a `SpikeDropout` of 0.1
    after every pool and hidden fully connected layer. The sequence is the normalised image at each of the T = 12 steps.
    The paper's tau_grad is 3.5. Calibrate it on a batch before training (`snnlib.prepare_`).

    Source: Zhu et al., NeurIPS 2022 and 2023, CIFAR-10 configuration of their code.

    >>> import snnlib, torch
    >>> net = snnlib.models.cifar10_vgg()
    >>> net(torch.zeros(12, 1, 3, 32, 32)).shape
    torch.Size([12, 1, 10])
    >>> [name for name, _ in net.named_children()][-7:]
    ['pool3', 'dropout3', 'fc1', 'dropout4', 'fc2', 'dropout5', 'fc3']
    """
    return _cifar_vgg(classes, dropout, {"tau_m": 7.0, "tau_s": 4.0, **options})


def cifar100_vgg(classes: int = 100, dropout: float = 0.1, **options: Unpack[SRMOptions]) -> nn.Sequential:
    """The CIFAR-100 VGG-11 for spike tensors `[16, N, 3, 32, 32]`, `tau_m, tau_s = 10, 6`: layers of `cifar10_vgg`.

    The paper's tau_grad is 5.5; T = 16.

    Source: Zhu et al., NeurIPS 2023, CIFAR-100 configuration of their code.

    >>> import snnlib, torch
    >>> snnlib.models.cifar100_vgg()(torch.zeros(16, 1, 3, 32, 32)).shape
    torch.Size([16, 1, 100])
    """
    return _cifar_vgg(classes, dropout, {"tau_m": 10.0, "tau_s": 6.0, **options})


def cifar10_dvs_vgg(
    classes: int = 10, size: int = 48, dropout: float = 0.1, **options: Unpack[SRMOptions]
) -> nn.Sequential:
    """The CIFAR10-DVS VGG-11 for spike tensors `[20, N, 2, 48, 48]`, `tau_m, tau_s = 8, 4.5`.

    `128C3-P2-256C3-256C3-P2-256C3-512C3-P2-512C3-512C3-512C3-P2-1024-1024-10`, padding 1, with a `SpikeDropout` of
    0.1 after every pool and hidden fully connected layer. The paper's tau_grad is 4; T = 20. Calibrate it on a
    batch before training (`snnlib.prepare_`).

    Args:
        classes: output neurons.
        size: height and width of the frames, at least 16. Default 48, the paper's.
        dropout: probability that a neuron is silenced.
        options: constants of all SRM layers, as in `SRMConv2d`.

    Source: Zhu et al., NeurIPS 2023, CIFAR10-DVS configuration of their code.

    >>> import snnlib, torch
    >>> snnlib.models.cifar10_dvs_vgg()(torch.zeros(20, 1, 2, 48, 48)).shape
    torch.Size([20, 1, 10])
    """
    constants: SRMOptions = {"tau_m": 8.0, "tau_s": 4.5, **options}
    convolutions = "128C3p1-P2-256C3p1-256C3p1-P2-256C3p1-512C3p1-P2-512C3p1-512C3p1-512C3p1-P2"
    net = from_notation(f"{convolutions}-1024-1024-{classes}", (2, size, size), **constants)
    return _with_dropout(net, dropout, constants)


def dvs_gesture_net(
    classes: int = 11, size: int = 128, dropout: float = 0.1, **options: Unpack[SRMOptions]
) -> nn.Sequential:
    """The DVS128-Gesture net for spike tensors `[20, N, 2, 128, 128]`, `tau_m, tau_s = 7.5, 4`.

    `128C3-P2` six times, then `512-128-11`, padding 1, with a `SpikeDropout` of 0.1 after every pool and hidden fully
    connected layer. The paper's tau_grad is 3.5; T = 20, of which its code trains on 14 at a time. Calibrate it on a
    batch before training (`snnlib.prepare_`).

    Args:
        classes: output neurons.
        size: height and width of the frames, at least 64. Default 128, the sensor's.
        dropout: probability that a neuron is silenced.
        options: constants of all SRM layers, as in `SRMConv2d`.

    Source: DVS128-Gesture configuration in the code of Zhu et al., NeurIPS 2022.

    >>> import snnlib, torch
    >>> snnlib.models.dvs_gesture_net()(torch.zeros(20, 1, 2, 128, 128)).shape
    torch.Size([20, 1, 11])
    """
    constants: SRMOptions = {"tau_m": 7.5, "tau_s": 4.0, **options}
    net = from_notation("128C3p1-P2-" * 6 + f"512-128-{classes}", (2, size, size), **constants)
    return _with_dropout(net, dropout, constants)


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
