"""Decodes spike trains for losses and decisions: counts, rates and spike times."""

from __future__ import annotations

import torch
from torch import Tensor

from snnlib.checks import check_floating, check_lengths, check_rank, warn_caller
from snnlib.neurons.training_watch import cannot_watch
from snnlib.sequences.lengths import without_padding
from snnlib.sequences.time_first import takes_time_first

__all__ = ["firing_rate", "first_spike_time", "spike_count", "spike_times", "time_weighted_count"]


def _check_sequence(spikes: Tensor, at_least_steps: int) -> None:
    """Checks a spike train `[T, N, ...]`."""
    check_floating("spikes", spikes)
    check_rank("spikes", spikes, "[T, N, ...]", at_least=2)
    if spikes.dim() == 2 and not cannot_watch(spikes) and bool((spikes.detach() > 1).any()):
        warn_caller(
            f"spikes: expected a sequence [T, N, ...], got values up to {float(spikes.detach().max()):g} of shape "
            f"{tuple(spikes.shape)}, as counts [N, classes] have, whose samples would be read as steps"
        )
    if len(spikes) < at_least_steps:
        raise ValueError(f"spikes: expected at least one time step, got shape {tuple(spikes.shape)}")


@takes_time_first("spikes")
def spike_count(spikes: Tensor, batch_first: bool = False, lengths: Tensor | None = None) -> Tensor:
    """Returns the spikes of each neuron over the whole sequence: `count = sum_t s[t]`.

    The gradient is `dL/ds[t] = dL/dcount` at every step; SRM layers use it at spikes only. Losses on
    counts are in `snnlib.losses`: `count_cross_entropy(spike_count(s), labels)` makes the labelled neuron fire more.

    Args:
        spikes: `[T, N, ...]` (`[N, T, ...]` with `batch_first`), any floating dtype.
        batch_first: whether the batch dimension comes before time.
        lengths: number of steps of each sample `[N]`; later spikes do not count. Default: all steps count.

    Returns:
        Counts `[N, ...]` in spikes per sequence, in the dtype of `spikes`; float32 for half precision, since float16
        counts exactly only to 2048 and bfloat16 to 256.

    Raises:
        TypeError: `spikes` is not a floating-point tensor.
        ValueError: fewer than two dimensions, or lengths that do not fit.

    >>> import torch, snnlib
    >>> spikes = torch.tensor([[1.0, 0.0], [1.0, 1.0], [1.0, 0.0]]).unsqueeze(1)
    >>> snnlib.readout.spike_count(spikes).tolist()
    [[3.0, 1.0]]
    """
    _check_sequence(spikes, at_least_steps=0)
    if lengths is not None:
        spikes = without_padding(spikes, check_lengths(lengths, spikes))
    return spikes.sum(0, dtype=torch.promote_types(spikes.dtype, torch.float32))


@takes_time_first("spikes")
def firing_rate(spikes: Tensor, batch_first: bool = False, lengths: Tensor | None = None) -> Tensor:
    """Returns the spikes of each neuron per time step: `rate = spike_count / T`, in 0..1 for 0/1 spikes.

    Arguments, dtype and errors as in `spike_count`; a sequence without time steps raises ValueError; a sample of
    length 0 has rate 0.

    >>> import torch, snnlib
    >>> spikes = torch.tensor([[1.0, 0.0], [1.0, 1.0]]).unsqueeze(1)
    >>> snnlib.readout.firing_rate(spikes).tolist()
    [[1.0, 0.5]]
    """
    _check_sequence(spikes, at_least_steps=1)
    counts = spike_count(spikes, lengths=lengths)
    if lengths is None:
        return counts / len(spikes)
    return counts / lengths.clamp(min=1).reshape(-1, *[1] * (counts.dim() - 1))


@takes_time_first("spikes")
def time_weighted_count(spikes: Tensor, batch_first: bool = False) -> Tensor:
    """Returns a spike count that weighs earlier spikes more: `sum_t w[t] s[t]` with `w[t] = 1 - t/T`.

    The gradient `dL/ds[t] = w[t] dL/dcount` is largest at early spikes. The weights break ties between equal counts.
    Arguments, dtype and errors as in `spike_count`.

    >>> import torch, snnlib
    >>> spikes = torch.tensor([[1.0, 0.0], [0.0, 0.0], [0.0, 1.0], [0.0, 1.0]]).unsqueeze(1)
    >>> snnlib.readout.time_weighted_count(spikes).tolist()
    [[1.0, 0.75]]
    """
    _check_sequence(spikes, at_least_steps=0)
    spikes = spikes.to(torch.promote_types(spikes.dtype, torch.float32))
    steps = len(spikes)
    weight = 1 - torch.arange(steps, dtype=spikes.dtype, device=spikes.device) / max(steps, 1)
    return (weight.view(-1, *[1] * (spikes.dim() - 1)) * spikes).sum(0)


