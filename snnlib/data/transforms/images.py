"""Images as sequences: currents, spikes, rows and pixels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from snnlib import encoding
from snnlib.checks import check_choice
from snnlib.data.checks import check_int

__all__ = ["ToSequence"]

Encoding = Literal["current", "rate", "latency", "rows", "pixels"]
ENCODINGS: tuple[str, ...] = get_args(Encoding)


@dataclass(frozen=True, kw_only=True)
class ToSequence:
    """Converts an image `[C, H, W]` to a sequence `[T, C, H, W]`, or a batch `[N, C, H, W]` to `[T, N, C, H, W]`.

    Bytes are divided by 255; floating-point images stay unchanged. Encodings:

    - `"current"`: the image as amplitudes at each of T steps, `(x - mean) / std`; the steps share memory;
    - `"rate"`: at each step a spike with the brightness as its probability, `snnlib.encoding.rate`;
    - `"latency"`: one spike per pixel, the earlier the brighter, `snnlib.encoding.latency`;
    - `"rows"`: one row per step, T = H, `[T, C W]` (`[T, N, C W]`), `(x - mean) / std`;
    - `"pixels"`: one pixel per step, row by row, T = H W, `[T, C]`, `(x - mean) / std`. With `permutation`, a seed, in
      an order that is drawn once from it: permuted sequential MNIST.

    Args:
        encoding: as above.
        time_steps: length T, for `"current"`, `"rate"` and `"latency"`. Default 5.
        mean, std: mean and standard deviation of the pixels, one number or one per channel. Default 0 and 1: pixels
            stay unchanged. MNIST's are 0.1307 and 0.3081.
        permutation: seed of the order of pixels; None: row by row.
        dtype: of the sequence.

    Raises:
        TypeError, ValueError: an option out of its range; `mean`, `std` or `permutation` with an encoding without
            them; an image of fewer than 3 or more than 4 dimensions.

    Source: permuted pixels: Le, Jaitly and Hinton, "A Simple Way to Initialize Recurrent Networks of Rectified Linear
    Units", 2015.

    >>> import torch
    >>> from snnlib.data import ToSequence
    >>> image = torch.arange(12, dtype=torch.uint8).reshape(1, 3, 4)
    >>> ToSequence(time_steps=5)(image).shape, ToSequence(encoding="rows")(image).shape
    (torch.Size([5, 1, 3, 4]), torch.Size([3, 4]))
    >>> (255 * ToSequence(encoding="pixels", permutation=0)(image)).round().int().flatten().tolist()
    [8, 0, 5, 9, 7, 4, 2, 10, 3, 1, 11, 6]
    """

    encoding: Encoding = "current"
    time_steps: int = 5
    mean: float | Sequence[float] = 0.0
    std: float | Sequence[float] = 1.0
    permutation: int | None = None
    dtype: torch.dtype = torch.float32

    def __post_init__(self) -> None:
        check_choice("encoding", self.encoding, *ENCODINGS)
        check_int("time_steps", self.time_steps, 1)
        if self.permutation is not None:
            check_int("permutation", self.permutation, 0)
            if self.encoding != "pixels":
                raise ValueError(
                    f"permutation: expected None for {self.encoding}, as it orders pixels, got {self.permutation}"
                )
        for value in torch.as_tensor(self.std, dtype=torch.float64).flatten().tolist():
            if not value > 0:
                raise ValueError(f"std: expected numbers above 0, got {self.std}")
        if self.encoding in ("rate", "latency") and (self.mean, self.std) != (0.0, 1.0):
            raise ValueError(
                f"mean, std: expected 0 and 1 for {self.encoding}, which takes pixels from 0 to 1, got {self.mean} and "
                f"{self.std}"
            )

    def __call__(self, image: Tensor) -> Tensor:
        if not isinstance(image, Tensor):
            raise TypeError(f"image: expected a torch.Tensor, got {type(image).__name__}")
        if image.dim() not in (3, 4):
            raise ValueError(f"image: expected [C, H, W] or [N, C, H, W], got shape {tuple(image.shape)}")
        x = image.to(self.dtype) if image.is_floating_point() else image.to(self.dtype) / 255
        if self.encoding in ("rate", "latency"):
            return getattr(encoding, self.encoding)(x, self.time_steps)  # type: ignore[no-any-return]
        x = (x - self._per_channel("mean", x)) / self._per_channel("std", x)
        if self.encoding == "current":
            return x.expand(self.time_steps, *x.shape)
        if self.encoding == "rows":
            # [H, (N,) C W]
            return x.movedim(-2, 0).flatten(-2)
        pixels = x.flatten(-2).movedim(-1, 0)
        if self.permutation is None:
            return pixels
        generator = torch.Generator().manual_seed(self.permutation)
        return pixels[torch.randperm(len(pixels), generator=generator).to(x.device)]

    def _per_channel(self, name: str, x: Tensor) -> Tensor:
        values = torch.as_tensor(getattr(self, name), dtype=x.dtype, device=x.device)
        if values.dim() and values.shape != (x.shape[-3],):
            raise ValueError(
                f"{name}: expected one number or {x.shape[-3]}, one per channel, got {getattr(self, name)}"
            )
        return values.reshape(-1, 1, 1)
