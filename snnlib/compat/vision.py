"""Superpixels, points that share a voxel, bicubic resizing and heat maps under the published names."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from snnlib import functional
from snnlib.vision.resize import cubic_kernel


class AveSupPixPoolFunction:
    """`AveSupPixPoolFunction.apply(img, spx)`: means of img `[N, C, H, W]` over superpixels spx `[N, H, W]`.

    The library's own: `functional.superpixel_avg_pool2d`. K is the largest label of the batch plus 1; superpixels
    without a pixel give 0.

    >>> import torch, snnlib
    >>> img, spx = torch.tensor([[[[1.0, 2], [3, 4]]]]), torch.tensor([[[0, 1], [1, 1]]])
    >>> snnlib.compat.AveSupPixPoolFunction.apply(img, spx).tolist()
    [[[1.0, 3.0]]]
    """

    @staticmethod
    def apply(img: Tensor, spx: Tensor) -> Tensor:
        """Means `[N, C, K]`."""
        return functional.superpixel_avg_pool2d(img, spx.long())


class AveSupPixPool(nn.Module):
    """`AveSupPixPoolFunction` as a module; the library's own is `SuperpixelAvgPool2d`."""

    def forward(self, img: Tensor, spx: Tensor) -> Tensor:
        """Means `[N, C, K]`."""
        return AveSupPixPoolFunction.apply(img, spx)


class SupPixUnpool(nn.Module):
    """Every pixel gets its superpixel's value: pooled `[N, C, K]`, spx `[N, H, W]` to `[N, C, H, W]`.

    The library's own: `superpixel_unpool`.

    >>> import torch, snnlib
    >>> spx = torch.tensor([[[0, 1], [1, 2]]])
    >>> snnlib.compat.SupPixUnpool()(torch.tensor([[[5.0, 7.0, 9.0]]]), spx).tolist()
    [[[[5.0, 7.0], [7.0, 9.0]]]]
    """

    def forward(self, pooled: Tensor, spx: Tensor) -> Tensor:
        """Image of the pooled values."""
        return functional.superpixel_unpool(pooled, spx.long())


class VoxelsSumming:
    """`VoxelsSumming.apply(x, geometry, ranks)`: sums of the rows of x `[P, C]` that share a rank.

    The library's own: `segment_sum`. Ranks may come in any order; sums come in ascending order of rank.

    >>> import torch, snnlib
    >>> x, ranks = torch.tensor([[1.0], [2], [3]]), torch.tensor([2, 2, 5])
    >>> geometry = torch.tensor([[0, 0, 2], [0, 0, 2], [0, 0, 5]])
    >>> sums, voxels = snnlib.compat.VoxelsSumming.apply(x, geometry, ranks)
    >>> sums.tolist(), voxels.tolist()
    ([[3.0], [3.0]], [[0, 0, 2], [0, 0, 5]])
    """

    @staticmethod
    def apply(x: Tensor, geometry: Tensor, ranks: Tensor) -> tuple[Tensor, Tensor]:
        """Sums `[S, C]` and the geometry `[S, ...]` of each rank's last row, which gets no gradient."""
        if len(geometry) != len(x):
            raise ValueError(f"geometry: expected {len(x)} rows, one per row of x, got {len(geometry)}")
        sums, distinct = functional.segment_sum(x, ranks)
        segments = torch.searchsorted(distinct, ranks.contiguous())
        rows = torch.arange(len(ranks), device=ranks.device)
        last = rows.new_zeros(len(sums)).scatter_reduce(0, segments, rows, "amax")
        return sums, geometry.detach()[last]


QuickCumsum = VoxelsSumming


# The published kernel; Pillow has -0.5, OpenCV and torch -0.75.
_A = -1.0


class Bicubic:
    """`Bicubic()(image)` or `Bicubic.apply(image)`: an image `[H, W, C]` at a quarter of its size.

    The library's own: `resize_bicubic`. At whole ratios the published alignment takes every fourth pixel as it is;
    `resize_bicubic(..., antialias=True)` is the choice for down-scaling.

    >>> import torch, snnlib
    >>> image = torch.arange(64.0).reshape(8, 8, 1)
    >>> snnlib.compat.bicubic(image).flatten().tolist()
    [0.0, 4.0, 32.0, 36.0]
    """

    def __call__(self, input: Tensor) -> Tensor:
        """The image at a quarter of its size, differentiable."""
        return self.bicubic_interpolate(input)

    @staticmethod
    def apply(input: Tensor) -> Tensor:
        """The image at a quarter of its size, differentiable."""
        return Bicubic()(input)

    @staticmethod
    def basis_function(x: float, a: float = _A) -> float:
        """The cubic kernel at distance x."""
        return float(cubic_kernel(torch.tensor(x, dtype=torch.float64), a))

    def bicubic_interpolate(
        self, data_in: Tensor | np.ndarray, scale: float = 1 / 4, mode: str = "edge"
    ) -> Tensor:
        """`[H, W, C]` to `[int(H scale), int(W scale), C]`, edges replicated."""
        if mode != "edge":
            raise ValueError(f"mode: expected 'edge', got {mode!r}")
        # A copy of an array, as torch takes neither read-only ones nor negative strides.
        image = data_in if isinstance(data_in, Tensor) else torch.from_numpy(data_in.copy())
        if image.dim() != 3:
            raise ValueError(f"data_in: expected [H, W, C], got shape {tuple(image.shape)}")
        if not image.is_floating_point():
            image = image.float()
        planes = functional.resize_bicubic(image.movedim(2, 0), scale_factor=scale, a=_A, align="corner")
        return planes.movedim(0, 2)


def bicubic(input: Tensor) -> Tensor:
    """`Bicubic()(input)`."""
    return Bicubic()(input)


class ViTGradCAM:
    """Grad-CAM of a transformer's last block: `ViTGradCAM(model).generate_heatmap(images)`.

    The library's own: `explain.GradCAM`, for any layer and net. The layer looked at is the first norm of the last
    block, `model.blocks[-1].norm1`, where there is one, else the block: behind the last attention a head that reads the
    class token has no gradient at the patches.

    Args:
        model: a module with `blocks`, images `[N, C, H, W]` in, class scores `[N, K]` out.
        target_layer: another layer of it with tokens `[N, L, D]`.

    Raises:
        TypeError: the model has no `blocks`, and no target layer was given.
    """

    def __init__(self, model: nn.Module, target_layer: nn.Module | None = None) -> None:
        if target_layer is None:
            blocks = getattr(model, "blocks", None)
            if not isinstance(blocks, (nn.ModuleList, nn.Sequential)) or len(blocks) == 0:
                raise TypeError(
                    f"model: expected a transformer with `blocks`, got {type(model).__name__}; give target_layer"
                )
            target_layer = getattr(blocks[-1], "norm1", blocks[-1])
        self.model, self.target_layer = model, target_layer

    def register_hooks(self) -> None:
        """Nothing to do: hooks live as long as a call of `generate_heatmap`."""

    def generate_heatmap(self, input_image: Tensor, target_class: int | Tensor | None = None) -> Tensor:
        """Maps `[N, 1, H, W]` in 0..1, of the class asked for or each image's own answer."""
        # Heat maps belong to another part, which no other published name needs.
        from snnlib.explain import GradCAM  # noqa: PLC0415

        with GradCAM(self.model, self.target_layer) as cam:
            return cam(input_image, target_class).unsqueeze(1)
