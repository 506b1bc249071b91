"""Recurrent spiking layers in the manner of `torch.nn.RNN`: any neuron, recurrent weights with one step of delay."""

from __future__ import annotations

import copy
import math

import torch
from torch import Tensor, nn

from snnlib.functional._check import check_count, check_floating, check_lengths, check_rank
from snnlib.functional._options import LAYER_HINTS, KnownOptions
from snnlib.functional.delayed import delayed_currents
from snnlib.functional.history import last_steps
from snnlib.functional.lengths import run_with_lengths, without_padding
from snnlib.functional.operators import FullyConnected
from snnlib.functional.recurrent import spiking_recurrent
from snnlib.functional.spiking import layer_currents
from snnlib.neurons import CubaLIF, Neuron, Output
from snnlib.neurons.stored import warn_caller
from snnlib.neurons.surrogate import Surrogate, Triangle
from snnlib.nn.delays import Delays, check_sequence
from snnlib.nn.dropout import SpikeDropout
from snnlib.nn.spiking import SpikingLayer

# Of a surrogate under recurrence: from this peak on, gradients grew until they were no numbers (docs/time.md).
_HIGHEST_PEAK = 1.0


class RecurrentLayer(SpikingLayer):
    """One layer of a `SpikingRNN`: `s[t] = neuron(weight x[t] + recurrent_weight s[t-1])`.

    `weight` `[H, inputs]` acts on the input and `recurrent_weight` `[H, H]` on the layer's own last spikes; `prepare_`
    sets the rates by the first with the second at work. With `recurrent_delays` spikes come back so many steps later
    still; they are built as for a weight `[H, H]`.
    """

    recurrent_weight: nn.Parameter

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        neuron: Neuron | None = None,
        *,
        delays: Delays | None = None,
        recurrent_delays: Delays | None = None,
        batch_first: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        check_count("input_size", input_size)
        check_count("hidden_size", hidden_size)
        self.input_size, self.hidden_size = input_size, hidden_size
        super().__init__(
            FullyConnected(),
            (hidden_size, input_size),
            CubaLIF(surrogate=Triangle(width=0.5, height=0.4)) if neuron is None else neuron,
            delays=delays,
            batch_first=batch_first,
            device=device,
            dtype=dtype,
        )
        self.recurrent_weight = nn.Parameter(
            torch.empty(hidden_size, hidden_size, device=device, dtype=dtype)
        )
        self._reset_recurrent()
        if recurrent_delays is not None and not isinstance(recurrent_delays, Delays):
            raise TypeError(
                f"recurrent_delays: expected an instance of snnlib.Delays, got {recurrent_delays!r}"
            )
        self.recurrent_delays = recurrent_delays
        if recurrent_delays is not None:
            recurrent_delays.build(hidden_size, self.recurrent_weight)

    def reset_parameters(self) -> None:
        """Draw both weights, uniform with mean 0.

        The input's as in the other layers; the recurrent one with `std = threshold / (sqrt(H) potential_gain)`, so that
        neurons that fire in a share r of the steps give each other a potential of `sqrt(r)` thresholds.
        """
        super().reset_parameters()
        if hasattr(self, "recurrent_weight"):
            self._reset_recurrent()

    def _reset_recurrent(self) -> None:
        if self.recurrent_weight.is_meta:
            return
        bound = self.mean_threshold() * math.sqrt(3 / self.hidden_size) / self.potential_gain()
        nn.init.uniform_(self.recurrent_weight, -bound, bound)

    def forward(self, x: Tensor) -> Tensor:
        """Spikes of a sequence from the initial state."""
        weight = self.effective_weight
        for delays in (self.delays, self.recurrent_delays):
            if delays is not None:
                check_sequence(delays, x.shape[int(self.batch_first)])
        out = self._spikes(x, weight, None, None).value
        self.first_batches.watch(self, x, weight, out)
        return out

    def run(
        self, x: Tensor, state: tuple[Tensor, ...] | None = None, lengths: Tensor | None = None
    ) -> Output:
        """Spikes and the state after the last step: neuron states `[K, N, H]`, last spikes `[D, N, H]`, newest first.

        D is 1, or `max_delay + 2` with recurrent delays. With delays of the input its last steps follow as a third
        part, packed to bits where they are 0 and 1 and no gradient flows through them.
        """
        if lengths is not None and self.delays is not None:
            return Output(*run_with_lengths(self.run, x, state, lengths, int(self.batch_first)))
        return self._spikes(x, self.effective_weight, state, lengths)

    def _spikes(
        self, x: Tensor, weight: Tensor, state: tuple[Tensor, ...] | None, lengths: Tensor | None
    ) -> Output:
        if lengths is not None:
            # Padding may hold anything, and a product with the signal of 0 would keep what is no number.
            check_floating("x", x)
            check_rank("x", x, "[T, N, inputs]", at_least=3)
            time_dim = int(self.batch_first)
            lengths = check_lengths(lengths, x.shape[time_dim], x.shape[1 - time_dim], x)
            x = without_padding(x, lengths, time_dim)
        if self.delays is None:
            current = layer_currents(x, weight, self.operator, int(self.batch_first))
            out = self._recur(current, state, lengths)
            return Output(out.value.to(x.dtype), out.state)
        own, events, before = self._with_history(x, state)
        current = delayed_currents(
            events,
            weight,
            self.operator,
            self.delays(),
            before=before,
            rounded=not self.training or self.neuron.gradient == "event",
            time_dim=int(self.batch_first),
        )
        out = self._recur(current, own, lengths)
        after = last_steps(events, self.delays.history, int(self.batch_first))
        return Output(out.value.to(x.dtype), (*out.state, after))

    def _recur(
        self, current: Tensor, state: tuple[Tensor, ...] | None = None, lengths: Tensor | None = None
    ) -> Output:
        weight = self.recurrent_weight.to(current.dtype)
        delays = self.recurrent_delays
        if delays is None:
            return spiking_recurrent(current, weight, self.neuron, state=state, lengths=lengths)
        return spiking_recurrent(
            current,
            weight,
            self.neuron,
            state=state,
            lengths=lengths,
            delay=delays(),
            max_delay=delays.max_delay,
            rounded=not self.training or self.neuron.gradient == "event",
        )

    def fire(self, current: Tensor) -> Tensor:
        """Spikes for an input current `[T, N, H]`, with the recurrence."""
        return self._recur(current).value

    def extra_repr(self) -> str:
        """Sizes."""
        return f"{self.input_size}, {self.hidden_size}{super().extra_repr()}"


