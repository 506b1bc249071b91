"""Bicubic resizing as a module; equation and options in `snnlib.functional.resize_bicubic`."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from snnlib.vision.resize import Align, resize_bicubic

__all__ = ["BicubicResize2d"]


class BicubicResize2d(nn.Module):
    """Frames `[..., H, W]` resized by cubic interpolation: see `snnlib.functional.resize_bicubic`.

    >>> import torch, snnlib
    >>> shrink = snnlib.BicubicResize2d(scale_factor=0.5, a=-0.5, antialias=True)
    >>> shrink(torch.ones(3, 1, 2, 34, 34)).shape
    torch.Size([3, 1, 2, 17, 17])
    """

    def __init__(
        self,
        size: int | Sequence[int] | None = None,
        scale_factor: float | Sequence[float] | None = None,
        *,
        a: float = -0.75,
        antialias: bool = False,
        align: Align = "half_pixel",
    ) -> None:
        super().__init__()
        self.size, self.scale_factor = size, scale_factor
        self.a, self.antialias, self.align = a, antialias, align

    def forward(self, x: Tensor) -> Tensor:
        """Resized frames."""
        return resize_bicubic(
            x, self.size, self.scale_factor, a=self.a, antialias=self.antialias, align=self.align
        )

    def extra_repr(self) -> str:
        """Options, for `print(net)`."""
        target = f"size={self.size}" if self.size is not None else f"scale_factor={self.scale_factor}"
        return f"{target}, a={self.a:g}, antialias={self.antialias}, align={self.align!r}"
