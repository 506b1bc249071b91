"""Numbers from spike trains, for losses and decisions: counts, rates and first spike times."""

from __future__ import annotations

import torch
from torch import Tensor

from snnlib.functional._check import check_floating, check_rank


def _check_train(spikes: Tensor, batch_first: bool, at_least_steps: int) -> int:
    """Time dimension of a spike train that is long enough."""
    check_floating("spikes", spikes)
    check_rank("spikes", spikes, "[T, N, ...]", at_least=2)
    time_dim = int(batch_first)
    if spikes.shape[time_dim] < at_least_steps:
        raise ValueError(f"spikes: expected at least one time step, got shape {tuple(spikes.shape)}")
    return time_dim


def spike_count(spikes: Tensor, batch_first: bool = False) -> Tensor:
    """Spikes of each neuron over the whole train: `count = sum_t s[t]`.

    The gradient is the plain one, `dL/ds[t] = dL/dcount` at every step; SRM layers read it where spikes are. Any torch
    loss works on counts: `cross_entropy(spike_count(s), labels)` makes the labelled neuron fire more.

    Args:
        spikes: `[T, N, ...]` (`[N, T, ...]` with `batch_first`), any floating dtype.
        batch_first: whether the batch dimension comes before time.

    Returns:
        Counts `[N, ...]` in spikes per train, in the dtype of `spikes`; float32 for half inputs, since float16
        counts to 2048 only and bfloat16 to 256.

    Raises:
        TypeError: `spikes` is no floating tensor.
        ValueError: fewer than two dimensions.

    >>> import torch, snnlib
    >>> spikes = torch.tensor([[1.0, 0.0], [1.0, 1.0], [1.0, 0.0]]).unsqueeze(1)
    >>> snnlib.readout.spike_count(spikes).tolist()
    [[3.0, 1.0]]
    """
    time_dim = _check_train(spikes, batch_first, at_least_steps=0)
    return spikes.sum(time_dim, dtype=torch.promote_types(spikes.dtype, torch.float32))


def firing_rate(spikes: Tensor, batch_first: bool = False) -> Tensor:
    """Spikes of each neuron per time step: `rate = spike_count / T`, in 0..1 for 0/1 spikes.

    Arguments, dtype and errors as in `spike_count`; a train without time steps has no rate and raises ValueError.

    >>> import torch, snnlib
    >>> spikes = torch.tensor([[1.0, 0.0], [1.0, 1.0]]).unsqueeze(1)
    >>> snnlib.readout.firing_rate(spikes).tolist()
    [[1.0, 0.5]]
    """
    time_dim = _check_train(spikes, batch_first, at_least_steps=1)
    return spike_count(spikes, batch_first) / spikes.shape[time_dim]


def first_spike_time(spikes: Tensor, batch_first: bool = False, no_spike: float | None = None) -> Tensor:
    """Step of each neuron's first spike: `t1 = min { t : s[t] != 0 }`.

    The backward pass owns the sign between times and spikes. Gradients at spike tensors mean "more, or earlier, spikes
    here", so a loss that wants a later spike pushes that spike down::

        dL/ds[t1] = -dL/dt1,        0 at every other step and for neurons without a spike

    Times only move spikes that exist: silent neurons need another loss, or `snnlib.init.calibrate_firing_rate_`.

    Args:
        spikes: `[T, N, ...]` (`[N, T, ...]` with `batch_first`), any floating dtype.
        batch_first: whether the batch dimension comes before time.
        no_spike: time of neurons without a spike. Default T, later than any spike.

    Returns:
        Times `[N, ...]` in time steps from 0, in the dtype of `spikes`, float32 for half. NaN where the train's first
        value other than 0 is NaN.

    Raises:
        TypeError: `spikes` is no floating tensor.
        ValueError: fewer than two dimensions, or no time step.

    >>> import torch, snnlib
    >>> spikes = torch.tensor([[0.0, 0.0], [1.0, 0.0], [1.0, 0.0]]).unsqueeze(1).requires_grad_()
    >>> times = snnlib.readout.first_spike_time(spikes)
    >>> times.tolist()
    [[1.0, 3.0]]
    >>> times.sum().backward()
    >>> spikes.grad[:, 0].tolist()
    [[0.0, 0.0], [-1.0, 0.0], [0.0, 0.0]]
    """
    time_dim = _check_train(spikes, batch_first, at_least_steps=1)
    fired = spikes != 0
    # argmax takes the first of equals.
    first = fired.to(torch.uint8).argmax(time_dim, keepdim=True)
    value = spikes.gather(time_dim, first).to(torch.promote_types(spikes.dtype, torch.float32))
    # The difference is 0; it carries the gradient -1, and NaN.
    times = first - (value - value.detach())
    silent = spikes.shape[time_dim] if no_spike is None else no_spike
    return torch.where(fired.any(time_dim), times.squeeze(time_dim), silent)
