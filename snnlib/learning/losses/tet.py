"""Temporal efficient training: cross-entropy at every step of an output potential."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as torch_functional

from snnlib.checks import (
    check_floating,
    check_integer_labels,
    check_labels,
    check_lengths,
    check_rank,
    warn_caller,
)
from snnlib.learning.losses._common import (
    Reduction,
    accumulation_dtype,
    check_smoothing,
    reduced,
    warn_of_probabilities,
)
from snnlib.learning.losses.guessing import watch_loss
from snnlib.neurons.training_watch import cannot_watch
from snnlib.sequences.lengths import valid_steps
from snnlib.sequences.order import looks_exchanged
from snnlib.sequences.time_first import time_first

# Batches with as many steps as samples whose values are looked at; later ones cost nothing.
_looks = iter(range(10))
# Difference of correlations that tells time: of integrated potentials it is 0.6 to 1.5 along time.
_ALIKE = 0.5


def tet_loss(
    potential: Tensor,
    target: Tensor,
    *,
    regularization: float = 0.05,
    target_potential: float = 1.0,
    label_smoothing: float = 0.0,
    batch_first: bool = False,
    lengths: Tensor | None = None,
    ignore_index: int = -1,
    sample_weight: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """Cross-entropy at each time step, averaged over steps, with a mean-square regulariser (TET).

    For each sample, with o[t] the output potentials, y the label and lambda = `regularization`::

        L = 1/T sum_t ( (1 - lambda) CE(o[t], y[t]) + lambda 1/classes sum_c (o_c[t] - target_potential)^2 )

    Every step has to be correct by itself, so the net answers early; the regulariser keeps potentials of single steps
    bounded. Outputs need no spikes for a gradient: use the potentials of an `SRMReadout`.

    Use it for event data of about ten steps and more: on images as currents over five steps it drives layers that
    learn from their own spikes to fire at every step; `spike_count_loss` learns there (`docs/training.md`).

    Args:
        potential: `[T, N, classes]` (`[N, T, classes]` with `batch_first`), any floating dtype. If T = N the shape
            does not show the order of dimensions; a warning appears if the values of the first batches do.
        target: labels `[N]`, or a label for every step, `[T, N]` (`[N, T]`): integers from 0 to classes - 1, or
            `ignore_index` for ignored steps.
        regularization: share of the regulariser, in [0, 1]. Default 0.05.
        target_potential: potential towards which the regulariser pulls. Default 1, the usual threshold, as in the
            paper.
        label_smoothing: share of the target that is spread over all classes, in [0, 1).
        batch_first: whether the batch dimension comes before time.
        lengths: number of steps of each sample `[N]`; later steps do not count. Default: all steps count.
        ignore_index: label of ignored steps. A sample's loss is the mean over the other steps, 0 if there are none.
            Default -1, which `data.ECG` and `data.collate_ragged` use for "no label".
        sample_weight, reduction: as in `spike_count_loss`.

    Returns:
        The loss, `[]` or `[N]`, in the dtype of `potential`, float32 for half.

    Raises:
        TypeError: `potential` is not a floating-point tensor, or `target` not an integer tensor.
        ValueError: a shape, label or option out of its range; the message names it.

    Source: Deng et al., "Temporal Efficient Training of Spiking Neural Network via Gradient Re-weighting", ICLR 2022,
    equations 9 to 11.

    >>> import torch, snnlib
    >>> potential = torch.zeros(5, 1, 4)
    >>> loss = snnlib.losses.tet_loss(potential, torch.tensor([2]), regularization=0.0)
    >>> round(loss.item(), 3)                                       # log 4
    1.386

    Electrocardiograms have no label at some steps:

    >>> labels = torch.tensor([[-1], [2], [2], [-1], [-1]])
    >>> round(snnlib.losses.tet_loss(potential, labels, regularization=0.0).item(), 3)
    1.386

    In a training loop:

    >>> net = torch.nn.Sequential(snnlib.SRMLinear(50, 40), snnlib.SRMReadout(40, 3))
    >>> events = (torch.rand(30, 4, 50) < 0.1).float()
    >>> report = snnlib.prepare_(net, events)
    >>> optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    >>> snnlib.losses.tet_loss(net(events), torch.tensor([0, 1, 2, 0])).backward()
    >>> optimizer.step()
    """
    check_floating("potential", potential)
    check_rank("potential", potential, "[T, N, classes]", exactly=3)
    steps_first = time_first(potential, batch_first)
    if not len(steps_first):
        raise ValueError(f"potential: expected at least one time step, got shape {tuple(potential.shape)}")
    if not 0 <= regularization <= 1:
        raise ValueError(f"regularization: expected a number in [0, 1], got {regularization}")
    warn_of_probabilities("potential", potential)
    check_smoothing(label_smoothing)
    check_integer_labels(target)
    # A sequence may have one label for many steps, which tells nothing of the order of samples.
    labels = target if target.dim() == 1 else target.new_empty(0)
    given, potential = potential, steps_first
    counted = torch.ones(potential.shape[:2], dtype=torch.bool, device=potential.device)
    if target.dim() == 2:
        target = time_first(target, batch_first)
        if target.shape == counted.shape:
            counted = target != ignore_index
            target = target.masked_fill(~counted, 0)
        check_labels(target, potential)
    else:
        if target.dim() == 1 and len(target) == len(potential) != potential.shape[1]:
            raise ValueError(
                f"potential: expected a dimension N of {len(target)} labels, got shape {tuple(given.shape)}; "
                f"give batch_first={not batch_first}"
            )
        check_labels(target, potential[0])
        if lengths is None:
            _warn_of_order(potential, batch_first)
        target = target.unsqueeze(0).expand(potential.shape[:2])
    if lengths is not None:
        lengths = check_lengths(lengths, potential)
        counted = counted & valid_steps(lengths, len(potential))
    # Steps that do not count may hold anything.
    potential = torch.where(counted.unsqueeze(2), potential, torch.zeros_like(potential))
    potential = potential.to(accumulation_dtype(potential))
    # torch wants classes in dimension 1 and gives one loss per remaining cell.
    entropy = torch_functional.cross_entropy(
        potential.movedim(2, 1), target.long(), label_smoothing=label_smoothing, reduction="none"
    )
    if target.numel():
        watch_loss((entropy * counted).sum() / counted.sum().clamp(min=1), potential.shape[2], labels)
    spread = (potential - target_potential).square().mean(2)
    loss = (1 - regularization) * entropy + regularization * spread
    total = torch.where(counted, loss, torch.zeros_like(loss)).sum(0)
    return reduced(total / counted.sum(0).clamp(min=1), sample_weight, reduction)


def _warn_of_order(potential: Tensor, batch_first: bool) -> None:
    """Warns if T = N and the batch dimension looks like time."""
    if potential.shape[0] != potential.shape[1] or cannot_watch(potential) or next(_looks, None) is None:
        return
    along = potential.detach()
    # Neither the course that all samples share nor the mean of a sample tells time.
    if looks_exchanged(along - along.mean(0) - along.mean(1, keepdim=True), _ALIKE):
        given, wanted = ("[T, N, classes]", "False") if batch_first else ("[N, T, classes]", "True")
        warn_caller(
            f"potential: expected {'[N, T, classes]' if batch_first else '[T, N, classes]'}, got a batch of shape "
            f"{tuple(potential.shape)} that looks like {given}, so that labels of samples would go to steps; "
            f"transpose(0, 1) it, or give batch_first={wanted}"
        )
