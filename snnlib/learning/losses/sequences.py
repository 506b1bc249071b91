"""Distances between spike trains and target spike trains, and target spike trains from labels."""

from __future__ import annotations

import torch
from torch import Tensor

from snnlib.checks import check_floating, check_integer_labels, check_labels, check_rank
from snnlib.functional.potential import causal_filter, decay_kernel
from snnlib.learning.decoding import spike_times
from snnlib.learning.losses._common import (
    Reduction,
    accumulation_dtype,
    check_same_sequence,
    reduced,
    sum_over_neurons,
)
from snnlib.sequences.time_first import takes_time_first


@takes_time_first("spikes", "target_spikes")
def spike_time_loss(
    spikes: Tensor,
    target_spikes: Tensor,
    *,
    batch_first: bool = False,
    neuron_weight: Tensor | None = None,
    sample_weight: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """Squared distance of each neuron's spike times from target times, first spike to first and so on.

    With t_k the step of a neuron's k-th spike, T where it has no k-th spike, and v = `neuron_weight`, for each sample::

        L = 1/2 sum_neurons v sum_k ((t_k - wanted t_k) / T)^2         dL/dt_k = v (t_k - wanted t_k) / T^2

    Excess spikes move towards the end of the sequence. A missing spike costs, but has no time to differentiate:
    existing spikes move instead, and a silent neuron gets no gradient (`nn.supervised_spikes`).

    Args:
        spikes: `[T, N, ...]` (`[N, T, ...]` with `batch_first`), any floating dtype.
        target_spikes: target spike train, same shape; `target_spike_train` makes one from labels.
        batch_first: whether the batch dimension comes before time.
        neuron_weight: weights of the neurons of each sample `[N, ...]`. Default: 1 each. With labels use about
            1 / (classes - 1) for neurons without the label, whose excess spikes would otherwise silence the net.
        sample_weight, reduction: as in `spike_count_loss`.

    Returns:
        The loss, `[]` or `[N]`, in the dtype of `spikes`, float32 for half.

    Raises:
        TypeError: a sequence that is not a floating-point tensor.
        ValueError: sequences of different shapes or without time steps, or an option out of its range.

    Source: after Zhu et al., NeurIPS 2023 (timing loss; one-sided there: a label too early costs nothing).

    >>> import torch, snnlib
    >>> spikes = torch.tensor([0.0, 0.0, 1.0, 0.0]).reshape(4, 1, 1).requires_grad_()
    >>> wanted = torch.tensor([1.0, 0.0, 0.0, 0.0]).reshape(4, 1, 1)
    >>> loss = snnlib.losses.spike_time_loss(spikes, wanted)        # two steps late: (2 / 4)^2 / 2
    >>> loss.item()
    0.125
    >>> loss.backward()
    >>> spikes.grad[2].item()                                       # descending: more spike here, that is earlier
    -0.125
    """
    times = spike_times(spikes)
    check_same_sequence(target_spikes, spikes)
    late = (times - spike_times(target_spikes.detach())) / len(spikes)
    cost = sum_over_neurons(late.square() / 2, neuron_weight)
    return reduced(cost, sample_weight, reduction)


@takes_time_first("spikes", "target_spikes")
def van_rossum_loss(
    spikes: Tensor,
    target_spikes: Tensor,
    *,
    tau: float = 5.0,
    batch_first: bool = False,
    neuron_weight: Tensor | None = None,
    sample_weight: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """Squared distance of filtered spike trains (van Rossum's distance; the papers' kernel loss).

    Both sequences pass an exponential filter; for each sample, with `e = 1 - 1/tau` and v = `neuron_weight`::

        f[t] = e f[t-1] + s[t]          L = 1/tau sum_neurons v sum_t (f[t] - wanted f[t])^2
        dL/ds[t] = 2 v/tau sum_{k >= t} e^(k-t) (f[k] - wanted f[k])

    An excess or missing spike costs about 1/2, a spike d steps from its target about `1 - exp(-d / tau)`. A large tau
    compares counts, a small tau compares times. SRM layers use the gradient at spikes only, so a silent neuron gets
    none (`nn.supervised_spikes`).

    Args:
        spikes: `[T, N, ...]` (`[N, T, ...]` with `batch_first`), any floating dtype.
        target_spikes: target spike train, same shape; `target_spike_train` makes one from labels.
        tau: time constant of the kernel in time steps, >= 1. Default 5.
        batch_first: whether the batch dimension comes before time.
        neuron_weight: weights of the neurons of each sample `[N, ...]`. Default: 1 each. With labels use about
            1 / (classes - 1) for neurons without the label, whose excess spikes would otherwise silence the net.
        sample_weight, reduction: as in `spike_count_loss`.

    Returns:
        The loss, `[]` or `[N]`, in the dtype of `spikes`, float32 for half.

    Raises:
        TypeError: a sequence that is not a floating-point tensor.
        ValueError: sequences of different shapes, or an option out of its range; the message names it.

    Source: van Rossum, "A Novel Spike Distance", Neural Computation 13, 2001; Zhu et al., NeurIPS 2023 (kernel loss).

    >>> import torch, snnlib
    >>> wanted = torch.zeros(100, 1, 1)
    >>> spikes = wanted.clone()
    >>> spikes[10] = 1
    >>> round(snnlib.losses.van_rossum_loss(spikes, wanted, tau=20.0).item(), 2)
    0.51
    """
    check_floating("spikes", spikes)
    check_rank("spikes", spikes, "[T, N, ...]", at_least=2)
    check_same_sequence(target_spikes, spikes)
    if not 1 <= tau < float("inf"):
        raise ValueError(f"tau: expected a finite number of time steps >= 1, got {tau}")
    dtype = accumulation_dtype(spikes)
    kernel = decay_kernel(len(spikes), tau, spikes).to(dtype)
    distance = causal_filter(spikes.to(dtype) - target_spikes.detach().to(dtype), kernel)
    cost = sum_over_neurons(distance.square() / tau, neuron_weight)
    return reduced(cost, sample_weight, reduction)


@takes_time_first(gives=True)
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
    """Returns a target spike train per sample for `van_rossum_loss` and `spike_time_loss`: evenly spaced spikes.

    A neuron with n target spikes has one in the middle of each n-th part of the sequence, at the steps t where
    `floor(t n / T + 1/2)` grows.

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
        TypeError: `target` is not an integer tensor.
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
    # Whole numbers: floor(t n / T + 1/2).
    so_far = (2 * time * counts + steps).div(2 * steps, rounding_mode="floor")
    return so_far.diff(dim=0).to(dtype)
