"""Squared distance of spike counts from target counts, plain and with the gradient divided among spikes."""

from __future__ import annotations

import torch
from torch import Tensor

from snnlib.checks import check_device, check_labels, require
from snnlib.learning.losses._common import (
    Reduction,
    accumulation_dtype,
    check_scores,
    labelled_neurons,
    reduced,
)

Wanted = float | Tensor


def check_counts(counts: Tensor, target: Tensor, desired: Wanted, undesired: Wanted) -> None:
    """Raises unless counts, labels and target counts fit together."""
    check_scores("counts", counts, not_negative=True)
    check_labels(target, counts)
    for name, wanted in (("desired", desired), ("undesired", undesired)):
        if isinstance(wanted, Tensor):
            if tuple(wanted.shape) != (counts.shape[1],):
                raise ValueError(
                    f"{name}: expected a number or shape ({counts.shape[1]},), one count per class, "
                    f"got shape {tuple(wanted.shape)}"
                )
            check_device(name, wanted, counts)
    require(undesired >= 0, lambda: ValueError(f"undesired: expected a count >= 0, got {_text(undesired)}"))
    require(
        desired > undesired,
        lambda: ValueError(
            f"desired: expected a count > undesired = {_text(undesired)}, got {_text(desired)}"
        ),
    )


def count_excess(
    counts: Tensor, labelled: Tensor, desired: Wanted, undesired: Wanted, one_sided: bool
) -> Tensor:
    """Returns `count - target` `[N, classes]`; with `one_sided` 0 on the side that costs nothing."""
    of_label, of_others = (
        wanted.to(counts.dtype) if isinstance(wanted, Tensor) else counts.new_full((), wanted)
        for wanted in (desired, undesired)
    )
    excess = counts - torch.where(labelled, of_label, of_others)
    if one_sided:
        excess = torch.where(labelled, excess.clamp(max=0), excess.clamp(min=0))
    return excess


def spike_count_loss(
    counts: Tensor,
    target: Tensor,
    *,
    desired: Wanted,
    undesired: Wanted,
    one_sided: bool = False,
    sample_weight: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """Squared distance of spike counts from a target count per class.

    For each sample, with `d_c = desired` for the labelled class and `undesired` for all others::

        L = 1/2 sum_c (count_c - d_c)^2        dL/dcount_c = count_c - d_c

    Unlike cross-entropy on counts the loss has a finite optimum, so rates stay low; `undesired > 0` keeps the other
    neurons from falling silent, where they would have no gradient. For images as currents use `one_sided`, targets of
    5 and 1 spikes in 5 steps, and clipped gradients (`docs/training.md`).

    Args:
        counts: spikes per sequence `[N, classes]`, from `readout.spike_count`. Firing rates work too, with `desired`
            and `undesired` as rates.
        target: labels `[N]`, integers from 0 to classes - 1.
        desired: target count of the labelled class, in the unit of `counts`: a number, or a tensor `[classes]`. No
            default, as it depends on T: Zhu et al. use 15 spikes in 30 steps for N-MNIST.
        undesired: target count of the other classes, 0 <= undesired < desired, a number or `[classes]`; Zhu et al.: 2
            in 30.
        one_sided: whether a labelled class above `desired` and another class below `undesired` cost nothing, as in the
            authors' code (whose loss is this one divided by T).
        sample_weight: weights of the samples `[N]`, >= 0. Default: 1 each.
        reduction: `"mean"` over the batch (default), weighted by `sample_weight`, `"sum"`, or `"none"` for `[N]`. An
            empty batch has mean 0.

    Returns:
        The loss, `[]` or `[N]`, in the dtype of `counts`, float32 for half.

    Raises:
        TypeError: `counts` is not a floating-point tensor, or `target` not an integer tensor.
        ValueError: a shape, label, count or option out of its range; the message names it. The values of labels,
            counts and weights are not checked under `torch.compile`.

    Source: Zhu et al., "Training Spiking Neural Networks with Event-driven Backpropagation", NeurIPS 2022; Shrestha and
    Orchard, "SLAYER: Spike Layer Error Reassignment in Time", NeurIPS 2018.

    >>> import torch, snnlib
    >>> counts = torch.tensor([[12.0, 2.0, 5.0]])
    >>> snnlib.losses.spike_count_loss(counts, torch.tensor([0]), desired=15, undesired=2).item()
    9.0

    In a training loop, with outputs that start near the counts that are wanted of most of them and a teacher for those
    that fall silent:

    >>> net = torch.nn.Sequential(snnlib.SRMLinear(50, 40), snnlib.SRMLinear(40, 3))
    >>> events, labels = (torch.rand(30, 4, 50) < 0.1).float(), torch.tensor([0, 1, 2, 0])
    >>> report = snnlib.prepare_(net, events, {"1": 0.1})
    >>> optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    >>> with snnlib.nn.supervised_spikes(net[1], labels):
    ...     counts = snnlib.readout.spike_count(net(events))
    >>> loss = snnlib.losses.spike_count_loss(counts, labels, desired=15, undesired=2, one_sided=True)
    >>> loss.backward()
    >>> optimizer.step()
    """
    check_counts(counts, target, desired, undesired)
    counts = counts.to(accumulation_dtype(counts))
    excess = count_excess(counts, labelled_neurons(target, counts), desired, undesired, one_sided)
    return reduced(excess.square().sum(1) / 2, sample_weight, reduction)


def shared_out(counts: Tensor) -> Tensor:
    """Returns the counts, with a gradient divided by the count, so that the spikes of a neuron share it."""
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
    """Enhanced counting loss: `spike_count_loss` with a gradient that neurons with many spikes do not dominate.

    A loss on counts gives its gradient to every spike of a neuron, so the gradient of the layer below grows with the
    count: n excess spikes outweigh one missing spike n times. Here the spikes of a neuron share the gradient, and
    labelled neurons have more weight while they fire less than the others::

        L = 1/2 sum_c r_c (count_c - d_c)^2         dL/ds_c[t] = r_c (count_c - d_c) / max(count_c, 1)
        r_c = max(1, mean count of other neurons / mean count of labelled neurons) if labelled, else 1

    with means over the batch and constant r. The gradient differs from that of the value on purpose.

    Args:
        counts: spikes per sequence `[N, classes]`, from `readout.spike_count`, not rates.
        target, desired, undesired, sample_weight, reduction: as in `spike_count_loss`.
        one_sided: as in `spike_count_loss`, but True by default, as in the paper's code.

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
    """Returns the mean count of other neurons over that of labelled neurons, at least 1."""
    of_labels = (counts * labelled).sum()
    of_others = (counts.sum() - of_labels) / max(counts.shape[1] - 1, 1)
    return (of_others / of_labels.clamp(min=1)).clamp(min=1)


def _text(value: Wanted) -> str:
    return str(value.tolist() if isinstance(value, Tensor) else value)
