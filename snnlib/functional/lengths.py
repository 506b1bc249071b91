"""Batches of sequences of different lengths: which steps belong to a sample, and which are padding."""

from __future__ import annotations

import torch
from torch import Tensor

from snnlib.backends.values import require
from snnlib.functional._check import check_device


def check_lengths(lengths: Tensor, steps: int, batch: int, like: Tensor) -> Tensor:
    """The number of steps of each sample as int64, on the device of `like`.

    Raises:
        TypeError: no tensor of integers.
        ValueError: not one number per sample, or one outside 0 to `steps`.
    """
    if not isinstance(lengths, Tensor):
        raise TypeError(f"lengths: expected a tensor of integers, got {type(lengths).__name__}")
    if lengths.is_floating_point() or lengths.is_complex() or lengths.dtype == torch.bool:
        raise TypeError(f"lengths: expected integers, got {lengths.dtype}")
    if tuple(lengths.shape) != (batch,):
        raise ValueError(
            f"lengths: expected shape {(batch,)}, one number of steps per sample, got {tuple(lengths.shape)}"
        )
    check_device("lengths", lengths, like)
    numbers = lengths.to(torch.int64)

    def error() -> ValueError:
        least, most = (int(bound) for bound in numbers.aminmax())
        return ValueError(f"lengths: expected numbers from 0 to {steps} steps, got {least} to {most}")

    require((numbers >= 0) & (numbers <= steps), error)
    return numbers


def valid_steps(lengths: Tensor, steps: int, *, batch_first: bool = False) -> Tensor:
    """True where a step belongs to its sample: `[T, N]`, `[N, T]` with `batch_first`, from the lengths `[N]`.

    >>> import torch, snnlib
    >>> snnlib.functional.valid_steps(torch.tensor([1, 3]), 3).int().tolist()
    [[1, 1], [0, 1], [0, 1]]
    """
    numbers = torch.arange(steps, device=lengths.device)
    return numbers < lengths[:, None] if batch_first else numbers[:, None] < lengths


def without_padding(x: Tensor, lengths: Tensor, time_dim: int) -> Tensor:
    """The sequences with zeros, and gradients of zero, in the steps that belong to no sample."""
    valid = valid_steps(lengths, x.shape[time_dim], batch_first=bool(time_dim))
    return torch.where(valid.reshape(*valid.shape, *[1] * (x.dim() - 2)), x, torch.zeros_like(x))
