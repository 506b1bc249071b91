"""Losses for spiking classifiers. Any torch loss works on `readout.spike_count` as well."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from snnlib.functional._check import check_device, check_floating, check_rank


def _check_labels(target: Tensor, counts: Tensor) -> None:
    if target.is_floating_point() or target.is_complex() or target.dtype == torch.bool:
        raise TypeError(f"target: expected integer labels, got {target.dtype}")
    if tuple(target.shape) != (counts.shape[0],):
        raise ValueError(
            f"target: expected shape ({counts.shape[0]},), one label per sample, got {tuple(target.shape)}"
        )
    check_device("target", target, counts)


def _check_values(target: Tensor, counts: Tensor) -> None:
    classes = counts.shape[1]
    if bool(((target < 0) | (target >= classes)).any()):
        raise ValueError(
            f"target: expected labels from 0 to {classes - 1}, got {int(target.min())} to {int(target.max())}"
        )
    if bool((counts < 0).any()):
        raise ValueError(f"counts: expected counts >= 0, got {float(counts.min()):g}")


def spike_count_loss(
    counts: Tensor,
    target: Tensor,
    *,
    desired: float,
    undesired: float,
    one_sided: bool = False,
    reduction: Literal["mean", "sum", "none"] = "mean",
) -> Tensor:
    """Squared distance of the spike counts from a wanted count per class.

    For each sample, with `d_c = desired` for the labelled class and `undesired` for all others::

        L = 1/2 sum_c (count_c - d_c)^2        dL/dcount_c = count_c - d_c

    Unlike cross entropy on counts it has a finite optimum, so rates stay low; `undesired > 0` keeps the other neurons
    from falling silent, where they would have no gradient.

    Args:
        counts: spikes per train `[N, classes]`, from `readout.spike_count`. Firing rates work too, with `desired` and
            `undesired` as rates.
        target: labels `[N]`, integers from 0 to classes - 1.
        desired: wanted count of the labelled class, in the unit of `counts`. No default, as it depends on T: Zhu et al.
            take 15 of 30 steps for N-MNIST.
        undesired: wanted count of the other classes, 0 <= undesired < desired; Zhu et al.: 2 of 30.
        one_sided: whether a labelled class above `desired` and another class below `undesired` cost nothing, as in the
            authors' code (whose loss is this one divided by T).
        reduction: `"mean"` over the batch (default), `"sum"`, or `"none"` for `[N]`. An empty batch has mean 0.

    Returns:
        The loss, `[]` or `[N]`, in the dtype of `counts`, float32 for half.

    Raises:
        TypeError: `counts` is no floating tensor, or `target` none of integers.
        ValueError: a shape, label, count or option out of its range; the message names it. Labels and counts are not
            looked at under `torch.compile`.

    Source: Zhu et al., "Training Spiking Neural Networks with Event-driven Backpropagation", NeurIPS 2022; Shrestha and
    Orchard, "SLAYER: Spike Layer Error Reassignment in Time", NeurIPS 2018.

    >>> import torch, snnlib
    >>> counts = torch.tensor([[12.0, 2.0, 5.0]])
    >>> snnlib.losses.spike_count_loss(counts, torch.tensor([0]), desired=15, undesired=2).item()
    9.0
    """
    check_floating("counts", counts)
    check_rank("counts", counts, "[N, classes]", exactly=2)
    _check_labels(target, counts)
    if not undesired >= 0:
        raise ValueError(f"undesired: expected a count >= 0, got {undesired}")
    if not desired > undesired:
        raise ValueError(f"desired: expected a count > undesired = {undesired}, got {desired}")
    if reduction not in {"mean", "sum", "none"}:
        raise ValueError(f"reduction: expected one of mean, sum, none, got {reduction!r}")
    if not torch.compiler.is_compiling():
        _check_values(target, counts.detach())

    labelled = target.unsqueeze(1) == torch.arange(counts.shape[1], device=counts.device)
    counts = counts.to(torch.promote_types(counts.dtype, torch.float32))
    excess = counts - torch.full_like(counts, undesired).masked_fill(labelled, desired)
    if one_sided:
        excess = torch.where(labelled, excess.clamp(max=0), excess.clamp(min=0))
    loss = excess.square().sum(1) / 2
    if reduction == "none":
        return loss
    return loss.sum() / max(len(loss), 1) if reduction == "mean" else loss.sum()
