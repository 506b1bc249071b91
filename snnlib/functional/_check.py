"""Argument checks of the public functions; those that the ops need as well are in `snnlib.ops.checks`."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral

import torch
from torch import Tensor

from snnlib.ops.checks import check_device, check_dtype, check_floating, check_rank

__all__ = [
    "as_sizes",
    "check_count",
    "check_device",
    "check_dtype",
    "check_floating",
    "check_integer_labels",
    "check_labels",
    "check_rank",
]


def check_integer_labels(target: Tensor) -> None:
    """Raise TypeError unless `target` is a tensor of integers."""
    if not isinstance(target, Tensor):
        raise TypeError(f"target: expected a torch.Tensor, got {type(target).__name__}")
    if target.is_floating_point() or target.is_complex() or target.dtype == torch.bool:
        raise TypeError(f"target: expected integer labels, got {target.dtype}")


def check_labels(target: Tensor, scores: Tensor) -> None:
    """Raise unless `target` has one label in range for every row of `scores` `[..., classes]`.

    Values are not looked at under `torch.compile`.
    """
    check_integer_labels(target)
    rows, classes = tuple(scores.shape[:-1]), scores.shape[-1]
    if tuple(target.shape) != rows:
        what = "one label per sample" if len(rows) == 1 else "one label per step and sample"
        raise ValueError(f"target: expected shape {rows}, {what}, got {tuple(target.shape)}")
    check_device("target", target, scores)
    if torch.compiler.is_compiling() or target.numel() == 0:
        return
    # As integers of Python: the number of classes may not fit into the dtype of labels.
    low, high = (int(bound) for bound in target.aminmax())
    if low < 0 or high >= classes:
        raise ValueError(f"target: expected labels from 0 to {classes - 1}, got {low} to {high}")


def check_count(name: str, value: int) -> None:
    """Raise ValueError unless `value` is an integer >= 1, numpy's among them."""
    if not isinstance(value, Integral) or value < 1:
        raise ValueError(f"{name}: expected an integer >= 1, got {value!r}")


def as_sizes(name: str, value: int | Sequence[int], dims: int, *, minimum: int) -> tuple[int, ...]:
    """One integer per axis from an integer or a sequence, each at least `minimum`."""
    sizes = tuple(value) if isinstance(value, Sequence) else (value,) * dims
    valid = len(sizes) == dims and all(
        isinstance(size, (int, torch.SymInt)) and size >= minimum for size in sizes
    )
    if not valid:
        raise ValueError(f"{name}: expected an integer >= {minimum} or {dims} of them, got {value!r}")
    return sizes
