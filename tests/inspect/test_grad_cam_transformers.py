"""Grad-CAM of vision transformers, by the tokens before a block."""

import pytest
import torch
from torch import Tensor, nn

from snnlib.inspect.gradcam import GradCAM


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


def test_transformer_with_mean_pooled_tokens(rng: torch.Generator) -> None:
    net, x = ViT(class_token=False), torch.rand(3, 3, 16, 16, generator=rng)
    with GradCAM(net, net.blocks[-1]) as cam:
        maps = cam(x)
    assert maps.shape == (3, 16, 16)
    assert maps.amax((1, 2)).tolist() == [1, 1, 1]


def test_transformer_whose_head_reads_the_class_token(rng: torch.Generator) -> None:
    net, x = ViT(class_token=True), torch.rand(3, 3, 16, 16, generator=rng)
    with (
        GradCAM(net, net.blocks[-1]) as cam,
        pytest.raises(ValueError, match=r"all patch gradients are 0; choose .* blocks\[-1\]\.norm1"),
    ):
        cam(x)
    with GradCAM(net, net.blocks[-1].norm1) as cam:
        assert cam(x).amax((1, 2)).tolist() == [1, 1, 1]
