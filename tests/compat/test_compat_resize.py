"""Bicubic down-scaling under the published names."""

import numpy as np
import pytest
import torch

from snnlib import compat
from snnlib.functional import resize_bicubic


@pytest.mark.parametrize("scale", [0.3, 1 / 3, 0.5, 0.75, 2.0])
def test_every_scale_is_the_library_s_with_the_published_kernel(scale: float, rng: torch.Generator) -> None:
    """`test_resize_bicubic.py` compares that with its definition, and its gradient."""
    image = torch.rand(9, 8, 2, generator=rng, dtype=torch.float64)
    out = compat.Bicubic().bicubic_interpolate(image, scale)
    assert out.shape == (int(9 * scale), int(8 * scale), 2)
    planes = resize_bicubic(image.permute(2, 0, 1), scale_factor=scale, a=-1.0, align="corner")
    assert torch.equal(out, planes.permute(1, 2, 0))


def test_kernel_values() -> None:
    bicubic = compat.Bicubic()
    assert [bicubic.basis_function(x) for x in (0, 0.5, 1, 1.5, -0.5, 2)] == [1, 0.625, 0, -0.125, 0.625, 0]
    assert bicubic.basis_function(0.5, a=-0.5) == 0.5625


def test_numpy_images_and_every_call_form() -> None:
    image = np.arange(64, dtype=np.float32).reshape(8, 8, 1)
    expected = torch.tensor([[0.0, 4], [32, 36]])[..., None]
    tensor = torch.from_numpy(image)
    for out in (
        compat.Bicubic().bicubic_interpolate(image),
        compat.Bicubic()(tensor),
        compat.Bicubic.apply(tensor),
        compat.bicubic(tensor),
    ):
        assert torch.equal(out, expected)


def test_two_dimensional_image_is_named() -> None:
    with pytest.raises(ValueError, match=r"data_in: expected \[H, W, C\], got shape \(8, 8\)"):
        compat.bicubic(torch.ones(8, 8))


def test_the_published_mode_of_the_border() -> None:
    image = np.arange(64.0).reshape(8, 8, 1)
    interpolate = compat.Bicubic().bicubic_interpolate
    assert torch.equal(interpolate(image, 0.4, "edge"), interpolate(image, 0.4))
    with pytest.raises(ValueError, match=r"^mode: expected 'edge', got 'reflect'$"):
        interpolate(image, 0.4, mode="reflect")


def test_arrays_that_torch_cannot_share() -> None:
    """Flipped ones, and read-only ones as PIL's."""
    image = np.arange(64.0).reshape(8, 8, 1)
    image.flags.writeable = False
    interpolate = compat.Bicubic().bicubic_interpolate
    assert torch.equal(interpolate(image[::-1]), interpolate(image[::-1].copy()))
    assert interpolate(image).shape == (2, 2, 1)
