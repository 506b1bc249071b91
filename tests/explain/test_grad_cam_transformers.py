"""Grad-CAM of vision transformers, by the tokens before a block."""

import pytest
import torch
from cam_nets import ViT

from snnlib.explain import GradCAM


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
