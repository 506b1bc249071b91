"""Batches that contain each sample several times, each time augmented differently."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from snnlib.data.checks import check_int
from snnlib.data.frames import stack_time_first

__all__ = ["BatchAugmentation"]


class BatchAugmentation:
    """Collates N samples into a batch of `N * copies` differently augmented samples.

    The copies of a sample are neighbours in the batch and share its label. The gradient of a step is their mean and
    varies less than with one copy; the step takes `copies` times as long.

    Args:
        augment: function from the frames of a sample, `[T, ...]`, to new frames, such as `AugmentFrames`; it must not
            change its input, from which all copies are made. Picklable if `DataLoader` workers are spawned.
        copies: number of copies of each sample; 1 augments without repetition.

    Raises:
        TypeError: `augment` cannot be called or `copies` is not an integer.
        ValueError: `copies` is below 1; an invalid batch, see `stack_time_first`.

    Source: Hoffer et al., "Augment Your Batch: Improving Generalization Through Instance Repetition", CVPR 2020.

    Example:
        >>> import torch
        >>> from torch.utils.data import DataLoader
        >>> from snnlib.data import AugmentFrames
        >>> samples = [(torch.eye(34).expand(30, 2, 34, 34), 3), (torch.ones(30, 2, 34, 34), 8)]
        >>> loader = DataLoader(samples, 2, collate_fn=BatchAugmentation(AugmentFrames(rotate=10), copies=3))
        >>> frames, labels = next(iter(loader))
        >>> frames.shape, labels
        (torch.Size([30, 6, 2, 34, 34]), tensor([3, 3, 3, 8, 8, 8]))
    """

    def __init__(self, augment: Callable[[Tensor], Tensor], copies: int) -> None:
        if not callable(augment):
            raise TypeError(f"augment: expected a callable, got {augment!r}")
        self.augment, self.copies = augment, check_int("copies", copies, 1)

    def __call__(self, batch: Sequence[tuple[Tensor, int]]) -> tuple[Tensor, Tensor]:
        return stack_time_first(
            [(self.augment(frames), label) for frames, label in batch for _ in range(self.copies)]
        )

    def __repr__(self) -> str:
        return f"BatchAugmentation({self.augment!r}, copies={self.copies})"
