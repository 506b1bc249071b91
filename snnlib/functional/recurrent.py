"""Neurons whose spikes come back as currents one step later, as a stateless function."""

from __future__ import annotations

import torch
from torch import Tensor

from snnlib import ops
from snnlib.functional._check import check_device, check_floating, check_lengths, check_rank
from snnlib.functional.lengths import without_padding
from snnlib.neurons.base import Neuron, Output
from snnlib.neurons.dynamics import Dynamics


def spiking_recurrent(
    current: Tensor,
    weight: Tensor,
    neuron: Neuron,
    *,
    state: tuple[Tensor, ...] | None = None,
    lengths: Tensor | None = None,
) -> Output:
    """Spikes of fully recurrent neurons for their input currents, and the state to go on from.

    ::

        s[t] = neuron(current[t] + weight s[t-1])

    `weight[i, j]` leads from neuron j to neuron i, as in `torch.nn.RNN`, with a delay of one step. Gradients flow to
    the current, the weight, the neuron's learnable constants and the state.

    Args:
        current: input currents `[T, N, H]` (`[N, T, H]` where the neuron is `batch_first`).
        weight: recurrent weights `[H, H]`, of the current's dtype.
        neuron: any neuron model; one with several values per spike feeds these back.
        state: what an earlier call returned: the neurons' states `[K, N, H]` in the order of `neuron.state_names`, and
            their last spikes `[1, N, H]`. None starts anew.
        lengths: number of steps of each sample `[N]`, 0 to T; None for T. Later steps have spikes and gradients of 0,
            and the state is that after the sample's own last step.

    Raises:
        TypeError: current or weight is no floating tensor, they differ in dtype, or lengths are no integers.
        ValueError: a shape that does not fit, or a length outside 0 to T.

    Source: Neftci et al., "Surrogate gradient learning in spiking neural networks", IEEE Signal Processing Magazine
    2019, equations 1 to 4.

    >>> import torch, snnlib
    >>> current = torch.tensor([1.0, 0.0, 0.0, 0.0]).reshape(4, 1, 1)
    >>> neuron = snnlib.neurons.LIF(decay_input=False)
    >>> snnlib.functional.spiking_recurrent(current, torch.ones(1, 1), neuron).value.flatten().tolist()
    [1.0, 1.0, 1.0, 1.0]
    """
    _check(current, weight, neuron)
    time_dim = int(neuron.batch_first)
    steps, batch = current.shape[time_dim], current.shape[1 - time_dim]
    if lengths is not None:
        lengths = check_lengths(lengths, steps, batch, current)
        current = without_padding(current, lengths, time_dim)
    shape = [batch, current.shape[2]]
    wide = torch.promote_types(current.dtype, torch.float32)
    own, spikes = _split(state, shape, current)
    start = neuron.start(shape, current, own)
    dynamics = neuron.dynamics(neuron.constants())
    if dynamics is not None and not dynamics.membrane and current.device.type == "cpu":
        return _by_kernels(current, weight, dynamics, start, spikes, lengths, time_dim)
    if start is None:
        start = current.new_zeros((len(neuron.state_names), *shape), dtype=wide)
    spikes = current.new_zeros(shape, dtype=wide) if spikes is None else spikes.to(wide)
    return _by_steps(current, weight, neuron, start, spikes, lengths)


def _by_kernels(
    current: Tensor,
    weight: Tensor,
    dynamics: Dynamics,
    start: Tensor | None,
    spikes: Tensor | None,
    lengths: Tensor | None,
    time_dim: int,
) -> Output:
    state = None
    if start is not None or spikes is not None:
        wide = torch.promote_types(current.dtype, torch.float32)
        zeros = current.new_zeros((current.shape[1 - time_dim], current.shape[2]), dtype=wide)
        if start is None:
            start = zeros.expand(dynamics.states + dynamics.reset_next, *zeros.shape)
        state = torch.cat((start, (zeros if spikes is None else spikes.to(wide))[None]))
    value, final = ops.recurrent.run(current, weight, dynamics, state, lengths, time_dim)
    return Output(value, (final[:-1], final[-1:]))


def _by_steps(
    current: Tensor, weight: Tensor, neuron: Neuron, start: Tensor, spikes: Tensor, lengths: Tensor | None
) -> Output:
    """The definition: one step after the other, by the neuron's own `step`."""
    time_dim, wide, before = int(neuron.batch_first), start.dtype, start.unbind(0)
    params = neuron._broadcast(neuron.constants(), 2, wide)
    back = weight.to(wide).t()
    values = []
    for t, now in enumerate(current.to(wide).unbind(time_dim)):
        if not neuron.gradient_through_time:
            before, spikes = tuple(part.detach() for part in before), spikes.detach()
        value, after = neuron.step(before, now + spikes @ back, params)
        neuron._check_step(value, after, list(spikes.shape))
        if lengths is None:
            before, spikes = after, value
        else:
            valid = (t < lengths)[:, None]
            before = tuple(torch.where(valid, *pair) for pair in zip(after, before, strict=True))
            spikes = torch.where(valid, value, spikes)
            value = torch.where(valid, value, torch.zeros_like(value))
        values.append(value)
    out = torch.stack(values, time_dim) if values else current
    return Output(out.to(current.dtype), (torch.stack(before), spikes.unsqueeze(0)))


def _check(current: Tensor, weight: Tensor, neuron: Neuron) -> None:
    check_floating("current", current)
    check_floating("weight", weight)
    layout = "[N, T, H]" if neuron.batch_first else "[T, N, H]"
    check_rank("current", current, layout, exactly=3)
    neurons = current.shape[2]
    if tuple(weight.shape) != (neurons, neurons):
        raise ValueError(f"weight: expected shape {(neurons, neurons)}, got {tuple(weight.shape)}")
    if weight.dtype != current.dtype:
        raise TypeError(f"weight: expected {current.dtype}, got {weight.dtype}")
    check_device("weight", weight, current)
    neuron.check_channels(neurons, current)


def _split(
    state: tuple[Tensor, ...] | None, shape: list[int], like: Tensor
) -> tuple[tuple[Tensor, ...] | None, Tensor | None]:
    """The neurons' own state, whose shape the neuron checks, and the last spikes."""
    if state is None:
        return None, None
    if not (isinstance(state, tuple) and len(state) == 2 and all(isinstance(part, Tensor) for part in state)):
        got = f"{len(state)} parts" if isinstance(state, tuple) else type(state).__name__
        raise TypeError(
            f"state: expected the tuple (neuron states, last spikes) that run returned, got {got}"
        )
    own, spikes = state
    if tuple(spikes.shape) != (1, *shape):
        raise ValueError(f"state: expected last spikes of shape {(1, *shape)}, got {tuple(spikes.shape)}")
    check_device("state", spikes, like)
    return (own,), spikes[0]
