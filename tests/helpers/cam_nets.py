"""Small nets that the tests of Grad-CAM look into, and maps of a given output and gradient."""

from typing import Any

import torch
from torch import Tensor, nn

import snnlib
from snnlib.explain import GradCAM

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


class Attention(nn.Module):
    """A block of a vision transformer."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, 2, batch_first=True)
        self.mlp = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.GELU())

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm1(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.mlp(x)


class ViT(nn.Module):
    def __init__(self, class_token: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.patches = nn.Conv2d(3, 8, 4, stride=4)
        self.token = nn.Parameter(torch.randn(1, 1, 8)) if class_token else None
        self.places = nn.Parameter(torch.randn(1, 16 + class_token, 8))
        self.blocks = nn.Sequential(Attention(8), Attention(8))
        self.head = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.patches(x).flatten(2).transpose(1, 2)
        if self.token is not None:
            tokens = torch.cat([self.token.expand(len(x), 1, 8), tokens], 1)
        tokens = self.blocks(tokens + self.places)
        return self.head(tokens.mean(1) if self.token is None else tokens[:, 0])
