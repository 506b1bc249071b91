"""Any neurons behind a linear operator, with delays or a recurrence, as stateless functions."""

from __future__ import annotations

from torch import Tensor

from snnlib.functional.currents import Delayed
from snnlib.functional.operators import LinearOperator
from snnlib.functional.plan import plan_layer
from snnlib.functional.recurrent import Recurrence
from snnlib.neurons.base import Neuron, Output
from snnlib.sequences.time_first import time_first

__all__ = ["delayed_layer", "spiking_layer", "spiking_recurrent"]


def spiking_layer(
    x: Tensor,
    weight: Tensor,
    operator: LinearOperator | Delayed,
    neuron: Neuron,
    *,
    state: tuple[Tensor, ...] | None = None,
    return_state: bool = True,
    pool: tuple[int, int] = (1, 1),
) -> Output:
    """Returns spikes of `neuron(operator(x, weight))`, averaged over windows `pool`, and the last state.

    On a CPU the currents are sums over events. Neurons of one or two linear states without learnable constants, and
    neurons with an event-driven gradient, run in the same kernel and save near-threshold steps or spikes only; other
    neurons run on currents `[T, N, C, ...]`, which are saved. Gradients flow through states that are given or returned.

    Args:
        x: events `[T, N, ...]` (`[N, T, ...]` where the neuron is `batch_first`): spikes or any real amplitudes.
        weight: the operator's weight, dimension 0 the output channels; x's dtype.
        operator: `Convolution(...)`, `FullyConnected()` or an object with the same four methods. neuron: any neuron
            model.
        state: the state that an earlier call returned; None: the initial state.
        return_state: whether to return the state after the last step.
        pool: window of average pooling over the last two axes, without overlap: with the event-time gradient for
            neurons with `gradient="event"`, with ordinary gradients for others.

    Raises:
        TypeError: a tensor of integers, or x and weight of different dtypes.
        ValueError: a shape that does not fit, or a neuron with constants for another number of channels.

    >>> import torch, snnlib
    >>> x = torch.ones(5, 2, 3)                                      # [T, N, inputs]
    >>> operator = snnlib.functional.FullyConnected()
    >>> snnlib.functional.spiking_layer(x, torch.ones(4, 3), operator, snnlib.neurons.LIF()).value.shape
    torch.Size([5, 2, 4])
    """
    x = time_first(x, neuron.batch_first)
    plan = plan_layer(x, weight, operator, neuron, state=state, return_state=return_state, pool=pool)
    value, after = plan.run(x, weight, state)
    return Output(time_first(value, neuron.batch_first), after)


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
    """Returns spikes of neurons whose input events arrive `delay` steps later, and their last state.

    Args:
        x: events `[T, N, ...]` (`[N, T, ...]` where the neuron is `batch_first`).
        weight: the operator's weight.
        operator: a convolution or a fully connected map.
        neuron: any neuron model; models with `gradient="event"` use rounded delays.
        delay: time steps >= 0, one per input channel `[C_in]` or of the weight's shape.
        before: number of first steps of x that belong to the past: their events arrive, but they have no output.
        rounded: whether delays are rounded to whole steps; if False, delays between steps are interpolated.
        state, return_state, pool: as in `spiking_layer`.

    Raises:
        ValueError: a delay of a wrong shape, or an operator without delays per connection.

    >>> import torch, snnlib
    >>> x = torch.tensor([1.0, 0.0, 0.0, 0.0]).reshape(4, 1, 1)
    >>> neuron, operator = snnlib.neurons.IF(), snnlib.functional.FullyConnected()
    >>> layer = snnlib.functional.delayed_layer
    >>> layer(x, torch.ones(1, 1), operator, neuron, torch.tensor([2.0])).value.flatten().tolist()
    [0.0, 0.0, 1.0, 0.0]
    """
    rounded = rounded or neuron.gradient == "event"
    delayed = Delayed(operator, delay, before, rounded)
    return spiking_layer(x, weight, delayed, neuron, state=state, return_state=return_state, pool=pool)


def spiking_recurrent(
    current: Tensor,
    weight: Tensor,
    neuron: Neuron,
    *,
    operator: LinearOperator | None = None,
    state: tuple[Tensor, ...] | None = None,
    lengths: Tensor | None = None,
    delay: Tensor | None = None,
    max_delay: int = 0,
    rounded: bool = False,
) -> Output:
    """Returns spikes of recurrent neurons for input currents, and their last state.

    ::

        s[t] = neuron(current[t] + weight s[t-1])                 or operator(s[t-1], weight)

    `weight[i, j]` connects neuron j to neuron i, as in `torch.nn.RNN`, with a delay of one step plus `delay`.
    Gradients flow to the current, the weight, the neuron's learnable constants, the delay and the state.

    Args:
        current: input currents `[T, N, H]`, or `[T, N, C, ...]` with an operator (`[N, T, ...]` where the neuron is
            `batch_first`).
        weight: recurrent weights `[H, H]`, or the operator's, of the current's dtype.
        neuron: any neuron model; if it outputs values other than 0 and 1, these are fed back.
        operator: map from the spikes of a step to the currents of the next, of the same shape, such as
            `Convolution(2, padding="same")`; runs by the neuron's `step`. None for a full matrix, which has kernels,
            as has `SparselyConnected` with a weight `[connections]`.
        state: the state that an earlier call returned: the neurons' states `[K, N, H]` in the order of
            `neuron.state_names`, and their last spikes `[1, N, H]`. None: the initial state.
        lengths: number of steps of each sample `[N]`, 0 to T; None for T. Later steps have spikes and gradients of 0,
            and the state is the one after the sample's own last step.
        delay: further steps until a spike arrives, per neuron `[H]` or per connection `[H, H]`, `[connections]` if they
            are sparse, from 0 to `max_delay`; None: no delay. The state then has `max_delay + 2` last spikes, the
            newest first. Full matrices and `SparselyConnected` only.
        max_delay: longest `delay`.
        rounded: whether delays are rounded to whole steps; if False, delays between steps are interpolated.

    Raises:
        TypeError: current or weight is not a floating-point tensor, they differ in dtype, or lengths are no integers.
        ValueError: a shape that does not fit, a length outside 0 to T, or delays with another operator.

    Source: Neftci et al., "Surrogate gradient learning in spiking neural networks", IEEE Signal Processing Magazine
    2019, equations 1 to 4.

    >>> import torch, snnlib
    >>> current = torch.tensor([1.0, 0.0, 0.0, 0.0]).reshape(4, 1, 1)
    >>> neuron = snnlib.neurons.LIF(decay_input=False)
    >>> snnlib.functional.spiking_recurrent(current, torch.ones(1, 1), neuron).value.flatten().tolist()
    [1.0, 1.0, 1.0, 1.0]
    """
    current = time_first(current, neuron.batch_first)
    plan = plan_layer(
        current, weight, Recurrence(None, weight, operator, delay, max_delay, rounded), neuron, state=state
    )
    if weight.dtype != current.dtype:
        raise TypeError(f"weight: expected {current.dtype}, got {weight.dtype}")
    value, after = plan.run(current, weight, state, lengths)
    return Output(time_first(value, neuron.batch_first), after)
