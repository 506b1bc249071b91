"""A margin between the spike counts of the label and of the others."""

from __future__ import annotations

import torch
from torch import Tensor

from snnlib.checks import check_labels, check_positive_number
from snnlib.learning.losses._common import (
    Reduction,
    accumulation_dtype,
    check_scores,
    labelled_neurons,
    reduced,
)


def spike_margin_loss(
    counts: Tensor,
    target: Tensor,
    *,
    margin: float = 3.0,
    sample_weight: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """Hinge between the label's count and the largest other one: `max(0, margin - count_label + max other count)`.

    Args:
        counts: spikes per sequence `[N, classes]`, from `readout.spike_count`.
        target: labels `[N]`, integers from 0 to classes - 1.
        margin: spikes by which the label must lead, > 0. Default 3.
        sample_weight: weights of the samples `[N]`, >= 0. Default: 1 each.
        reduction: `"mean"` over the batch (default), `"sum"`, or `"none"` for `[N]`.

    Returns:
        The loss, `[]` or `[N]`, in the dtype of `counts`, float32 for half.

    Raises:
        TypeError: `counts` is no floating tensor, or `target` none of integers.
        ValueError: a shape, label, count or option out of its range.

    Source: Crammer and Singer, "On the Algorithmic Implementation of Multiclass Kernel-based Vector Machines", 2001.

    >>> import torch, snnlib
    >>> snnlib.losses.spike_margin_loss(torch.tensor([[5.0, 4.0, 1.0]]), torch.tensor([0])).item()
    2.0
    """
    check_scores("counts", counts, not_negative=True)
    check_labels(target, counts)
    check_positive_number("margin", margin)
    counts = counts.to(accumulation_dtype(counts))
    labelled = labelled_neurons(target, counts)
    others = counts.masked_fill(labelled, -torch.inf).amax(1)
    lead = counts.gather(1, target[:, None].long())[:, 0] - others
    return reduced((margin - lead).clamp(min=0), sample_weight, reduction)
