"""Time to first spike: the class whose neuron fires first wins."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as torch_functional

from snnlib.checks import check_labels
from snnlib.learning.losses._common import (
    Reduction,
    accumulation_dtype,
    check_number,
    check_scores,
    check_smoothing,
    reduced,
)


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

    The labelled neuron is moved to earlier times, the others to later ones. Times of all neurons together are free to
    drift, and do: to all at once or to silence. A `deadline` holds them, as one more rival in the softmax that fires at
    that step: the label has to come before it, the others need not go far beyond.

    `readout.first_spike_time` turns the gradient into `dL/ds` at each neuron's first spike. Later spikes do not count,
    nor do neurons without a spike: they stand at the read-out's `no_spike` (default T) and get no gradient. A silent
    labelled neuron needs `nn.supervised_spikes`. The decision falls at the first output spike:
    `first_spike_time(spikes).argmin(1)`.

    Args:
        times: first spike times `[N, classes]` in time steps.
        target: labels `[N]`, integers from 0 to classes - 1.
        scale: logits per time step, > 0. No default: it belongs to the length of a step. 1/T is soft (all classes keep
            a gradient to the end), 1 hard.
        deadline: step before which the label should fire; None (default) for none.
        label_smoothing: share of the target that is spread over all classes and the deadline, in [0, 1).
        sample_weight, reduction: as in `spike_count_loss`.

    Returns:
        The loss, `[]` or `[N]`, in the dtype of `times`, float32 for half.

    Raises:
        TypeError: `times` is no floating tensor, or `target` none of integers.
        ValueError: a shape, label or option out of its range; the message names it.

    Source: after Zhu et al., NeurIPS 2023 (TTFS loss; `scale = 1/T` there); Mostafa, "Supervised Learning Based on
    Temporal Coding in Spiking Neural Networks", IEEE TNNLS 2018.

    >>> import torch, snnlib
    >>> times = torch.tensor([[3.0, 3.0, 30.0]], requires_grad=True)
    >>> loss = snnlib.losses.first_spike_loss(times, torch.tensor([0]), scale=1.0)
    >>> round(loss.item(), 3)
    0.693
    >>> loss.backward()
    >>> times.grad.tolist()                                         # the label earlier, its rival later
    [[0.5, -0.5, ...]]
    """
    check_scores("times", times)
    check_labels(target, times)
    check_number("scale", scale, above=0)
    check_smoothing(label_smoothing)
    if deadline is not None:
        check_number("deadline", deadline, above=0)
        times = torch.cat((times, times.new_full((len(times), 1), deadline)), 1)
    logits = -scale * times.to(accumulation_dtype(times))
    loss = torch_functional.cross_entropy(
        logits, target.long(), label_smoothing=label_smoothing, reduction="none"
    )
    return reduced(loss, sample_weight, reduction)
