"""Linear operators with delayed input events, and neurons behind them."""

from __future__ import annotations

from torch import Tensor

from snnlib.functional.currents import Delayed
from snnlib.functional.operators import LinearOperator
from snnlib.functional.spiking import spiking_layer
from snnlib.neurons.base import Neuron, Output

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
    delayed = Delayed(operator, delay, before, rounded, int(neuron.batch_first))
    return spiking_layer(x, weight, delayed, neuron, state=state, return_state=return_state, pool=pool)
