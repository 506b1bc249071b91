"""Bicubic down-scaling of one image under the published names."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from snnlib import functional
from snnlib.vision.resize import cubic_kernel

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
