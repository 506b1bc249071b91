"""Augmentation of event frames, `[T, C, H, W]`."""

from __future__ import annotations

import functools
import sys
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from snnlib.data.checks import check_number
from snnlib.data.transforms.options import AugmentOptions, Matrix, draw_window, sample_generator

__all__ = ["AugmentFrames"]

# Points along each axis whose displacement is drawn: a stroke of a digit bends once or twice, not more.
_WARP_POINTS = 5


@dataclass(frozen=True, kw_only=True)
class AugmentFrames(AugmentOptions):
    """Augments the frames `[T, C, H, W]` of a sample at random; cheaper than `AugmentEvents`, for cached frames.

    Frames move as events do in `AugmentEvents`, but each new pixel takes the value of the nearest old pixel, so that
    spikes stay 0 or 1 and counts whole; pixels from outside are 0. Without `rotate` this equals moving the events
    before binning, and one seed gives the same motion to both. `drop` removes elements of the frames, with their whole
    counts, instead of single events.

    Draws and repeatability are those of `AugmentEvents`. A batch `[T, N, C, H, W]` raises an error, since all samples
    would move alike.

    Args:
        shift: as in `AugmentEvents`, and so are `rotate`, `flip_horizontal` and `flip_vertical`.
        flip_polarity: probability that the two channels change places in the whole sample.
        drop: probability of each element to be set to 0, independently.
        drop_time: share of the T steps, rounded, that are set to 0, in one run.
        drop_area: as in `AugmentEvents`.
        warp: standard deviation in pixels of a smooth random displacement along x and along y. It is drawn at 5 x 5
            points of the frame, corners included, and cubic in between; the same at all steps.

    Raises:
        TypeError: an argument of the wrong type; `frames` is not a tensor.
        ValueError: an argument out of range; `frames` of a rank other than 4, or with `flip_polarity` not 2 channels.

    Source: warping is the elastic distortion of Simard et al., "Best Practices for Convolutional Neural Networks
    Applied to Visual Document Analysis", ICDAR 2003, on a coarser grid.

    Example:
        >>> import torch
        >>> from snnlib.data import EventDigits, FrameCache, ToFrames, Transformed
        >>> def training_set():
        ...     return Transformed(FrameCache(EventDigits(transform=ToFrames())), AugmentFrames(shift=2, rotate=10))

        >>> frames = torch.eye(3).expand(30, 2, 3, 3)
        >>> AugmentFrames(flip_horizontal=1.0)(frames)[0, 0].int().tolist()
        [[0, 0, 1], [0, 1, 0], [1, 0, 0]]
    """

    warp: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("warp", self.warp, 0, sys.float_info.max, "finite pixels >= 0")

    def __call__(self, frames: Tensor) -> Tensor:
        self._check(frames)
        rng = sample_generator()
        # Drawn in the order of AugmentEvents, so that one seed moves both alike.
        motion = self._draw_motion(rng)
        height, width = frames.shape[-2:]
        warp = draw_warp(rng, height, width, self.warp) if self.warp > 0 else None
        moved = move_frames(frames, *motion, warp)
        if rng.random() < self.flip_polarity:
            moved = moved.flip(1)
        rows, columns = self._draw_area(rng, height, width)
        moved[..., rows, columns] = 0
        moved[draw_window(rng, len(moved), self.drop_time)] = 0
        if self.drop > 0:
            gone = rng.random(tuple(moved.shape), dtype=np.float32) < self.drop
            moved.masked_fill_(torch.from_numpy(gone), 0)
        return moved

    def _check(self, frames: object) -> None:
        if not isinstance(frames, Tensor):
            raise TypeError(f"frames: expected a tensor [T, C, H, W], got {type(frames).__name__}")
        if frames.dim() != 4:
            raise ValueError(
                f"frames: expected those of one sample, [T, C, H, W], got shape {tuple(frames.shape)}"
            )
        if self.flip_polarity > 0 and frames.shape[1] != 2:
            raise ValueError(
                f"frames must have the two channels OFF and ON for flip_polarity, got shape {tuple(frames.shape)}"
            )


def draw_warp(rng: np.random.Generator, height: int, width: int, size: float) -> npt.NDArray[np.float64]:
    """Draws smooth displacements `[2, H, W]` along x and y, of standard deviation `size` at the grid points."""
    points = rng.normal(0, size, (2, _WARP_POINTS, _WARP_POINTS))
    # Two small products take a fifth of the time of torch's interpolation, which does not know that the sizes repeat.
    return _cubic(height) @ points @ _cubic(width).T


@functools.cache
def _cubic(size: int) -> npt.NDArray[np.float64]:
    """`[size, points]`: cubic interpolation along a line, ends on ends."""
    points = torch.eye(_WARP_POINTS, dtype=torch.float64)[None, None]
    lines = torch.nn.functional.interpolate(points, (size, _WARP_POINTS), mode="bicubic", align_corners=True)
    matrix: npt.NDArray[np.float64] = lines[0, 0].numpy()
    return matrix


@functools.cache
def _pixels(height: int, width: int) -> npt.NDArray[np.float64]:
    """Positions `(x, y)` of all pixels, row by row, seen from the centre: `[2, H * W]`."""
    y, x = np.indices((height, width)).reshape(2, -1)
    return np.stack((x - (width - 1) / 2, y - (height - 1) / 2))


def move_frames(
    frames: Tensor,
    matrix: Matrix,
    shift: npt.NDArray[np.int64],
    warp: npt.NDArray[np.float64] | None = None,
) -> Tensor:
    """Returns frames `[..., H, W]` whose pixel at `matrix (p - c) + c + shift` is the old pixel at p, nearest.

    With `warp` `[2, H, W]` the pixel at q is the one that would be at `q + warp[q]`.
    """
    height, width = frames.shape[-2:]
    centre = np.array([[width - 1], [height - 1]]) / 2
    position = _pixels(height, width) - shift[:, None]
    if warp is not None:
        position += warp.reshape(2, -1)
    # The inverse of a flip and a rotation is the transpose.
    old_x, old_y = np.rint(matrix.T @ position + centre).astype(np.int64)
    outside = (old_x < 0) | (old_x >= width) | (old_y < 0) | (old_y >= height)
    # Pixels from outside read an extra cell behind the last, which is 0.
    source = torch.from_numpy(np.where(outside, height * width, old_y * width + old_x))
    cells = torch.nn.functional.pad(frames.flatten(-2), (0, 1))
    # Here gather is several times faster than index_select.
    return cells.gather(-1, source.expand(*cells.shape[:-1], -1)).view(frames.shape)
