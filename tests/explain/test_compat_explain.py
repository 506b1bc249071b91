"""Grad-CAM of a small vision transformer under the published name."""

import pytest
import torch
from cam_nets import ViT
from torch import nn

from snnlib import compat
from snnlib.explain import GradCAM


@pytest.fixture
def model() -> ViT:
    return ViT(class_token=True)


def test_one_map_per_image_and_nothing_left_behind(model: ViT, rng: torch.Generator) -> None:
    images = torch.rand(4, 3, 16, 16, generator=rng)
    cam = compat.ViTGradCAM(model)
    cam.register_hooks()
    # Patches of noise are much alike, so that most classes have no evidence at all or some everywhere.
    maps = cam.generate_heatmap(images, 2)
    assert maps.shape == (4, 1, 16, 16)
    assert maps.amax((1, 2, 3)).tolist() == [1] * 4
    for image, single in zip(images, maps, strict=True):
        torch.testing.assert_close(cam.generate_heatmap(image[None], 2)[0], single)
    assert torch.equal(cam.generate_heatmap(images), cam.generate_heatmap(images, model(images).argmax(1)))
    assert all(parameter.grad is None for parameter in model.parameters())
    assert all(not module._forward_hooks and not module._backward_hooks for module in model.modules())


def test_target_class_may_differ_per_image(model: ViT, rng: torch.Generator) -> None:
    images = torch.rand(2, 3, 16, 16, generator=rng)
    maps = compat.ViTGradCAM(model).generate_heatmap(images, torch.tensor([1, 3]))
    with GradCAM(model, model.blocks[-1].norm1) as cam:
        torch.testing.assert_close(maps[1, 0], cam(images, 3)[1])


def test_behind_the_last_attention_the_error_says_which_layer_to_take(model: ViT) -> None:
    with pytest.raises(ValueError, match=r"blocks\[-1\]\.norm1"):
        compat.ViTGradCAM(model, model.blocks[-1]).generate_heatmap(torch.rand(1, 3, 16, 16))


def test_a_model_without_blocks_is_named() -> None:
    with pytest.raises(TypeError, match="model: expected a transformer with `blocks`, got Linear"):
        compat.ViTGradCAM(nn.Linear(2, 2))
