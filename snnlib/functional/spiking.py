"""Any neurons behind a linear operator, as one stateless function: event-driven currents, then neurons."""

from __future__ import annotations

from torch import Tensor

from snnlib.functional.currents import Delayed
from snnlib.functional.operators import LinearOperator
from snnlib.functional.plan import plan_layer
from snnlib.neurons.base import Neuron, Output

__all__ = ["spiking_layer"]


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

    On a CPU the currents are sums over events. Neurons of one state without learnable constants, and neurons with an
    event-driven gradient, run in the same kernel and save near-threshold steps or spikes only; other neurons run on
    currents `[T, N, C, ...]`, which are saved. Gradients flow through states that are given or returned.

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
    plan = plan_layer(x, weight, operator, neuron, state=state, return_state=return_state, pool=pool)
    return plan.run(x, weight, state)
