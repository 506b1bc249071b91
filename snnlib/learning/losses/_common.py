"""The common part of all losses: checks of scores and labels, and the sum over samples."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from snnlib.checks import check_device, check_floating, check_rank, require

Reduction = Literal["mean", "sum", "none"]


def accumulation_dtype(values: Tensor) -> torch.dtype:
    """Half precision is squared and summed in float32."""
    return torch.promote_types(values.dtype, torch.float32)


def check_scores(name: str, scores: Tensor, not_negative: bool = False) -> None:
    """Raise unless `scores` are floating `[N, classes]`; values are checked as by `require`."""
    check_floating(name, scores)
    check_rank(name, scores, "[N, classes]", exactly=2)
    if not_negative:
        require(
            # NaN is no count below 0; the loss shows it.
            (scores < 0).logical_not(),
            lambda: ValueError(f"{name}: expected {name} >= 0, got {float(scores.detach().min()):g}"),
        )


def check_number(name: str, value: float, *, above: float) -> None:
    """Raise ValueError unless `value` is a finite number > `above`."""
    if not above < value < float("inf"):
        raise ValueError(f"{name}: expected a finite number > {above:g}, got {value}")


def check_smoothing(label_smoothing: float) -> None:
    """Raise ValueError unless `label_smoothing` is in [0, 1)."""
    if not 0 <= label_smoothing < 1:
        raise ValueError(f"label_smoothing: expected a number in [0, 1), got {label_smoothing}")


def check_same_sequence(target_spikes: Tensor, spikes: Tensor) -> None:
    """Raise unless the wanted sequence is a floating tensor of the sequence's shape and device."""
    check_floating("target_spikes", target_spikes)
    if target_spikes.shape != spikes.shape:
        raise ValueError(
            f"target_spikes: expected the shape of spikes, {tuple(spikes.shape)}, "
            f"got {tuple(target_spikes.shape)}"
        )
    check_device("target_spikes", target_spikes, spikes)


def sum_over_neurons(cost: Tensor, batch_first: bool, neuron_weight: Tensor | None) -> Tensor:
    """Cost of each sample `[N]` of a sequence of costs, weighted per neuron of each sample."""
    cost = cost.sum(int(batch_first))
    if neuron_weight is not None:
        check_floating("neuron_weight", neuron_weight)
        if neuron_weight.shape != cost.shape:
            raise ValueError(
                f"neuron_weight: expected shape {tuple(cost.shape)}, one weight per sample and neuron, "
                f"got {tuple(neuron_weight.shape)}"
            )
        check_device("neuron_weight", neuron_weight, cost)
        cost = cost * neuron_weight.to(cost.dtype)
    return cost.flatten(1).sum(1) if cost.dim() > 1 else cost


def labelled_neurons(target: Tensor, scores: Tensor) -> Tensor:
    """Mask `[N, classes]`, true at each sample's label."""
    return target.unsqueeze(1) == torch.arange(scores.shape[1], device=scores.device)


def reduced(loss: Tensor, sample_weight: Tensor | None, reduction: Reduction) -> Tensor:
    """Weighted mean (0 for an empty batch or weights of 0), weighted sum, or the weighted losses `[N]`."""
    if reduction not in {"mean", "sum", "none"}:
        raise ValueError(f"reduction: expected one of mean, sum, none, got {reduction!r}")
    if sample_weight is None:
        total: Tensor | int = max(len(loss), 1)
    else:
        check_floating("sample_weight", sample_weight)
        if sample_weight.shape != loss.shape:
            raise ValueError(
                f"sample_weight: expected shape {tuple(loss.shape)}, one weight per sample, "
                f"got {tuple(sample_weight.shape)}"
            )
        check_device("sample_weight", sample_weight, loss)
        given = sample_weight
        require(
            given >= 0,
            lambda: ValueError(f"sample_weight: expected weights >= 0, got {float(given.min()):g}"),
        )
        sample_weight = sample_weight.to(loss.dtype)
        loss = loss * sample_weight
        sum_of_weights = sample_weight.sum()
        total = torch.where(sum_of_weights > 0, sum_of_weights, 1.0)
    if reduction == "none":
        return loss
    return loss.sum() / total if reduction == "mean" else loss.sum()
