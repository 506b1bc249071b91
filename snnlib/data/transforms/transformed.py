"""A data set that applies further transforms to its samples at each access."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.utils.data import Dataset

from snnlib.data.checks import check_dataset

__all__ = ["Transformed"]


class Transformed(Dataset[tuple[Any, Any]]):
    """Applies `transforms`, first to last, to the samples of a data set of `(sample, label)` pairs.

    Use it around a `FrameCache`, whose own transform runs only once per sample, around one part of a `random_split`,
    or for several transforms. Labels stay unchanged. Nothing is cached.

    Args:
        dataset: has `__len__` and `__getitem__`, which returns a pair.
        transforms: callables; picklable if `DataLoader` workers are spawned.

    Raises:
        TypeError: `dataset` is not a data set, or a transform is not callable.

    Example:
        >>> data = [(3, "three"), (4, "four")]
        >>> squares = Transformed(data, lambda number: number**2, str)
        >>> len(squares), squares[1]
        (2, ('16', 'four'))
    """

    def __init__(self, dataset: Any, *transforms: Callable[[Any], Any]) -> None:
        check_dataset("dataset", dataset)
        for transform in transforms:
            if not callable(transform):
                raise TypeError(f"transforms: expected callables, got {transform!r}")
        self.dataset, self.transforms = dataset, transforms

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        sample, label = self.dataset[index]
        for transform in self.transforms:
            sample = transform(sample)
        return sample, label

    def __repr__(self) -> str:
        return f"Transformed({', '.join(map(repr, (self.dataset, *self.transforms)))})"
