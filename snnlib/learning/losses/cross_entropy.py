"""Cross-entropy on spike counts, plain and with the gradient divided among spikes, and on first spike times."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as torch_functional

from snnlib.checks import check_labels, check_positive_number
from snnlib.learning.losses._common import (
    Reduction,
    accumulation_dtype,
    check_scores,
    check_smoothing,
    labelled_neurons,
    reduced,
    warn_of_probabilities,
)
from snnlib.learning.losses.count import shared_out
from snnlib.learning.losses.guessing import watch_loss


def _check(scores: Tensor, target: Tensor, scale: float, label_smoothing: float) -> None:
    check_labels(target, scores)
    check_positive_number("scale", scale)
    check_smoothing(label_smoothing)


def _cross_entropy(logits: Tensor, target: Tensor, label_smoothing: float) -> Tensor:
    losses = torch_functional.cross_entropy(
        logits, target.long(), label_smoothing=label_smoothing, reduction="none"
    )
    watch_loss(losses, logits.shape[1], target)
    return losses


def count_cross_entropy(
    counts: Tensor,
    target: Tensor,
    *,
    scale: float = 0.5,
    label_smoothing: float = 0.0,
    sample_weight: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """Cross-entropy of the softmax of spike counts.

    For each sample, with the label y::

        L = -log p_y,   p = softmax(scale * count)          dL/dcount_c = scale (p_c - [c = y])

    Every spike gets this gradient, so it lowers the rate of neurons with many spikes most, and never raises the rate
    of a neuron without the label. Outputs that start at a low rate fall silent, and with event-driven gradients a
    silent neuron cannot recover. Start outputs at a rate of 0.5, as `snnlib.prepare_` does; the loss then trains with
    Adam at 1e-3. From low rates use `count_cross_entropy_plus` with `nn.supervised_spikes`.

    Args:
        counts: spikes per sequence `[N, classes]`, from `readout.spike_count`.
        target: labels `[N]`, integers from 0 to classes - 1.
        scale: logits per spike, > 0; the inverse of a temperature. Default 0.5, since the counts of a sample differ by
            about ten in 30 steps.
        label_smoothing: share of the target that is spread over all classes, in [0, 1).
        sample_weight, reduction: as in `spike_count_loss`.

    Returns:
        The loss, `[]` or `[N]`, in the dtype of `counts`, float32 for half.

    Raises:
        TypeError: `counts` is not a floating-point tensor, or `target` not an integer tensor.
        ValueError: a shape, label, count or option out of its range; the message names it.

    >>> import torch, snnlib
    >>> counts = torch.tensor([[12.0, 12.0, 0.0]])
    >>> round(snnlib.losses.count_cross_entropy(counts, torch.tensor([0])).item(), 3)
    0.694

    In a training loop:

    >>> net, events = snnlib.SRMLinear(50, 3), (torch.rand(30, 4, 50) < 0.1).float()
    >>> report = snnlib.prepare_(net, events)
    >>> optimizer = torch.optim.Adam(net.parameters(), lr=report.learning_rate)
    >>> counts, labels = snnlib.readout.spike_count(net(events)), torch.tensor([0, 1, 2, 0])
    >>> snnlib.losses.count_cross_entropy(counts, labels, scale=report.logit_scale).backward()
    >>> optimizer.step()
    """
    check_scores("counts", counts, not_negative=True)
    warn_of_probabilities("counts", counts)
    _check(counts, target, scale, label_smoothing)
    logits = scale * counts.to(accumulation_dtype(counts))
    return reduced(_cross_entropy(logits, target, label_smoothing), sample_weight, reduction)


def count_cross_entropy_plus(
    counts: Tensor,
    target: Tensor,
    *,
    scale: float = 0.5,
    label_smoothing: float = 0.0,
    sample_weight: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """Cross-entropy on spike counts whose gradient the spikes of a neuron share.

    The value is that of `count_cross_entropy`; the gradient at each spike of a neuron is::

        dL/ds_c[t] = scale (p_c - [c = y]) / max(count_c, 1),        0 in samples whose labelled neuron is silent

    Summed over all spikes the gradient is `scale (p_y - 1)` from the label and at most its opposite from the other
    classes, so the loss never asks for fewer spikes in all. If the labelled neuron is silent, nothing could raise its
    rate, so the gradient is 0; `nn.supervised_spikes` makes that neuron fire.

    Arguments, result and errors as in `count_cross_entropy`. `counts` are spikes per sequence, not rates.

    Source: after Zhu et al., "Exploring Loss Functions for Time-based Training Strategy in Spiking Neural Networks",
    NeurIPS 2023 and its code (there `scale = 2/T`, and silent neurons are left out of the softmax).

    >>> import torch, snnlib
    >>> spikes = torch.ones(4, 1, 2).requires_grad_()
    >>> counts = snnlib.readout.spike_count(spikes)
    >>> snnlib.losses.count_cross_entropy_plus(counts, torch.tensor([0]), scale=1.0).backward()
    >>> spikes.grad[0]
    tensor([[-0.1250,  0.1250]])
    """
    check_scores("counts", counts, not_negative=True)
    warn_of_probabilities("counts", counts)
    _check(counts, target, scale, label_smoothing)
    counts = counts.to(accumulation_dtype(counts))
    labelled = labelled_neurons(target, counts)
    teachable = (labelled & (counts > 0)).any(1, keepdim=True)
    logits = scale * torch.where(teachable, shared_out(counts), counts.detach())
    return reduced(_cross_entropy(logits, target, label_smoothing), sample_weight, reduction)


def first_spike_loss(
    times: Tensor,
    target: Tensor,
    *,
    scale: float,
    deadline: float | None = None,
    label_smoothing: float = 0.0,
    sample_weight: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """Cross-entropy on first spike times (TTFS): earlier is more probable.

    For each sample, with the label y::

        L = -log p_y,   p = softmax(-scale * times)         dL/dtime_c = scale ([c = y] - p_c)

    The loss moves the labelled neuron to earlier times and the others to later times. It is invariant to a common
    shift of all times, which then drift until all neurons fire at once or fall silent. A `deadline` prevents this: it
    acts as another neuron in the softmax that fires at that step, so the label has to fire before it.

    `readout.first_spike_time` turns the gradient into `dL/ds` at each neuron's first spike. Later spikes have no
    influence. Neurons without a spike have the time `no_spike` of the read-out (default T) and get no gradient. A
    silent labelled neuron needs `nn.supervised_spikes`. The class is that of the first output spike:
    `first_spike_time(spikes).argmin(1)`.

    Args:
        times: first spike times `[N, classes]` in time steps.
        target: labels `[N]`, integers from 0 to classes - 1.
        scale: logits per time step, > 0. No default, as it depends on the length of a step. 1/T is soft (all classes
            have a gradient until the end), 1 is hard.
        deadline: step before which the label should fire. Default None: no deadline.
        label_smoothing: share of the target that is spread over all classes and the deadline, in [0, 1).
        sample_weight, reduction: as in `spike_count_loss`.

    Returns:
        The loss, `[]` or `[N]`, in the dtype of `times`, float32 for half.

    Raises:
        TypeError: `times` is not a floating-point tensor, or `target` not an integer tensor.
        ValueError: a shape, label or option out of its range; the message names it.

    Source: after Zhu et al., NeurIPS 2023 (TTFS loss; `scale = 1/T` there); Mostafa, "Supervised Learning Based on
    Temporal Coding in Spiking Neural Networks", IEEE TNNLS 2018.

    >>> import torch, snnlib
    >>> times = torch.tensor([[3.0, 3.0, 30.0]], requires_grad=True)
    >>> loss = snnlib.losses.first_spike_loss(times, torch.tensor([0]), scale=1.0)
    >>> round(loss.item(), 3)
    0.693
    >>> loss.backward()
    >>> times.grad[:, :2]                                           # the label earlier, its rival later
    tensor([[ 0.5000, -0.5000]])
    """
    check_scores("times", times)
    _check(times, target, scale, label_smoothing)
    if deadline is not None:
        check_positive_number("deadline", deadline)
        times = torch.cat((times, times.new_full((len(times), 1), deadline)), 1)
    logits = -scale * times.to(accumulation_dtype(times))
    return reduced(_cross_entropy(logits, target, label_smoothing), sample_weight, reduction)
