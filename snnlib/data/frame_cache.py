"""Caches frames in memory, so that epochs after the first read no files and bin no events."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.data import Dataset

from snnlib.data.checks import check_dataset, check_index, check_int
from snnlib.data.progress import progress_bar

__all__ = ["FrameCache"]


class FrameCache(Dataset[tuple[torch.Tensor, int]]):
    """Wraps a data set of `(frames, label)` pairs and caches all frames in memory as uint8.

    Memory: one byte per cell, so 69 kB per sample for `[30, 2, 34, 34]`: 100 MB for the 1437 training samples of
    `EventDigits`, 4.2 GB for the 60000 of N-MNIST. It is reserved at the first access and occupied as samples fill it.
    The wrapped data set's transform runs once per sample, so a random transform has no further effect.

    With DataLoader workers fill the cache first (`preload=True` or `preload()`): each worker has its own copy, and
    samples that a worker adds are lost when it ends.

    Args:
        dataset: has `__len__` and `__getitem__`, which returns a tensor of whole numbers 0..255 (`ToFrames`) and an
            integer label. All tensors have one shape.
        preload: whether to fill the cache now instead of at first access.
        progress: whether to show a progress bar while preloading.
        dtype: dtype of the returned frames; default float32, as layers expect.

    Raises:
        TypeError: a sample that is not a `(tensor, int)` pair.
        ValueError: a sample in another shape than the first, or with values that uint8 cannot hold.

    Example:
        >>> import torch
        >>> cache = FrameCache([(torch.ones(3, 2, 4, 4), 7), (torch.zeros(3, 2, 4, 4), 1)])
        >>> frames, label = cache[0]
        >>> frames.shape, frames.dtype, label, cache.nbytes
        (torch.Size([3, 2, 4, 4]), torch.float32, 7, 192)
    """

    def __init__(
        self,
        dataset: Any,
        *,
        preload: bool = False,
        progress: bool = True,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        check_dataset("dataset", dataset)
        if not isinstance(dtype, torch.dtype):
            raise TypeError(f"dtype: expected a torch dtype, got {dtype!r}")
        self.dataset, self.dtype = dataset, dtype
        self._frames: torch.Tensor | None = None
        self._labels = torch.zeros(len(dataset), dtype=torch.int64)
        self._filled = torch.zeros(len(dataset), dtype=torch.bool)
        if preload:
            self.preload(progress)

    @property
    def nbytes(self) -> int:
        """Bytes of the cached frames; 0 before the first access."""
        return 0 if self._frames is None else self._frames.nbytes

    def preload(self, progress: bool = True) -> None:
        """Read every sample that is not in memory yet."""
        with progress_bar(len(self), "caching frames", "sample", progress) as done:
            for index in range(len(self)):
                if not self._filled[index]:
                    self._fill(index)
                done()

    def __len__(self) -> int:
        return len(self._filled)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        number = check_index(index, len(self)) % len(self)
        if not self._filled[number]:
            self._fill(number)
        assert self._frames is not None
        # A copy even where dtype is uint8: a caller's in-place edit must not reach the cache.
        return self._frames[number].to(self.dtype, copy=True), int(self._labels[number])

    def __repr__(self) -> str:
        filled = int(self._filled.sum())
        return f"FrameCache({self.dataset!r}, {filled} of {len(self)} samples in memory, {self.nbytes} bytes)"

    def _fill(self, index: int) -> None:
        frames, label = self.dataset[index]
        if not isinstance(frames, torch.Tensor):
            raise TypeError(
                f"dataset[{index}] must give a tensor first (transform=ToFrames()), "
                f"got {type(frames).__name__}"
            )
        packed = frames.to(torch.uint8)
        odd = packed.to(frames.dtype) != frames
        if bool(odd.any()):
            got = float(frames[odd][0])
            raise ValueError(f"dataset[{index}] must hold whole numbers in 0..255, got {got}")
        if self._frames is None:
            self._frames = torch.empty((len(self), *frames.shape), dtype=torch.uint8)
        if frames.shape != self._frames.shape[1:]:
            raise ValueError(
                f"dataset[{index}] must have shape {tuple(self._frames.shape[1:])}, got {tuple(frames.shape)}"
            )
        self._frames[index] = packed
        number = label.item() if isinstance(label, torch.Tensor) and label.numel() == 1 else label
        self._labels[index] = check_int(f"dataset[{index}] label", number, -(2**63))
        # Last, so that an error above leaves the sample unread.
        self._filled[index] = True
