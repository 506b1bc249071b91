"""Common parts of losses: checks of scores and labels, and the sum over samples."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from snnlib.checks import check_device, check_floating, check_rank, check_shape, require, warn_caller
from snnlib.neurons.training_watch import cannot_watch

Reduction = Literal["mean", "sum", "none"]
# Batches whose scores are looked at, as this waits for the GPU; sums of a softmax in bfloat16 differ from 1 by less.
_looks, _NEAR_ONE = iter(range(10)), 0.02


def accumulation_dtype(values: Tensor) -> torch.dtype:
    """Returns the dtype of squares and sums: float32 for half precision."""
    return torch.promote_types(values.dtype, torch.float32)


def check_scores(name: str, scores: Tensor, not_negative: bool = False) -> None:
    """Raises unless `scores` are floating `[N, classes]`; checks values as `require` does."""
    check_floating(name, scores)
    check_rank(name, scores, "[N, classes]", exactly=2)
    if not_negative:
        require(
            # NaN is no count below 0; the loss shows it.
            (scores < 0).logical_not(),
            lambda: ValueError(f"{name}: expected {name} >= 0, got {float(scores.detach().min()):g}"),
        )


def warn_of_probabilities(name: str, scores: Tensor) -> None:
    """Warns of scores `[..., classes]` that a softmax gave, of which the loss would take the softmax again."""
    if cannot_watch(scores) or next(_looks, None) is None:
        return
    values = scores.detach()
    sums = values.sum(-1)
    if sums.numel() > 1 and bool((values > 0).all() & ((sums - 1).abs() < _NEAR_ONE).all()):
        warn_caller(
            f"{name}: expected scores, of which the loss takes the softmax, got probabilities that add up to 1; "
            "leave the softmax out"
        )


def check_smoothing(label_smoothing: float) -> None:
    """Raises ValueError unless `label_smoothing` is in [0, 1)."""
    if not 0 <= label_smoothing < 1:
        raise ValueError(f"label_smoothing: expected a number in [0, 1), got {label_smoothing}")


def check_same_sequence(target_spikes: Tensor, spikes: Tensor) -> None:
    """Raises unless the target sequence is a floating tensor of the sequence's shape and device."""
    check_floating("target_spikes", target_spikes)
    check_shape("target_spikes", target_spikes, spikes.shape, "the shape of spikes,")
    check_device("target_spikes", target_spikes, spikes)


def sum_over_neurons(cost: Tensor, neuron_weight: Tensor | None) -> Tensor:
    """Returns the cost of each sample `[N]` from costs per step `[T, N, ...]`, weighted per neuron of each sample."""
    cost = cost.sum(0)
    if neuron_weight is not None:
        _check_weight("neuron_weight", neuron_weight, cost, "sample and neuron")
        cost = cost * neuron_weight.to(cost.dtype)
    return cost.flatten(1).sum(1) if cost.dim() > 1 else cost


def _check_weight(name: str, weight: Tensor, weighted: Tensor, per: str) -> None:
    check_floating(name, weight)
    if weight.shape != weighted.shape:
        raise ValueError(
            f"{name}: expected shape {tuple(weighted.shape)}, one weight per {per}, got {tuple(weight.shape)}"
        )
    check_device(name, weight, weighted)


def labelled_neurons(target: Tensor, scores: Tensor) -> Tensor:
    """Returns a mask `[N, classes]`, true at each sample's label."""
    return target.unsqueeze(1) == torch.arange(scores.shape[1], device=scores.device)


def reduced(loss: Tensor, sample_weight: Tensor | None, reduction: Reduction) -> Tensor:
    """Returns the weighted mean (0 for an empty batch or weights of 0), the weighted sum, or weighted losses `[N]`."""
    if reduction not in {"mean", "sum", "none"}:
        raise ValueError(f"reduction: expected one of mean, sum, none, got {reduction!r}")
    if sample_weight is None:
        total: Tensor | int = max(len(loss), 1)
    else:
        _check_weight("sample_weight", sample_weight, loss, "sample")
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
