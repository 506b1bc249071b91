"""The count loss with its gradient shared out over a neuron's spikes, and raised where labels fire too little."""

from __future__ import annotations

import torch
from torch import Tensor

from snnlib.learning.losses._common import Reduction, accumulation_dtype, labelled_neurons, reduced
from snnlib.learning.losses.count import Wanted, check_counts, count_excess


def shared_out(counts: Tensor) -> Tensor:
    """The counts; their gradient is divided by the count, so that all spikes of a neuron together have it once."""
    number = counts.detach()
    return number + (counts - number) / number.clamp(min=1)


def spike_count_plus_loss(
    counts: Tensor,
    target: Tensor,
    *,
    desired: Wanted,
    undesired: Wanted,
    one_sided: bool = True,
    sample_weight: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """The enhanced counting loss: as `spike_count_loss`, with a gradient that does not favour neurons that fire much.

    A loss on counts gives its gradient to every spike of a neuron, so what arrives at the layer below grows with the
    count: n spikes too many pull down n times as hard as one spike too few pulls up. Here the spikes of a neuron share
    the gradient, and labelled neurons weigh more while they fire less than the others::

        L = 1/2 sum_c r_c (count_c - d_c)^2         dL/ds_c[t] = r_c (count_c - d_c) / max(count_c, 1)
        r_c = max(1, mean count of other neurons / mean count of labelled neurons) if labelled, else 1

    with means over the batch, r held constant. The gradient is not that of the value: sharing it out is the point.

    Args:
        counts: spikes per sequence `[N, classes]`, from `readout.spike_count`; no rates.
        target, desired, undesired, sample_weight, reduction: as in `spike_count_loss`.
        one_sided: as there, but on by default, as in the paper's code.

    Returns:
        The loss, `[]` or `[N]`, in the dtype of `counts`, float32 for half.

    Raises:
        TypeError, ValueError: as `spike_count_loss`.

    Source: after Zhu et al., "Exploring Loss Functions for Time-based Training Strategy in Spiking Neural Networks",
    NeurIPS 2023; the published code has T^2 in the denominator, and 1/10 of the ratio of summed counts for r: the same
    within 10 % for 10 classes.

    >>> import torch, snnlib
    >>> spikes = torch.tensor([[1.0, 1.0], [0.0, 1.0], [0.0, 1.0], [1.0, 1.0]]).unsqueeze(1).requires_grad_()
    >>> counts = snnlib.readout.spike_count(spikes)
    >>> snnlib.losses.spike_count_plus_loss(counts, torch.tensor([0]), desired=3, undesired=1).backward()
    >>> spikes.grad[0].tolist()                                     # r = 4 / 2; 2 (2 - 3) / 2 and (4 - 1) / 4
    [[-1.0, 0.75]]
    """
    check_counts(counts, target, desired, undesired)
    counts = counts.to(accumulation_dtype(counts))
    labelled = labelled_neurons(target, counts)
    excess = count_excess(shared_out(counts), labelled, desired, undesired, one_sided)
    factor = torch.where(labelled, _shortage_of_labels(counts.detach(), labelled), 1.0)
    return reduced((factor * excess.square()).sum(1) / 2, sample_weight, reduction)


def _shortage_of_labels(counts: Tensor, labelled: Tensor) -> Tensor:
    """Returns how many times the labelled neurons' mean count goes into that of the others, at least 1."""
    of_labels = (counts * labelled).sum()
    of_others = (counts.sum() - of_labels) / max(counts.shape[1] - 1, 1)
    return (of_others / of_labels.clamp(min=1)).clamp(min=1)
