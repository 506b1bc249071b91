"""Deterministic splits where none is published."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

from snnlib.checks import check_choice, warn_caller
from snnlib.data.checks import check_int

Split = Literal["train", "val", "test"]
SPLITS = ("train", "val", "test")


def check_folds(split: Split | None, folds: int, fold: int | None) -> None:
    """Raises ValueError unless there is such a set: a published one, or with a fold that tests one of two."""
    if split is not None:
        check_choice("split", split, *(SPLITS if fold is None else ("train", "test")))
    check_int("folds", folds, 2)
    if fold is not None:
        check_int("fold", fold, 0, folds - 1)


def set_of(group: int | Split, fold: int | None) -> Split:
    """The set of a fold, of which one tests and the others train; a published set is itself."""
    return group if isinstance(group, str) else "test" if group == fold else "train"


def split_by_hash(names: Sequence[str], test_share: float, val_share: float, seed: int) -> list[Split]:
    """Assign the members of one class to test, validation and training set, by a hash of seed and name.

    The order of `names` does not matter, and neither does the machine. Shares are rounded; from three members on, every
    set whose share is above 0 has at least one, and so has the training set.

    Example:
        >>> names = [f"{number}.bin" for number in range(10)]
        >>> split = split_by_hash(names, test_share=0.2, val_share=0.1, seed=0)
        >>> split.count("train"), split.count("val"), split.count("test")
        (7, 1, 2)
    """
    count = len(names)
    order = sorted(
        range(count), key=lambda i: (hashlib.sha256(f"{seed}/{names[i]}".encode()).digest(), names[i])
    )
    sizes = []
    for share in (test_share, val_share):
        size = round(share * count)
        sizes.append(max(size, 1) if share > 0 and count >= 3 else size)
    tests, vals = sizes
    # The training set keeps at least one, at the cost of the larger of the other two.
    while count and tests + vals >= count:
        if tests >= vals:
            tests -= 1
        else:
            vals -= 1
    return _assigned(order, tests, vals)


def split_by_number(names: Sequence[str], test_share: float, val_share: float, seed: int) -> list[Split]:
    """Assign the last by the last number in their names to the test set, those before to the validation set."""
    numbers = [[int(part) for part in re.findall(r"\d+", Path(name).stem)][-1:] for name in names]
    order = sorted(range(len(names)), key=lambda i: (numbers[i], names[i]), reverse=True)
    return _assigned(order, round(test_share * len(names)), round(val_share * len(names)))


def _assigned(order: Sequence[int], tests: int, vals: int) -> list[Split]:
    """The first of the order in the test set, those that follow in the validation set."""
    result: list[Split] = ["train"] * len(order)
    for rank, index in enumerate(order[: tests + vals]):
        result[index] = "test" if rank < tests else "val"
    return result


def some_names(names: Sequence[str]) -> str:
    """The first few of a list of names, and how many more there are, for messages."""
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


# Beginnings of the names of files for people, which are plainly no samples; and files of Markdown.
_NOT_DATA = ("readme", "license", "licence", "changelog", "citation", "notice", "authors")
_said: set[str] = set()


def warn_once(text: str) -> None:
    """Warns of a data set's files, once in a process: a command opens its folder for every split."""
    if text not in _said:
        _said.add(text)
        warn_caller(text)


def warn_of_foreign(where: object, names: Iterable[str], why: str) -> None:
    """Names files that are left out, but for those that are plainly no data.

    Args:
        where: the folder or file.
        names: of the files, with folders before them.
        why: the cause, to follow a colon.
    """
    bases = {name: name.rstrip("/").rpartition("/")[2].lower() for name in names}
    odd = [
        name for name, base in bases.items() if not base.startswith(_NOT_DATA) and not base.endswith(".md")
    ]
    if odd:
        warn_once(f"{where}: {some_names(odd)} left out: {why}")
