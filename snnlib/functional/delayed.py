"""Linear operators whose input events arrive later, and neurons behind them."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from snnlib import ops
from snnlib.backends.autocast import autocast_dtype
from snnlib.checks import first_state
from snnlib.functional.operators import FullyConnected, LinearOperator, channels_of
from snnlib.functional.spiking import layer_currents, pooled, spiking_layer
from snnlib.functional.two_signals import TwoSignals
from snnlib.functional.unfolded import unfolded_rows
from snnlib.neurons.base import Neuron, Output
from snnlib.neurons.models.srm import SRM
from snnlib.sequences.input_time import spike_time_gradient

__all__ = ["delayed_layer"]


def delayed_layer(
    x: Tensor,
    weight: Tensor,
    operator: LinearOperator,
    neuron: Neuron,
    delay: Tensor,
    *,
    before: int = 0,
    rounded: bool = False,
    state: tuple[Tensor, ...] | None = None,
    return_state: bool = True,
    pool: tuple[int, int] = (1, 1),
) -> Output:
    """Spikes of neurons whose input events arrive `delay` steps later, and their state after the last step.

    Args:
        x: events `[T, N, ...]` (`[N, T, ...]` where the neuron is `batch_first`).
        weight: the operator's weight.
        operator: a convolution or a fully connected map.
        neuron: any neuron model; one with `gradient="event"` runs at rounded delays.
        delay: time steps >= 0, one per input channel `[C_in]` or of the weight's shape.
        before: so many of the first steps of x belong to the past: they send events on but have no output.
        rounded: whether delays are rounded to whole steps; else those between steps are interpolated.
        state, return_state, pool: as in `spiking_layer`.

    Raises:
        ValueError: a delay of another shape, or an operator that takes no delays per connection.

    >>> import torch, snnlib
    >>> x = torch.tensor([1.0, 0.0, 0.0, 0.0]).reshape(4, 1, 1)
    >>> neuron, operator = snnlib.neurons.IF(), snnlib.functional.FullyConnected()
    >>> layer = snnlib.functional.delayed_layer
    >>> layer(x, torch.ones(1, 1), operator, neuron, torch.tensor([2.0])).value.flatten().tolist()
    [0.0, 0.0, 1.0, 0.0]
    """
    rounded = rounded or neuron.gradient == "event"
    time_dim = int(neuron.batch_first)
    operator.check(x, weight)
    neuron.check_channels(channels_of(operator, weight), x)
    x, delay = _as_features(x, operator, delay)
    if isinstance(neuron, SRM) and neuron.reset_states == "all":
        start = first_state(state)
        linear = _Delayed(operator, delay, before, time_dim)
        value, final = TwoSignals.apply(  # type: ignore[no-untyped-call]
            x,
            weight,
            delay,
            None if start is None else start.detach(),
            linear,
            neuron,
            ops.scan.NO_POOLING,
            True,
        )
        return Output(pooled(value, pool, neuron), (final.detach(),))
    if neuron.exact_times:
        # The steps before the chunk, of which x has some, make up for the last input in the state.
        x = spike_time_gradient(x, None, 0, neuron.input_gradient != "dense", time_dim).x
    elif delay.dim() == 1 and not _is_matrix(x, operator):
        delayed = _after(ops.delay.delay_forward(x, delay, rounded, time_dim), before, time_dim)
        return spiking_layer(
            delayed, weight, operator, neuron, state=state, return_state=return_state, pool=pool
        )
    current = delayed_currents(x, weight, operator, delay, before=before, rounded=rounded, time_dim=time_dim)
    out = neuron._run_currents(current, state)
    return Output(pooled(out.value.to(x.dtype), pool, neuron), out.state)


def delayed_currents(
    x: Tensor,
    weight: Tensor,
    operator: LinearOperator,
    delay: Tensor,
    *,
    before: int = 0,
    rounded: bool = False,
    time_dim: int = 0,
) -> Tensor:
    """Currents `[T, N, C, ...]` of a linear operator whose events arrive later; arguments as in `delayed_layer`."""
    x, delay = _as_features(x, operator, delay)
    per_channel = delay.dim() == 1
    if per_channel and not _is_matrix(x, operator):
        delayed = _after(ops.delay.delay_forward(x, delay, rounded, time_dim), before, time_dim)
        return layer_currents(delayed, weight, operator, time_dim)
    dtype = autocast_dtype(x)
    if dtype is not None:
        x = x.to(dtype)
    rows, space = unfolded_rows(x, weight, operator, time_dim)
    flat = (len(weight), weight.shape[1:].numel())
    own = delay if per_channel else delay.reshape(flat)
    currents: Tensor = ops.currents.currents_forward(
        rows, weight.reshape(flat).to(rows.dtype), own, None, None, 0, (), (), (), 1, rounded, time_dim
    )
    currents = _after(currents, before, time_dim)
    if not space:
        return currents
    cells = math.prod(space)
    batch_dim = 1 - time_dim
    shape = list(currents.shape)
    shape[batch_dim : batch_dim + 1] = [shape[batch_dim] // cells, cells]
    apart = currents.reshape(shape)
    # [T, N, cells, C] or [N, cells, T, C]
    apart = apart.movedim(1, 2) if time_dim else apart
    return apart.movedim(3, 2).reshape(*apart.shape[:2], len(weight), *space)


def _as_features(x: Tensor, operator: LinearOperator, delay: Tensor) -> tuple[Tensor, Tensor]:
    """Frames of a fully connected map as `[T, N, features]`, and one delay for each feature; else both as they are.

    Delays of the frames' channels count for all cells of theirs.
    """
    if not isinstance(operator, FullyConnected) or delay.dim() != 1 or x.dim() == 3:
        return x, delay
    channels, features = x.shape[2], x.shape[2:].numel()
    if len(delay) == channels != features:
        delay = delay.repeat_interleave(features // channels)
    return x.flatten(2), delay


def _after(x: Tensor, before: int, time_dim: int) -> Tensor:
    return x.narrow(time_dim, before, x.shape[time_dim] - before) if before else x


def _is_matrix(x: Tensor, operator: LinearOperator) -> bool:
    """Returns whether an operator takes delays per channel as it takes up events, without a delayed sequence."""
    return isinstance(operator, FullyConnected) and not x.is_cuda


class _Delayed:
    """A linear operator whose inputs arrive later, at whole steps: a `SequenceMap`."""

    def __init__(self, operator: LinearOperator, delay: Tensor, before: int, time_dim: int) -> None:
        self.operator, self.delay = operator, delay.detach()
        self.before, self.time_dim = before, time_dim

    def currents(self, x: Tensor, weight: Tensor) -> Tensor:
        """See `delayed_currents`."""
        before, time_dim = self.before, self.time_dim
        return delayed_currents(
            x, weight, self.operator, self.delay, before=before, rounded=True, time_dim=time_dim
        )

    def input_backward(self, signal: Tensor, x: Tensor, weight: Tensor) -> Tensor:
        """See `SequenceMap`."""
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            currents = self.currents(x, weight.detach())
        return torch.autograd.grad(currents, x, signal.to(currents.dtype))[0]

    def weight_backward(self, signal: Tensor, x: Tensor, weight: Tensor) -> Tensor:
        """See `SequenceMap`."""
        with torch.enable_grad():
            weight = weight.detach().requires_grad_()
            currents = self.currents(x.detach(), weight)
        return torch.autograd.grad(currents, weight, signal.to(currents.dtype))[0]
