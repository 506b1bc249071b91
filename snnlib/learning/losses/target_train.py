"""Wanted spike trains made from labels."""

from __future__ import annotations

import torch
from torch import Tensor

from snnlib.checks import check_integer_labels, check_labels


def target_spike_train(
    target: Tensor,
    steps: int,
    classes: int,
    *,
    desired: int,
    undesired: int,
    batch_first: bool = False,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """A wanted sequence per sample for `van_rossum_loss` and `spike_time_loss`: evenly spaced spikes.

    A neuron with n wanted spikes has one in the middle of each n-th part of the sequence: `floor(t n / T + 1/2)` grows
    by one at step t.

    Args:
        target: labels `[N]`, integers from 0 to classes - 1.
        steps: time steps T.
        classes: number of output neurons.
        desired: spikes of the labelled neuron, undesired < desired <= T.
        undesired: spikes of the others, >= 0.
        batch_first: whether the batch dimension comes before time.
        dtype: of the sequence.

    Returns:
        0/1 `[T, N, classes]` (`[N, T, classes]` with `batch_first`) on the device of `target`.

    Raises:
        TypeError: `target` is no integer tensor.
        ValueError: a label or number out of its range; the message names it.

    >>> import torch, snnlib
    >>> wanted = snnlib.losses.target_spike_train(torch.tensor([1]), 8, 2, desired=4, undesired=1)
    >>> wanted[:, 0].t().tolist()
    [[0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0], [1.0, 0.0, 1.0, 0.0, 1.0, 0.0, 1.0, 0.0]]
    """
    check_integer_labels(target)
    check_labels(target, torch.empty(len(target) if target.dim() else 0, classes, device=target.device))
    if not 0 <= undesired < desired <= steps:
        raise ValueError(
            f"desired, undesired: expected 0 <= undesired < desired <= steps = {steps}, got {desired}, {undesired}"
        )
    labelled = target.unsqueeze(1) == torch.arange(classes, device=target.device)
    counts = torch.where(labelled, desired, undesired)
    time = torch.arange(steps + 1, device=target.device).view(-1, 1, 1)
    # In whole numbers: floor(t n / T + 1/2).
    so_far = (2 * time * counts + steps).div(2 * steps, rounding_mode="floor")
    wanted = so_far.diff(dim=0).to(dtype)
    return wanted.transpose(0, 1) if batch_first else wanted
