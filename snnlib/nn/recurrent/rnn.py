"""Recurrent spiking layers in the manner of `torch.nn.RNN`: any neuron, recurrent weights with one step of delay."""

from __future__ import annotations

import copy
from typing import Any, TypedDict, Unpack, cast

import torch
from torch import Tensor, nn

from snnlib.checks import LAYER_HINTS, check_count, check_no_state, shows
from snnlib.neurons import Neuron, Output
from snnlib.neurons.module import checks_names
from snnlib.nn.layers.delays import Delays
from snnlib.nn.layers.dropout import SpikeDropout
from snnlib.nn.recurrent.recurrent_layer import RecurrentLayer, warn_of_high_surrogate
from snnlib.nn.weights.sparse import Sparse

__all__ = ["SpikingRNN"]


class _Options(TypedDict, total=False):
    connections: Sparse | None
    recurrent_connections: Sparse | None
    delays: Delays | None
    recurrent_delays: Delays | None
    recurrent_gradient: str
    batch_first: bool
    device: torch.device | str | None
    dtype: torch.dtype | None


@checks_names
class SpikingRNN(nn.Module):
    """Recurrent spiking layers, in the manner of `torch.nn.RNN`: `[T, N, input_size]` to `[T, N, hidden_size]`.

    ::

        s[t] = neuron(weight x[t] + recurrent_weight s[t-1])         for each layer, whose spikes are the next one's x

    `layer(x)` returns the spikes of the last layer. `layer.run(x, state, lengths)` also takes and returns the state.
    Gradients flow through the state: chunks give the gradient of the whole sequence, and `detach()` truncates it. The
    input weights are event-driven on a CPU. There is no bias.

    Args:
        input_size: number of inputs.
        hidden_size: neurons per layer, H.
        num_layers: number of layers, each of which feeds the next. Default 1.
        neuron: the neuron model, copied for each layer, with constants shared or one per neuron `[H]`. Default
            `CubaLIF(surrogate=Triangle(width=0.5, height=0.4))`.
        dropout: probability that a neuron outside the last layer is silenced for a whole sequence in training; every
            call of `run` draws a new mask. Default 0.
        connections: `snnlib.Sparse(...)` for each layer's input weights. Default None, all connections.
        recurrent_connections: `snnlib.Sparse(...)` for each layer's recurrent weights. Default None, all connections.
        delays: `snnlib.Delays` of each layer's input, copied for each layer. Default None.
        recurrent_delays: `snnlib.Delays` of recurrent spikes, in addition to the one step, copied for each layer.
            On a GPU they run by the neurons' `step`. Default None.
        recurrent_gradient: `"bptt"`, backpropagation through time, or `"eprop"`, which leaves out the gradient that
            comes back through recurrent spikes: a weight learns from the sum over time of its neuron's learning signal,
            dL/ds, times the weight's eligibility trace (docs/two-gradients.md). Default `"bptt"`.
        batch_first: whether sequences are `[N, T, ...]`. Default False.
        device: device of weights and constants.
        dtype: dtype of the weights.

    Shape:
        `run` returns `Output(value, state)`. The state has two tensors per layer, the neurons' states `[K, N, H]` and
        their last spikes `[1, N, H]`. Recurrent delays and the spike-time gradient need more last spikes, and a third
        tensor with the last steps of the layer's input.

    Raises:
        ValueError: a size below 1, an unknown `recurrent_gradient`, an input, a state or lengths that do not fit.
        TypeError: a `neuron` that is not a `Neuron`, an input that is not floating.

    Warns:
        UserWarning: a surrogate with a peak of 1 or more, whose gradient can grow without bound under recurrence.

    Source: Bellec et al., "Long short-term memory and learning-to-learn in networks of spiking neurons", NeurIPS 2018;
    Yin, Corradi, Bohté, Nature Machine Intelligence 3, 2021; e-prop: Bellec et al., "A solution to the learning dilemma
    for recurrent networks of spiking neurons", Nature Communications 11, 2020.

    >>> import torch, snnlib
    >>> rnn = snnlib.SpikingRNN(20, 64, num_layers=2)
    >>> x = (torch.rand(50, 8, 20) < 0.05).float()
    >>> rnn(x).shape
    torch.Size([50, 8, 64])
    >>> first, state = rnn.run(x[:30])
    >>> second, state = rnn.run(x[30:], state)
    >>> torch.equal(torch.cat((first, second)), rnn(x))
    True
    """

    option_hints = LAYER_HINTS

    @shows(_Options, RecurrentLayer.__init__)
    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        neuron: Neuron | None = None,
        *,
        dropout: float = 0.0,
        **options: Unpack[_Options],
    ) -> None:
        super().__init__()
        check_count("num_layers", num_layers)
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout: expected a probability in [0, 1), got {dropout}")
        self.input_size, self.hidden_size, self.num_layers = input_size, hidden_size, num_layers
        self.batch_first, self.dropout = options.get("batch_first", False), dropout
        # Delays are built with the first layer; the others need them as they were.
        copies = [(neuron, options), *(copy.deepcopy((neuron, options)) for _ in range(1, num_layers))]
        self.layers = nn.ModuleList(
            RecurrentLayer(hidden_size if i else input_size, hidden_size, neuron=own, **given)
            for i, (own, given) in enumerate(copies)
        )
        warn_of_high_surrogate(self.layers[0].neuron)  # type: ignore[arg-type]
        self.between = (
            SpikeDropout(dropout, self.batch_first) if dropout and num_layers > 1 else nn.Identity()
        )

    def forward(self, x: Tensor, *state: Any) -> Tensor:
        """Returns the spikes of the last layer, from the initial state."""
        check_no_state(self, state)
        for i, layer in enumerate(self.layers):
            x = layer(self.between(x) if i else x)
        return x

    def run(
        self, x: Tensor, state: tuple[Tensor, ...] | None = None, lengths: Tensor | None = None
    ) -> Output:
        """Returns the spikes of the last layer and the state after the last step, from a given state.

        Args:
            x: input `[T, N, input_size]`.
            state: the state that an earlier call returned; None: the initial state.
            lengths: number of steps of each sample `[N]`; later steps have no spikes, and the state is the one after
                the sample's own last step.
        """
        parts_each = 3 if cast(RecurrentLayer, self.layers[0]).keeps_input else 2
        total = parts_each * self.num_layers
        if state is not None and (not isinstance(state, tuple) or len(state) != total):
            got = f"{len(state)} parts" if isinstance(state, tuple) else type(state).__name__
            raise TypeError(f"state: expected the tuple of {total} that run returned, got {got}")
        after: list[Tensor] = []
        for i, layer in enumerate(self.layers):
            assert isinstance(layer, RecurrentLayer)
            own = None if state is None else state[parts_each * i : parts_each * (i + 1)]
            x, parts = layer.run(self.between(x) if i else x, own, lengths)
            after += parts
        return Output(x, tuple(after))

    def extra_repr(self) -> str:
        """Sizes and options that differ from the defaults."""
        text = f"{self.input_size}, {self.hidden_size}"
        text += f", num_layers={self.num_layers}" if self.num_layers > 1 else ""
        text += f", dropout={self.dropout}" if self.dropout else ""
        return text + (", batch_first=True" if self.batch_first else "")