@takes_time_first("spikes", "potential")
def first_spike_time(
    spikes: Tensor, batch_first: bool = False, no_spike: float | None = None, potential: Tensor | None = None
) -> Tensor:
    """Returns the step of each neuron's first spike: `t1 = min { t : s[t] != 0 }`.

    The backward pass converts gradients of times to gradients of spikes, which ask for "more, or earlier, spikes
    here", with the opposite sign::

        dL/ds[t1] = -dL/dt1,        0 at every other step and for neurons without a spike

    The gradient moves existing spikes only: silent neurons need another loss, or `snnlib.prepare_`.

    Args:
        spikes: `[T, N, ...]` (`[N, T, ...]` with `batch_first`), any floating dtype.
        batch_first: whether the batch dimension comes before time.
        no_spike: time of neurons without a spike. Default T, later than any spike.
        potential: membrane potential of the neurons before any reset, in units of the threshold, in the shape of
            `spikes`, as `layer.free_potential(current)` gives it. With it times are fractions of a step, at which the
            potential crosses the threshold by linear interpolation, `t1 - (u[t1] - 1) / (u[t1] - u[t1 - 1])`; the
            gradient stays the same. Default None: whole steps.

    Returns:
        Times `[N, ...]` in time steps from 0, in the dtype of `spikes`, float32 for half. NaN if the first nonzero
        value of the sequence is NaN.

    Raises:
        TypeError: `spikes` is not a floating-point tensor.
        ValueError: fewer than two dimensions, no time step, or potentials of another shape.

    >>> import torch, snnlib
    >>> spikes = torch.tensor([[0.0, 0.0], [1.0, 0.0], [1.0, 0.0]]).unsqueeze(1).requires_grad_()
    >>> times = snnlib.readout.first_spike_time(spikes)
    >>> times.tolist()
    [[1.0, 3.0]]
    >>> times.sum().backward()
    >>> spikes.grad[:, 0].tolist()
    [[0.0, 0.0], [-1.0, 0.0], [0.0, 0.0]]
    >>> potential = torch.tensor([[0.5, 0.0], [1.5, 0.0], [1.0, 0.0]]).unsqueeze(1)
    >>> snnlib.readout.first_spike_time(spikes, potential=potential).tolist()
    [[0.5, 3.0]]
    """
    _check_sequence(spikes, at_least_steps=1)
    fired = spikes != 0
    # argmax takes the first of equals.
    first = fired.to(torch.uint8).argmax(0, keepdim=True)
    value = spikes.gather(0, first).to(torch.promote_types(spikes.dtype, torch.float32))
    # The difference is 0; it carries the gradient -1, and NaN.
    times = first - (value - value.detach())
    if potential is not None:
        times = times - _overshoot(spikes, potential, first).to(times.dtype)
    silent = len(spikes) if no_spike is None else no_spike
    return torch.where(fired.any(0), times.squeeze(0), silent)


def _overshoot(spikes: Tensor, potential: Tensor, step: Tensor) -> Tensor:
    """Returns the share of the step between the crossing of the threshold and the end of the step."""
    if potential.shape != spikes.shape:
        raise ValueError(f"potential: expected shape {tuple(spikes.shape)}, got {tuple(potential.shape)}")
    u = potential.detach()
    at = u.gather(0, step)
    # Before the first step the membrane rests.
    before = torch.where(step > 0, u.gather(0, (step - 1).clamp(min=0)), torch.zeros_like(at))
    return ((at - 1) / (at - before)).clamp(0, 1).nan_to_num(0.0)


@takes_time_first("spikes", gives=True)
def spike_times(spikes: Tensor, batch_first: bool = False) -> Tensor:
    """Returns the steps of each neuron's spikes in order, filled up with T.

    The gradient is `dL/ds[t_k] = -dL/dt_k` at the k-th spike, 0 at every other step, as in `first_spike_time`.

    Args:
        spikes: `[T, N, ...]` (`[N, T, ...]` with `batch_first`), any floating dtype.
        batch_first: whether the batch dimension comes before time.

    Returns:
        Times in time steps from 0, in the shape of `spikes` with the index k of the spike in place of time, in the
        dtype of `spikes`, float32 for half.

    Raises:
        TypeError: `spikes` is not a floating-point tensor.
        ValueError: fewer than two dimensions, or no time step.

    >>> import torch, snnlib
    >>> snnlib.readout.spike_times(torch.tensor([0.0, 1.0, 0.0, 1.0]).reshape(4, 1, 1)).flatten().tolist()
    [1.0, 3.0, 4.0, 4.0]
    """
    _check_sequence(spikes, at_least_steps=1)
    value = spikes.to(torch.promote_types(spikes.dtype, torch.float32))
    steps = len(value)
    step = torch.arange(steps, dtype=value.dtype, device=value.device)
    step = step.view(-1, *[1] * (value.dim() - 1))
    # The difference is 0; it carries the gradient -1, and NaN.
    times = torch.where(value != 0, step - (value - value.detach()), float(steps))
    return times.sort(0).values
