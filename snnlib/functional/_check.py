"""Argument checks: each error names the argument, what was expected and what came."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral

import torch
from torch import Tensor


def check_floating(name: str, tensor: Tensor) -> None:
    """Raise TypeError unless `tensor` is a floating tensor."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{name}: expected a torch.Tensor, got {type(tensor).__name__}")
    if not tensor.is_floating_point():
        raise TypeError(f"{name}: expected a floating dtype, got {tensor.dtype}; convert it with .float()")


def check_rank(name: str, tensor: Tensor, layout: str, *, at_least: int = 0, exactly: int = 0) -> None:
    """Raise ValueError unless the number of dimensions fits `layout`, which the message shows."""
    if tensor.dim() < at_least or (exactly and tensor.dim() != exactly):
        raise ValueError(f"{name}: expected {layout}, got shape {tuple(tensor.shape)}")


def check_device(name: str, tensor: Tensor, like: Tensor) -> None:
    """Raise ValueError unless both tensors are on one device."""
    if tensor.device != like.device:
        raise ValueError(f"{name}: expected a tensor on {like.device}, got one on {tensor.device}")


def check_dtype(name: str, tensor: Tensor, like: Tensor) -> None:
    """Raise TypeError unless both tensors have one dtype."""
    if tensor.dtype != like.dtype:
        raise TypeError(f"{name}: expected {like.dtype}, got {tensor.dtype}")


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
