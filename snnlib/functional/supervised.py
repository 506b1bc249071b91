"""Teacher current, which makes a silent labelled neuron fire once so that it receives a gradient."""

from __future__ import annotations

import torch
from torch import Tensor

from snnlib.backends.arguments import SpikeTimeKernel
from snnlib.backends.spike_time import SRM_FLAGS
from snnlib.checks import check_floating, check_labels, check_rank, check_threshold
from snnlib.functional.srm import srm_neurons, trace_of
from snnlib.neurons.dynamics import pack
from snnlib.neurons.models.srm import SRM
from snnlib.sequences.time_first import takes_time_first

__all__ = ["supervised_current"]

# The potential is raised a little over the threshold, further than rounding takes it down.
_MARGIN = 0.01


@takes_time_first("current", gives=True)
def supervised_current(
    current: Tensor,
    target: Tensor,
    neuron: SRM,
    threshold: float | Tensor = 1.0,
    batch_first: bool = False,
) -> Tensor:
    """Returns a current that makes each sample's labelled neuron fire once if it would stay silent.

    At the step t* of a neuron's highest potential u the smallest current suffices::

        teacher[t*] = tau_s (1.01 threshold - u[t*])        0 at all other steps, neurons and samples

    If u never rises above 0, t* is the last step, so that every input comes before it.

    Args:
        current: input current `[T, N, classes]` (`[N, T, classes]` with `batch_first`).
        target: labels `[N]`, integers from 0 to classes - 1.
        neuron: the neurons, whose time constants are used.
        threshold: firing threshold, a number or `[classes]`.
        batch_first: whether the batch dimension comes before time.

    Returns:
        The teacher's current, shape and dtype of `current`, without gradient. Pass currents in float32: rounding in
        bfloat16 can leave an inhibited neuron below the threshold.

    Raises:
        TypeError: `current` is not a floating-point tensor, or `target` not an integer tensor.
        ValueError: a shape or label out of its range, or no time step; the message names it.

    Source: after Zhu et al., NeurIPS 2022, whose code adds a spike to the labelled neuron at the last step where its
    potential rises, and divides by the slope there; here the push is part of the slope, which bounds the gradient.

    >>> import torch, snnlib
    >>> current = torch.tensor([0.6, 0.6, 0.0, -1.0]).reshape(4, 1, 1)
    >>> neuron = snnlib.neurons.SRM()
    >>> teacher = snnlib.functional.supervised_current(current, torch.tensor([0]), neuron)
    >>> [round(value, 2) for value in teacher.flatten().tolist()]
    [0.0, 0.0, 1.18, 0.0]
    >>> snnlib.functional.srm_neuron(current + teacher).flatten().tolist()
    [0.0, 0.0, 1.0, 0.0]
    """
    check_floating("current", current)
    check_rank("current", current, "[T, N, classes]", exactly=3)
    steps, samples, classes = current.shape
    if steps == 0:
        raise ValueError(f"current: expected at least one time step, got shape {tuple(current.shape)}")
    check_labels(target, current[0])
    chosen = target.long().view(1, samples, 1)
    thresholds: Tensor = srm_neurons("current", current, threshold=threshold).threshold
    check_threshold(thresholds, classes, current)
    thresholds = thresholds.to(torch.promote_types(current.dtype, torch.float32))
    thresholds = thresholds.expand(classes)[target.long()]
    # Currents of the labelled neurons only, with samples in place of channels: [T, 1, N].
    labelled = current.detach().gather(2, chosen.expand(steps, samples, 1))
    labelled = labelled.transpose(1, 2).to(thresholds.dtype)
    rows = pack(neuron.credit.rows(thresholds), thresholds.dtype, thresholds.device)
    trace = trace_of(labelled, SpikeTimeKernel(rows, SRM_FLAGS, alike=True, credit=neuron.credit))
    highest, best = trace.potential[:, 0].max(0)
    best = torch.where(highest > 0, best, steps - 1)
    push = neuron.tau_s * ((1 + _MARGIN) * thresholds - trace.potential[:, 0].gather(0, best.unsqueeze(0))[0])
    push = torch.where((trace.spikes[:, 0] == 0).all(0), push, 0.0).to(current.dtype)
    sample = torch.arange(samples, device=current.device)
    teacher = current.new_zeros(steps, samples, classes)
    teacher[best, sample, target.long()] = push
    return teacher
