"""Distance of spike trains through an exponential kernel."""

from __future__ import annotations

from torch import Tensor

from snnlib.checks import check_floating, check_rank
from snnlib.functional.potential import causal_filter, decay_kernel
from snnlib.learning.losses._common import (
    Reduction,
    accumulation_dtype,
    check_same_sequence,
    reduced,
    sum_over_neurons,
)


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

    A spike too many or too few costs about 1/2, a pair d steps apart about `1 - exp(-d / tau)`. A large tau compares
    counts, a small one times. The gradient is the plain one; SRM layers read it where spikes are, and a silent neuron
    gets none (`nn.supervised_spikes`).

    Args:
        spikes: `[T, N, ...]` (`[N, T, ...]` with `batch_first`), any floating dtype.
        target_spikes: the wanted sequence, same shape; `target_spike_train` makes one from labels.
        tau: time constant of the kernel in time steps, >= 1. Default 5.
        batch_first: whether the batch dimension comes before time.
        neuron_weight: weights of the neurons of each sample `[N, ...]`. Default: 1 each. For labels take about
            1 / (classes - 1) for neurons that are not labelled, or their many spikes too many silence the net.
        sample_weight, reduction: as in `spike_count_loss`.

    Returns:
        The loss, `[]` or `[N]`, in the dtype of `spikes`, float32 for half.

    Raises:
        TypeError: a sequence that is no floating tensor.
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
    time_dim = int(batch_first)
    kernel = decay_kernel(spikes.shape[time_dim], tau, spikes).to(dtype)
    distance = causal_filter(spikes.to(dtype) - target_spikes.detach().to(dtype), kernel, time_dim)
    cost = sum_over_neurons(distance.square() / tau, batch_first, neuron_weight)
    return reduced(cost, sample_weight, reduction)