class SpikingRNN(KnownOptions, nn.Module):
    """Recurrent spiking layers, in the manner of `torch.nn.RNN`: `[T, N, input_size]` to `[T, N, hidden_size]`.

    ::

        s[t] = neuron(weight x[t] + recurrent_weight s[t-1])         for each layer, whose spikes are the next one's x

    `layer(x)` gives the spikes of the last layer. `layer.run(x, state, lengths)` also takes and gives the state.
    Gradients flow through it: a sequence cut into chunks has the gradient of the whole, and `detach()` truncates it.
    The input's part is event-driven on a CPU. There is no bias.

    Args:
        input_size: number of inputs.
        hidden_size: neurons per layer, H.
        num_layers: layers, one behind the other. Default 1.
        neuron: the neuron model, of which each layer gets a copy, with constants shared or one per neuron `[H]`.
            Default `CubaLIF(surrogate=Triangle(width=0.5, height=0.4))`.
        dropout: probability with which a neuron of all layers but the last is silenced for a whole sequence while
            training; `run` draws anew in each call. Default 0.
        delays: `snnlib.Delays` of each layer's input, of which each gets a copy. Default None.
        recurrent_delays: `snnlib.Delays` of the spikes that come back, beyond the one step that they take anyway, of
            which each layer gets a copy; they run by the neurons' `step`. Default None.
        batch_first: whether sequences are `[N, T, ...]`. Default False.
        device: device of weights and constants.
        dtype: dtype of the weights.

    Shape:
        `run` returns `Output(value, state)`; the state has two tensors per layer, the neurons' states `[K, N, H]` and
        their last spikes `[1, N, H]`, more of them with recurrent delays, and with delays a third one, the last steps
        of the layer's input.

    Raises:
        ValueError: a size below 1, an input, a state or lengths that do not fit.
        TypeError: a neuron that is none, an input that is not floating.

    Warns:
        UserWarning: a surrogate with a peak of 1 or more, whose gradient can grow without bound under recurrence.

    Source: Bellec et al., "Long short-term memory and learning-to-learn in networks of spiking neurons", NeurIPS 2018;
    Yin, Corradi, Bohté, Nature Machine Intelligence 3, 2021.

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

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        neuron: Neuron | None = None,
        *,
        dropout: float = 0.0,
        delays: Delays | None = None,
        recurrent_delays: Delays | None = None,
        batch_first: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_count("num_layers", num_layers)
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout: expected a probability in [0, 1), got {dropout}")
        self.input_size, self.hidden_size, self.num_layers = input_size, hidden_size, num_layers
        self.batch_first, self.dropout = batch_first, dropout
        # The first layer's are built with it; the others need them as they were.
        unbuilt = copy.deepcopy((delays, recurrent_delays))
        self.layers = nn.ModuleList(
            RecurrentLayer(
                hidden_size if i else input_size,
                hidden_size,
                copy.deepcopy(neuron) if i else neuron,
                delays=copy.deepcopy(unbuilt[0]) if i else delays,
                recurrent_delays=copy.deepcopy(unbuilt[1]) if i else recurrent_delays,
                batch_first=batch_first,
                device=device,
                dtype=dtype,
            )
            for i in range(num_layers)
        )
        _warn_of_high_surrogate(self.layers[0].neuron)  # type: ignore[arg-type]
        self.between = SpikeDropout(dropout, batch_first) if dropout and num_layers > 1 else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """Spikes of the last layer, from the initial state."""
        for i, layer in enumerate(self.layers):
            x = layer(self.between(x) if i else x)
        return x

    def run(
        self, x: Tensor, state: tuple[Tensor, ...] | None = None, lengths: Tensor | None = None
    ) -> Output:
        """Spikes of the last layer and the state after the last step, from a given state.

        Args:
            x: input `[T, N, input_size]`.
            state: what an earlier call returned; None starts anew.
            lengths: number of steps of each sample `[N]`; later steps have spikes of 0, and the state is that after
                the sample's own last step.
        """
        parts_each = 2 if self.layers[0].delays is None else 3
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


def _warn_of_high_surrogate(neuron: Neuron) -> None:
    bump = getattr(neuron, "surrogate", None)
    if not isinstance(bump, Surrogate) or neuron.gradient != "surrogate":
        return
    threshold = neuron.constants().get("threshold")
    if threshold is None or threshold.is_meta:
        return
    peak = float(bump.coefficients(threshold.detach())[0].max())
    if peak >= _HIGHEST_PEAK:
        warn_caller(
            f"neuron: its surrogate {bump} has a peak of {peak:g}; under recurrence a peak of 1 and more can let "
            "gradients grow until they are no numbers: take surrogate=snnlib.surrogate.Triangle(width=0.5, height=0.4)",
        )
