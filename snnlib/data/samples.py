"""Base of data sets of samples and labels: access by number, and a transform of each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.utils.data import Dataset

from snnlib.data.checks import check_index, check_transforms

Transform = Callable[[Any], Any]


class Samples(Dataset[tuple[Any, Any]]):
    """Base of data sets of `(sample, label)` pairs. A subclass sets `targets`, and reads a sample in `sample`.

    Args:
        transform: maps the sample at each access.
        target_transform: maps the label.

    Attributes:
        targets: labels, int64 `[S]`.

    Raises:
        TypeError: a transform that is not callable.
    """

    targets: Any

    def __init__(self, transform: Transform | None, target_transform: Transform | None) -> None:
        check_transforms(transform, target_transform)
        self.transform, self.target_transform = transform, target_transform

    def sample(self, number: int) -> Any:
        """The sample without its transform."""
        raise NotImplementedError

    def label(self, number: int) -> Any:
        """The label without its transform."""
        return int(self.targets[number])

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        number = check_index(index, len(self)) % len(self)
        return self.transformed(self.sample(number), self.label(number))

    def transformed(self, sample: Any, label: Any) -> tuple[Any, Any]:
        """Both, mapped."""
        sample = sample if self.transform is None else self.transform(sample)
        return sample, label if self.target_transform is None else self.target_transform(label)
