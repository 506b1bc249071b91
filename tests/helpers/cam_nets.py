"""Small nets that the tests of Grad-CAM look into, and maps of a given output and gradient."""

from typing import Any

import torch
from torch import Tensor, nn

import snnlib
from snnlib.inspect.gradcam import GradCAM

DOUBLE = {"dtype": torch.float64}


class Given(nn.Module):
    """A net whose layer puts out a given tensor whatever the net sees."""

    def __init__(self, output: Tensor) -> None:
        super().__init__()
        self.output, self.layer = output, nn.Identity()

    def forward(self, _x: Tensor) -> Tensor:
        return self.layer(self.output)


def maps_of(
    output: Tensor, gradient: Tensor, size: tuple[int, int], *, normalize: bool = False, **options: Any
) -> Tensor:
    """Maps from a layer's output and the gradient there, both given."""
    net = Given(output)
    with GradCAM(net, net.layer, normalize=normalize, **options) as cam:
        return cam(torch.zeros(1, 1, *size), lambda answer: (answer * gradient).sum())


def conv_net() -> nn.Sequential:
    """A smooth net with random weights."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(2, 5, 3, padding=1, **DOUBLE),
        nn.Tanh(),
        nn.Conv2d(5, 6, 3, stride=2, padding=1, **DOUBLE),
        nn.Softplus(),
        nn.Flatten(),
        nn.Linear(6 * 16, 4, **DOUBLE),
    )


def spiking_net(batch_first: bool = False) -> nn.Sequential:
    torch.manual_seed(0)
    options = {"tau_m": 8.0, "tau_s": 4.0, "batch_first": batch_first, **DOUBLE}
    return nn.Sequential(
        snnlib.SRMConv2d(2, 6, 3, padding=1, **options),
        snnlib.SpikeAvgPool2d(2),
        nn.Flatten(2),
        snnlib.SRMLinear(6 * 16, 5, **options),
    )


def events(rng: torch.Generator, samples: int = 3) -> Tensor:
    return (torch.rand(12, samples, 2, 8, 8, generator=rng) < 0.3).double()
