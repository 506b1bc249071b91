"""Superpixel pooling as a layer; equation and options in `snnlib.functional`."""

from __future__ import annotations

from torch import Tensor, nn

from snnlib.vision.superpixel import superpixel_avg_pool2d

__all__ = ["SuperpixelAvgPool2d"]


class SuperpixelAvgPool2d(nn.Module):
    """Mean of each superpixel: `[N, C, H, W]` or `[T, N, C, H, W]` and labels to `[..., C, K]`.

    See `snnlib.functional.superpixel_avg_pool2d`, which lists equation, shapes and errors. Superpixels without pixels
    give 0.

    Args:
        num_segments: number of superpixels K. Default `labels.max() + 1` of each batch.
        ignore_index: label of pixels that belong to no superpixel.

    >>> import torch, snnlib
    >>> pool = snnlib.SuperpixelAvgPool2d(num_segments=4)
    >>> pool(torch.rand(10, 2, 3, 6, 6), torch.randint(0, 4, (2, 6, 6))).shape
    torch.Size([10, 2, 3, 4])
    """

    def __init__(self, num_segments: int | None = None, ignore_index: int | None = None) -> None:
        super().__init__()
        self.num_segments = num_segments
        self.ignore_index = ignore_index

    def forward(self, image: Tensor, labels: Tensor) -> Tensor:
        """Means of the superpixels."""
        return superpixel_avg_pool2d(image, labels, self.num_segments, ignore_index=self.ignore_index)

    def extra_repr(self) -> str:
        """Segments."""
        return f"num_segments={self.num_segments}, ignore_index={self.ignore_index}"
