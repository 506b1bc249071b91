"""Folds of speakers or patients, each of which tests once the nets that the others trained."""

from __future__ import annotations

from snnlib.data.checks import check_choice, check_int
from snnlib.data.datasets.splits import SPLITS, Split


class Folds:
    """Which of the sets training, validation and test each fold belongs to.

    Args:
        split: the set that is wanted, or None for all of them together.
        folds: number of folds.
        fold: the fold that tests; None where the published sets are taken.
        val_fold: the fold that validates; None for none.

    Raises:
        ValueError: an option out of its range, or one fold in two sets, or a validation set that no fold gives.
    """

    def __init__(self, split: Split | None, folds: int, fold: int | None, val_fold: int | None) -> None:
        if split is not None:
            check_choice("split", split, SPLITS)
        self.count = check_int("folds", folds, 2)
        self.test = None if fold is None else check_int("fold", fold, 0, folds - 1)
        self.val = None if val_fold is None else check_int("val_fold", val_fold, 0, folds - 1)
        if self.val is not None and self.val == self.test:
            raise ValueError(f"val_fold: expected another fold than fold={fold}, which tests")
        if split == "val" and self.val is None and self.test is not None:
            raise ValueError(
                "val_fold: expected the fold that validates beside split='val' and fold, got None"
            )

    def part(self, fold: int | Split) -> Split:
        """The set of a fold; a published set is itself."""
        if isinstance(fold, str):
            return fold
        return "test" if fold == self.test else "val" if fold == self.val else "train"
