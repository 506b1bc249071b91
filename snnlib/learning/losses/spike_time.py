"""Distance of spike times from those of a wanted sequence."""

from __future__ import annotations

from torch import Tensor

from snnlib.learning.decoding import spike_times
from snnlib.learning.losses._common import Reduction, check_same_sequence, reduced, sum_over_neurons


def spike_time_loss(
    spikes: Tensor,
    target_spikes: Tensor,
    *,
    batch_first: bool = False,
    neuron_weight: Tensor | None = None,
    sample_weight: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """Squared distance of each neuron's spike times from the times in a wanted sequence, first to first and so on.

    With t_k the step of a neuron's k-th spike, T where it has no k-th spike, and v = `neuron_weight`, for each sample::

        L = 1/2 sum_neurons v sum_k ((t_k - wanted t_k) / T)^2         dL/dt_k = v (t_k - wanted t_k) / T^2

    A spike too many is moved towards the end of the sequence. A missing spike costs, but has no spike time to
    differentiate: the spikes that are there move instead, and a neuron without any gets no gradient
    (`nn.supervised_spikes`).

    Args:
        spikes: `[T, N, ...]` (`[N, T, ...]` with `batch_first`), any floating dtype.
        target_spikes: the wanted sequence, same shape; `target_spike_train` makes one from labels.
        batch_first: whether the batch dimension comes before time.
        neuron_weight: weights of the neurons of each sample `[N, ...]`. Default: 1 each. For labels take about
            1 / (classes - 1) for neurons that are not labelled, or their many spikes too many silence the net.
        sample_weight, reduction: as in `spike_count_loss`.

    Returns:
        The loss, `[]` or `[N]`, in the dtype of `spikes`, float32 for half.

    Raises:
        TypeError: a sequence that is no floating tensor.
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
    times = spike_times(spikes, batch_first)
    check_same_sequence(target_spikes, spikes)
    late = (times - spike_times(target_spikes.detach(), batch_first)) / spikes.shape[int(batch_first)]
    cost = sum_over_neurons(late.square() / 2, batch_first, neuron_weight)
    return reduced(cost, sample_weight, reduction)
